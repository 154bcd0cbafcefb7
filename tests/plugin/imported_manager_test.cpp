#include "plugin/imported_manager.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "driver/call.hpp"
#include "driver/device_entry.hpp"
#include "emm/context.hpp"

namespace emm::plugin {
namespace {

const std::string kPlugins = PLUGINS;

/// The library's counters, in tests/plugins/foreign.c.
struct Calls {
  std::uint64_t allocs, frees, bytes, inits, resets;
  int device;
  void* stream;
};
Calls& foreign_calls() {
  void* library = dlopen((kPlugins + "foreign.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return *static_cast<Calls*>(dlsym(library, "foreign_calls"));
}

struct Observer final : ManagerObserver {
  void free_failed(const Error& error) noexcept override { failed.push_back(describe(error)); }
  void call_failed(const Error& error) noexcept override { calls.push_back(describe(error)); }
  std::vector<std::string> failed, calls;
};

/// A context on a simulated device with a manager of a shared object.
struct Rig {
  explicit Rig(const std::string& spec, const std::string& of = "sim:capacity=64MiB") {
    platform = *open_platform(of, {});
    device = *platform->open(0);
    auto factory = find_manager(spec);
    EXPECT_TRUE(factory) << describe(factory.error());
    auto made = Context::create(device, platform->clock(), *factory, &observer);
    EXPECT_TRUE(made) << describe(made.error());
    context = *std::move(made);
  }
  MemoryManager& manager() { return context->memory_manager(); }

  std::unique_ptr<Platform> platform;
  OpenedDevice device;
  Observer observer;
  std::unique_ptr<Context> context;
};

std::string hostile(const std::string& how) { return kPlugins + "hostile.so:" + how; }

class Example : public testing::TestWithParam<const char*> {
 protected:
  Rig rig{kPlugins + GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Plugins, Example, testing::Values("example_c.so", "example_cpp.so"),
                         [](const auto& param) {
                           const std::string file = param.param;
                           return file.substr(0, file.find('.'));
                         });

TEST_P(Example, GivesMemoryOfTheSimulatedDevice) {
  const auto held = rig.device.driver->held_bytes();

  auto memory = rig.context->memalloc(1 << 20);

  ASSERT_TRUE(memory) << describe(memory.error());
  EXPECT_GT(rig.device.driver->held_bytes(), held);
  EXPECT_TRUE(rig.device.driver->memset_d8(memory->device_pointer(), 7, 1 << 20));
  EXPECT_TRUE(memory->free());
}

TEST_P(Example, AnswersOutOfMemoryAndServesTheNextRequest) {
  EXPECT_EQ(rig.context->memalloc(1 << 30).error().code, Errc::out_of_memory);
  EXPECT_TRUE(rig.context->memalloc(1 << 20));
}

TEST_P(Example, ResetEndsWhatIsAliveAndLateFinalizersDoNothing) {
  auto memory = *rig.context->memalloc(4096);
  rig.context->reset();

  EXPECT_FALSE(memory.alive());
  EXPECT_EQ(memory.free().error().code, Errc::dead_pointer);
  EXPECT_TRUE(rig.context->memalloc(4096));
  EXPECT_TRUE(rig.observer.failed.empty());
}

TEST_P(Example, GivesEverythingBackAtItsEnd) {
  const auto held = rig.device.driver->held_bytes();
  auto memory = *rig.context->memalloc(4096);
  ASSERT_TRUE(rig.context->memalloc(8192)->free());
  ASSERT_TRUE(memory.free());

  rig.context.reset();

  EXPECT_EQ(rig.device.driver->held_bytes(), held);
}

TEST_P(Example, DeclinesWhatItDoesNotOffer) {
  EXPECT_EQ(rig.context->memhostalloc(64, {}).error().code, Errc::not_supported);
  EXPECT_EQ(rig.context->memallocmanaged(64, AttachFlags::global).error().code,
            Errc::not_supported);
  EXPECT_EQ(rig.context->get_ipc_handle({}).error().code, Errc::not_supported);
  EXPECT_EQ(rig.manager().interface_version(), kInterfaceVersion);
  EXPECT_TRUE(rig.manager().flush());
  EXPECT_TRUE(rig.manager().trim(0));
  EXPECT_FALSE(rig.manager().state().live_bytes);
  EXPECT_EQ(rig.manager().report(), "");
}

TEST_P(Example, ServesSeveralThreads) {
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        auto memory = rig.context->memalloc(4096);
        if (memory && memory->free()) ++served;
      }
    });
  }
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(served, 200);
}

TEST(ImportedManager, AnExceptionIsAnErrorOfTheCall) {
  Rig rig(hostile("memalloc=throws"));
  const auto first = rig.context->memalloc(64);

  EXPECT_EQ(describe(rig.context->memalloc(64).error()),
            kPlugins + "hostile.so: an exception came out of memalloc: expected a status");
}

TEST(ImportedManager, AnExceptionOfTheFinalizerGoesToTheObserver) {
  Rig rig(hostile("free=throws"));

  EXPECT_TRUE(rig.context->memalloc(64)->free());

  EXPECT_EQ(rig.observer.failed,
            std::vector{kPlugins + "hostile.so: an exception came out of free: expected a status"});
}

TEST(ImportedManager, AFreeThatIsRefusedGoesToTheObserver) {
  Rig rig(hostile("free=refuses"));

  EXPECT_TRUE(rig.context->memalloc(64)->free());

  EXPECT_EQ(rig.observer.failed,
            std::vector<std::string>{"[1] Call to free results in CUDA_ERROR_INVALID_VALUE"});
}

TEST(ImportedManager, ExceptionsOfSlotsWithoutAnAnswerAreSurvived) {
  for (const auto* slot :
       {"defer_cleanup", "end_defer_cleanup", "destroy", "interface_version", "report"}) {
    Rig rig(hostile(std::string(slot) + "=throws"));
    const auto guard = rig.context->defer_cleanup();
    EXPECT_EQ(rig.manager().interface_version() == 1,
              std::string_view(slot) != "interface_version");
    EXPECT_NE(rig.manager().report(), "");
  }
}

TEST(ImportedManager, WhatGoesWrongWithoutAnAnswerGoesToTheObserver) {
  for (const auto* slot : {"defer_cleanup", "end_defer_cleanup", "interface_version", "report"}) {
    Rig rig(hostile(std::string(slot) + "=throws"));
    { const auto guard = rig.context->defer_cleanup(); }
    static_cast<void>(rig.manager().interface_version());
    static_cast<void>(rig.manager().report());

    ASSERT_FALSE(rig.observer.calls.empty()) << slot;
    EXPECT_EQ(rig.observer.calls.back(),
              kPlugins + "hostile.so: an exception came out of " + slot + ": expected a status");
  }
  Rig ends(hostile("destroy=throws"));
  ends.context.reset();
  EXPECT_EQ(ends.observer.calls.size(), 1u);
}

TEST(ImportedManager, AnAnswerPastItsEndGoesToTheObserver) {
  Rig state(hostile("state=beyond"));
  EXPECT_EQ(state.manager().state().live_bytes, std::nullopt);
  EXPECT_EQ(state.observer.calls,
            std::vector{kPlugins + "hostile.so: state wrote outside the 48 bytes of its answer"});

  Rig statistics(hostile("statistics=beyond"));
  static_cast<void>(statistics.manager().statistics());
  EXPECT_EQ(statistics.observer.calls,
            std::vector{kPlugins +
                        "hostile.so: statistics wrote more than the numbers it was asked for"});
}

TEST(ImportedManager, TakesTheStatisticsWhoseNamesItKnows) {
  for (const auto& [how, ooms] : {std::pair("counts", std::optional<std::uint64_t>(3)),
                                  {"many", 3},
                                  {"throws", std::nullopt},
                                  {"beyond", std::nullopt}}) {
    SCOPED_TRACE(how);
    Rig rig(hostile(std::string("statistics=") + how));

    const auto known = rig.manager().statistics();

    EXPECT_EQ(known.num_ooms, ooms);
    EXPECT_EQ(torch_statistics(known).size(), ooms ? 1u : 0u);
  }
}

TEST(ImportedManager, AStatusThatNobodyKnowsIsAnError) {
  for (const auto& [how, native] : {std::pair("status", 12345), {"minus", -1}}) {
    Rig rig(hostile(std::string("memalloc=") + how));
    const auto first = rig.context->memalloc(64);

    const auto second = rig.context->memalloc(64);

    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Errc::driver_error);
    EXPECT_EQ(second.error().native, native);
  }
}

