#include "emm/context.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/text_format.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "scripted_driver.hpp"

namespace emm {
namespace {

using test::ScriptedDriver;

/// Writes down what a Context asks of it, in the words of NBEP-7.
class SpyManager final : public MemoryManager {
 public:
  SpyManager(std::vector<std::string>& log, bool fails) : log_(log), fails_(fails) {}

  Status initialize() override {
    log_.emplace_back("initialize");
    return fails_ ? Status(driver_error(Call::mem_get_info, 700)) : Status();
  }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    log_.push_back(text::format("memalloc {} on {}", size, stream.value));
    return MemoryPointer({0x1000}, size);
  }
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    log_.push_back(text::format("memhostalloc {} {}", size, flags.bits()));
    return Error{.code = Errc::not_supported};
  }
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner) override {
    log_.push_back(text::format("mempin {} {} {}", range.size, flags.bits(), owner != nullptr));
    return Error{.code = Errc::not_supported};
  }
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    log_.push_back(text::format("get_ipc_handle {}", memory.size));
    return Error{.code = Errc::not_supported};
  }
  Result<MemoryInfo> get_memory_info() override {
    log_.emplace_back("get_memory_info");
    return MemoryInfo{.free = 32, .total = 64};
  }
  void reset() noexcept override { log_.emplace_back("reset"); }
  DeferCleanup defer_cleanup() override {
    log_.emplace_back("defer");
    return DeferCleanup(
        [](void* self) noexcept { static_cast<SpyManager*>(self)->log_.emplace_back("end defer"); },
        this);
  }

 private:
  std::vector<std::string>& log_;
  bool fails_;
};

struct Scene {
  explicit Scene(Profile profile = Profile::standard) {
    auto made = std::make_unique<ScriptedDriver>();
    driver = made.get();
    driver->during = [this](const auto& call) { log.emplace_back(call_info(call.call).name); };
    device.driver = std::move(made);
    const ManagerFactory factory{.name = "spy", .make = [this](const ManagerContext& given) {
                                   ++made_managers;
                                   EXPECT_EQ(given.driver, driver);
                                   EXPECT_EQ(given.clock, &clock);
                                   return Result<std::unique_ptr<MemoryManager>>(
                                       std::make_unique<SpyManager>(log, initialize_fails));
                                 }};
    make = [this, factory, profile] {
      return *Context::create(device, clock, factory, nullptr, profile);
    };
    context = make();
  }
  std::vector<std::string> taken() { return std::exchange(log, {}); }

  ManualClock clock;
  OpenedDevice device;
  ScriptedDriver* driver = nullptr;
  std::vector<std::string> log;
  int made_managers = 0;
  bool initialize_fails = false;
  std::function<std::unique_ptr<Context>()> make;
  std::unique_ptr<Context> context;
};

using Log = std::vector<std::string>;

TEST(Context, MakesOneManagerAndTouchesNoDevice) {  // SEL-9, SEL-5
  Scene scene;

  EXPECT_EQ(scene.made_managers, 1);
  EXPECT_EQ(scene.taken(), Log{});
}

TEST(Context, FailsWhereItsFactoryFails) {
  ManualClock clock;
  OpenedDevice device{.driver = std::make_unique<ScriptedDriver>(), .runtime = nullptr};
  const ManagerFactory factory{
      .name = "none", .make = [](const ManagerContext&) {
        return Result<std::unique_ptr<MemoryManager>>(Error{.code = Errc::not_supported});
      }};

  EXPECT_EQ(Context::create(device, clock, factory).error().code, Errc::not_supported);
}

TEST(Context, InitializesOnceBeforeTheFirstRequest) {  // INI-1
  Scene scene;

  EXPECT_TRUE(scene.context->memalloc(8));
  EXPECT_TRUE(scene.context->memalloc(9, {4}));

  EXPECT_EQ(scene.taken(), (Log{"initialize", "memalloc 8 on 0", "memalloc 9 on 4"}));
}

TEST(Context, AsksNothingOfAManagerThatDoesNotInitialize) {
  Scene scene;
  scene.initialize_fails = true;
  scene.context = scene.make();

  EXPECT_EQ(scene.context->memalloc(8).error().native, 700);
  EXPECT_EQ(scene.context->get_memory_info().error().native, 700);
  EXPECT_EQ(scene.taken(), (Log{"initialize", "initialize"}));
}