TEST(ImportedManager, SuccessWithoutAnAddressIsAnError) {
  Rig rig(hostile("memalloc=nothing"));
  const auto first = rig.context->memalloc(64);
  std::byte page[64];

  EXPECT_EQ(rig.context->memalloc(64).error().code, Errc::driver_error);
  EXPECT_EQ(rig.context->memhostalloc(64, {}).error().code, Errc::driver_error);
  EXPECT_EQ(rig.context->memallocmanaged(64, AttachFlags::global).error().code, Errc::driver_error);
  EXPECT_EQ(rig.context->mempin({.pointer = page, .size = 64}, {.mapped = true}).error().code,
            Errc::driver_error);
  EXPECT_TRUE(rig.context->mempin({.pointer = page, .size = 64}, {}))
      << "pinned memory has no device address";
}

TEST(ImportedManager, AnAnswerWrittenPastItsEndIsAnError) {
  for (const auto* how : {"beyond", "resizes"}) {
    Rig rig(hostile(std::string("memalloc=") + how));
    const auto first = rig.context->memalloc(64);

    EXPECT_EQ(describe(rig.context->memalloc(64).error()),
              kPlugins + "hostile.so: memalloc wrote outside the 32 bytes of its answer");
  }
}

TEST(ImportedManager, CreateMustGiveAManager) {
  EXPECT_EQ(describe(find_manager(hostile("create=null")).error()),
            kPlugins + "hostile.so: create answered success without a manager");
  EXPECT_EQ(find_manager(hostile("create=fails")).error().code, Errc::out_of_memory);
  EXPECT_EQ(find_manager(hostile("create=refuses")).error().code, Errc::usage)
      << "it is asked about its options";
}

TEST(FindPlugin, SaysWhyItTookNone) {
  const auto reason = [](const std::string& file) {
    return describe(find_plugin(kPlugins + file).error());
  };

  EXPECT_EQ(reason("nowhere.so"), kPlugins + "nowhere.so: not found");
  EXPECT_EQ(reason("foreign.so"), kPlugins + "foreign.so: it has no function emm_plugin_v1");
  EXPECT_EQ(reason("no_table.so"), kPlugins + "no_table.so: emm_plugin_v1() gives no table");
  EXPECT_EQ(reason("next_version.so"),
            kPlugins + "next_version.so: its table has version 2: expected 1");
  EXPECT_EQ(reason("short_table.so"),
            kPlugins + "short_table.so: its table has 16 bytes: expected at least 88");
  EXPECT_EQ(reason("no_memalloc.so"), kPlugins + "no_memalloc.so: its table has no memalloc");
  EXPECT_EQ(reason("half_deferring.so"),
            kPlugins +
                "half_deferring.so: its table has only one of defer_cleanup and end_defer_cleanup");
  EXPECT_NE(reason("no_library.so").find("no_library.so"), std::string::npos);
}

TEST(FindPlugin, TakesTheLastColonAsTheBeginningOfTheOptions) {
  EXPECT_TRUE(find_plugin(kPlugins + "example_c.so"));
  EXPECT_TRUE(find_plugin(kPlugins + "example_c.so:"));
  EXPECT_EQ(describe(find_plugin(kPlugins + "a:b/example_c.so:").error()),
            kPlugins + "a:b/example_c.so: not found");
  EXPECT_EQ(find_manager(kPlugins + "example_c.so:size=1").error().code, Errc::usage);
}