TEST(Context, PassesRequestsOnUnchanged) {  // CTX-1 to CTX-6
  Scene scene;
  ASSERT_TRUE(scene.context->initialize());
  scene.taken();
  std::byte buffer[16];

  EXPECT_EQ(scene.context->memalloc(8)->size(), 8u);
  EXPECT_FALSE(scene.context->memhostalloc(16, {.mapped = true, .portable = true, .wc = true}));
  EXPECT_FALSE(scene.context->mempin({buffer, 16}, {.mapped = true}, std::make_shared<int>(1)));
  EXPECT_EQ(scene.context->memallocmanaged(8, AttachFlags::host).error().code,
            Errc::not_supported);  // BASE-4
  EXPECT_FALSE(scene.context->get_ipc_handle({{0x1000}, 8}));
  EXPECT_EQ(*scene.context->get_memory_info(), (MemoryInfo{.free = 32, .total = 64}));

  EXPECT_EQ(scene.taken(), (Log{"memalloc 8 on 0", "memhostalloc 16 7", "mempin 16 2 true",
                                "get_ipc_handle 8", "get_memory_info"}));
}

TEST(Context, RefusesToMapWhereTheDeviceCannot) {  // CTX-3
  Scene scene;
  scene.driver->maps_host_memory = false;
  std::byte buffer[16];

  EXPECT_EQ(describe(scene.context->mempin({buffer, 16}, {.mapped = true}).error()),
            "Scripted device cannot map host memory");
  EXPECT_EQ(scene.taken(), Log{});
  EXPECT_FALSE(scene.context->mempin({buffer, 16}, {}));
  EXPECT_FALSE(scene.context->memhostalloc(16, {.mapped = true}));
  EXPECT_EQ(scene.taken(), (Log{"initialize", "mempin 16 0 false", "memhostalloc 16 2"}));
}

TEST(Context, PushesThenInitializes) {  // CTX-7, CTX-8, CTX-9
  Scene scene;

  EXPECT_TRUE(scene.context->push());
  EXPECT_TRUE(scene.context->push());

  EXPECT_EQ(scene.taken(),
            (Log{"ctx_push_current", "initialize", "ctx_push_current", "initialize"}));
}

TEST(Context, PopsAgainWhereInitializeFails) {  // CTX-8
  for (const auto profile : {Profile::standard, Profile::numba}) {
    Scene scene(profile);
    scene.initialize_fails = true;
    scene.context = scene.make();

    EXPECT_EQ(scene.context->push().error().native, 700);

    auto expected = Log{"ctx_push_current", "initialize"};
    if (profile == Profile::standard) expected.emplace_back("ctx_pop_current");
    EXPECT_EQ(scene.taken(), expected);
  }
}

TEST(Context, PopsOnlyItself) {  // CTX-10
  Scene scene;
  EXPECT_TRUE(scene.context->pop());

  scene.driver->popped = {99};
  const auto popped = scene.context->pop();

  EXPECT_EQ(popped.error().code, Errc::invalid_context);
  EXPECT_EQ(describe(popped.error()),
            "the context popped is not this one: expected pops in the reverse order of pushes");
}

TEST(Context, ResetsManagerThenModulesThenItsOwnQueue) {  // RST-1, OBJ-3, OBJ-4
  Scene scene;
  const auto event = *scene.context->create_event();
  ASSERT_TRUE(scene.context->create_stream());
  ASSERT_TRUE(scene.context->load_module({}));
  scene.context->drop_event(event);
  scene.taken();

  scene.context->reset();

  EXPECT_EQ(scene.taken(), (Log{"reset", "event_destroy", "library_unload"}));
  scene.context->reset();
  EXPECT_EQ(scene.taken(), Log{"reset"});
}

TEST(Context, QueuesTheEndsOfWhatIsNotMemory) {  // OBJ-1, OBJ-2, CTX-12, CTX-13
  Scene scene;
  for (int i = 0; i < 5; ++i) {
    scene.context->drop_event(*scene.context->create_event());
    scene.context->drop_stream(*scene.context->create_stream());
  }
  EXPECT_EQ(scene.context->deallocations().size(), 10u);
  EXPECT_EQ(scene.context->deallocations().bytes(), 0u);
  scene.taken();

  const auto module = *scene.context->load_module({});
  scene.context->unload_module(module);

  EXPECT_EQ(scene.context->deallocations().size(), 0u);
  EXPECT_EQ(scene.driver->count(Call::event_destroy), 5u);
  EXPECT_EQ(scene.driver->count(Call::stream_destroy), 5u);
  EXPECT_EQ(scene.driver->count(Call::library_unload), 1u);
  scene.context->unload_module(module);
  EXPECT_EQ(scene.context->deallocations().size(), 0u)
      << "a module that is gone is not unloaded again";
}