TEST(TorchFunctions, AreCalledAsPyTorchCallsThem) {
  auto& calls = foreign_calls();
  calls = {};
  Rig rig(
      "torch:" + kPlugins + "foreign.so,torch_alloc,torch_free,init=torch_init,reset=torch_reset",
      "sim:devices=2");

  auto memory = *rig.context->memalloc(1000, {77});
  EXPECT_EQ(calls.allocs, 1u);
  EXPECT_EQ(calls.bytes, 1000u);
  EXPECT_EQ(calls.stream, reinterpret_cast<void*>(77));
  EXPECT_EQ(calls.inits, 1u) << "a count of devices that ends with this one";
  EXPECT_TRUE(memory.free({77}));
  EXPECT_EQ(calls.bytes, 0u) << "the size comes back with the free";
  EXPECT_TRUE(rig.manager().trim(0));
  EXPECT_EQ(calls.resets, 1u);
}

TEST(TorchFunctions, NullIsOutOfMemory) {
  Rig rig("torch:" + kPlugins + "foreign.so,torch_alloc,torch_free");

  EXPECT_EQ(rig.context->memalloc(std::uint64_t{1} << 41).error().code, Errc::out_of_memory);
  const auto nothing = rig.context->memalloc(0);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->is_managed());
}

TEST(TorchFunctions, ResetAndTheEndFreeWhatIsAlive) {
  auto& calls = foreign_calls();
  calls = {};
  Rig rig("torch:" + kPlugins + "foreign.so,torch_alloc,torch_free");
  const auto first = rig.context->memalloc(100);
  const auto second = rig.context->memalloc(200);

  rig.context->reset();
  EXPECT_EQ(calls.frees, 2u);
  const auto third = rig.context->memalloc(300);
  rig.context.reset();
  EXPECT_EQ(calls.frees, 3u);
  EXPECT_EQ(calls.bytes, 0u);
}

TEST(TorchFunctions, DeclineWhatTheyCannotDo) {
  Rig rig("torch:" + kPlugins + "foreign.so,torch_alloc,torch_free");
  const auto memory = rig.context->memalloc(100);

  EXPECT_EQ(rig.context->memhostalloc(64, {}).error().code, Errc::not_supported);
  EXPECT_EQ(rig.context->mempin({}, {}).error().code, Errc::not_supported);
  EXPECT_EQ(rig.context->memallocmanaged(64, AttachFlags::global).error().code,
            Errc::not_supported);
  EXPECT_EQ(rig.context->get_ipc_handle(*memory->view()).error().code, Errc::not_supported);
  EXPECT_EQ(rig.context->get_memory_info().error().code, Errc::not_supported);
}

TEST(CupyFunctions, AreCalledAsCupyCallsThem) {
  auto& calls = foreign_calls();
  calls = {};
  Rig rig("cupy:" + kPlugins + "foreign.so,cupy_malloc,cupy_free");

  EXPECT_TRUE(rig.context->memalloc(1000)->free());

  EXPECT_EQ(calls.allocs, 1u);
  EXPECT_EQ(calls.frees, 1u);
  EXPECT_EQ(calls.device, 0);
}

TEST(FunctionPairs, AreNamedInFull) {
  EXPECT_EQ(describe(find_plugin("torch:" + kPlugins + "foreign.so,nothing,torch_free").error()),
            kPlugins + "foreign.so: it has no function nothing");
  EXPECT_EQ(find_plugin("torch:x.so,alloc").error().code, Errc::usage);
  EXPECT_EQ(find_plugin("cupy:x.so,a,b,init=c").error().code, Errc::usage)
      << "CuPy has no such function";
  EXPECT_EQ(describe(find_plugin("cupy:nowhere.so,a,b").error()),
            "./nowhere.so: not found; nowhere.so: not found");
}

}  // namespace
}  // namespace emm::plugin