TEST(Context, DefersTheManagerThenItselfAndEndsInReverse) {  // DFR-1, OBJ-5
  Scene scene;
  {
    auto deferred = scene.context->defer_cleanup();
    EXPECT_EQ(scene.taken(), Log{"defer"});
    EXPECT_TRUE(scene.context->deallocations().is_disabled());
    scene.context->drop_event(*scene.context->create_event());
    deferred.own.end();
    EXPECT_FALSE(scene.context->deallocations().is_disabled());
    EXPECT_EQ(scene.taken(), Log{"event_create"});
  }
  EXPECT_EQ(scene.taken(), Log{"end defer"});
  EXPECT_EQ(scene.context->deallocations().size(), 1u);
}

TEST(Context, AsksTheDeviceForNoMemoryPastItsManager) {  // BASE-8
  Scene scene;

  const auto memory = scene.context->memalloc(64);
  EXPECT_FALSE(scene.context->memhostalloc(64, {}));
  EXPECT_FALSE(scene.context->memallocmanaged(64, AttachFlags::global));
  scene.context->reset();

  EXPECT_EQ(scene.taken(), (Log{"initialize", "memalloc 64 on 0", "memhostalloc 64 0", "reset"}));
}

TEST(Context, NeverResetsByItself) {  // RST-10
  Scene scene;
  ASSERT_TRUE(scene.context->push());
  for (int i = 0; i < 20; ++i) scene.context->drop_event(*scene.context->create_event());
  EXPECT_FALSE(scene.context->memhostalloc(64, {}));  // which the manager refuses
  ASSERT_TRUE(scene.context->pop());

  const auto asked = scene.taken();
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "reset"), 0);
}

TEST(Context, KeepsItsQueueWhereMemoryIsOut) {  // DEV-6
  Scene scene;
  const auto context = *Context::create(scene.device, scene.clock, *find_manager("default"));
  context->drop_event(*context->create_event());
  scene.driver->answer(Call::mem_alloc, {2, 2});

  EXPECT_EQ(context->memalloc(64).error().code, Errc::out_of_memory);

  EXPECT_EQ(scene.driver->count(Call::event_destroy), 0u);
}

TEST(Context, SaysWhichCallFailedAndHow) {  // ERR-1
  Scene scene;
  const auto context = *Context::create(scene.device, scene.clock, *find_manager("default"));
  scene.driver->answer(Call::mem_alloc, {700});

  const auto memory = context->memalloc(64);

  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().native, 700);
  EXPECT_NE(
      describe(memory.error()).find("Call to cuMemAlloc results in CUDA_ERROR_ILLEGAL_ADDRESS"),
      std::string::npos)
      << describe(memory.error());
}

TEST(Context, ADeferralIsNoOtherContexts) {  // DFR-6
  Scene scene;
  Scene other;

  const auto deferred = scene.context->defer_cleanup();

  EXPECT_EQ(other.taken(), Log{});
  EXPECT_FALSE(other.context->deallocations().is_disabled());
}

TEST(Context, CloseResetsAndThenResetsTheDevice) {  // RST-11
  Scene scene;

  EXPECT_TRUE(scene.context->close());

  EXPECT_EQ(scene.taken(), (Log{"reset", "primary_ctx_reset"}));
}

TEST(Context, ItsEndFreesWhatItsQueueHolds) {  // ERR-3
  for (const auto profile : {Profile::standard, Profile::numba}) {
    Scene scene(profile);
    ASSERT_TRUE(scene.context->load_module({}));
    scene.context->drop_event(*scene.context->create_event());
    scene.taken();

    scene.context.reset();

    EXPECT_EQ(scene.taken(),
              profile == Profile::standard ? (Log{"event_destroy", "library_unload"}) : Log{});
  }
}

TEST(Context, IsFoundByTheIdentityOfItsDevice) {
  Scene scene;
  scene.driver->identity = {.pci_domain_id = 7, .pci_bus_id = 7, .pci_device_id = 7};

  EXPECT_EQ(Context::find(scene.driver->identity), scene.context.get());
  const auto identity = scene.driver->identity;
  scene.context.reset();
  EXPECT_EQ(Context::find(identity), nullptr);
}

TEST(Context, ServesManyThreads) {
  ManualClock clock;
  OpenedDevice device{.driver = std::make_unique<ScriptedDriver>(), .runtime = nullptr};
  auto& driver = static_cast<ScriptedDriver&>(*device.driver);
  auto context = *Context::create(device, clock, *find_manager("default"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        auto memory = context->memalloc(64);
        EXPECT_TRUE(memory);
        const auto deferred = context->defer_cleanup();
        context->drop_event(*context->create_event());
        context->unload_module(*context->load_module({}));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  context->reset();

  EXPECT_EQ(driver.alive(), 0u);
  EXPECT_EQ(driver.bad_frees(), 0u);
  EXPECT_EQ(driver.count(Call::event_destroy), 1200u);
  EXPECT_EQ(driver.count(Call::library_unload), 1200u);
}

}  // namespace
}  // namespace emm
