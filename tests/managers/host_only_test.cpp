#include <variant>

#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

class HostOnly : public ::testing::TestWithParam<std::string> {
 protected:
  static bool numba() { return GetParam().find("numba") != std::string::npos; }
  Rig rig{GetParam()};
};

std::string name_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (auto& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

// Host memory is the same under each of them.
std::vector<std::string> host_only_specs() {
  std::vector<std::string> specs;
  for (const auto* entry : bundled_managers()) {
    if (entry->promise < Promise::host_only) continue;
    for (const auto& spec : judged_specs(*entry)) {
      specs.push_back(spec + (spec == entry->name ? ":" : ",") + "capacity=1000");
    }
  }
  return specs;
}
INSTANTIATE_TEST_SUITE_P(Managers, HostOnly, ::testing::ValuesIn(host_only_specs()), name_of);

TEST_P(HostOnly, PassesTheFlagsOfPageLockedMemoryOn) {  // HST-1
  for (unsigned bits = 0; bits < 8; ++bits) {
    const auto memory = rig.manager->memhostalloc(
        16, {.mapped = (bits & 2) != 0, .portable = (bits & 1) != 0, .wc = (bits & 4) != 0});
    ASSERT_TRUE(memory);
    EXPECT_EQ(rig.driver.last_host_flags, bits);
    EXPECT_EQ(std::holds_alternative<MappedMemory>(*memory), (bits & 2) != 0);  // HST-2
  }
}

TEST_P(HostOnly, MappedMemoryHasTwoAddresses) {  // HST-6
  const auto memory = rig.manager->memhostalloc(16, {.mapped = true});
  const auto& mapped = std::get<MappedMemory>(*memory);
  EXPECT_EQ(mapped.device_pointer().value,
            number_of(mapped.host_pointer()) + rig.driver.host_to_device);
  EXPECT_EQ(mapped.size(), 16u);
}

TEST_P(HostOnly, FreesOfPageLockedMemoryWait) {  // HST-5, HST-8
  ASSERT_TRUE(rig.manager->memhostalloc(64, {.mapped = true}));
  ASSERT_TRUE(rig.manager->memhostalloc(64, {}));

  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u);
  EXPECT_EQ(rig.manager->state().pending_count, 2u);
  EXPECT_EQ(rig.manager->state().pending_bytes, numba() ? 64u : 128u);
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST_P(HostOnly, MakesRoomForPageLockedMemory) {  // HST-3
  for (const auto mapped : {true, false}) {
    ASSERT_TRUE(rig.manager->memhostalloc(16, {.mapped = true}));
    rig.driver.answer(Call::mem_host_alloc, {2});

    const auto memory = rig.manager->memhostalloc(16, {.mapped = mapped});

    if (mapped || !numba()) {
      EXPECT_TRUE(memory);
      EXPECT_EQ(rig.manager->state().pending_count, 0u);
    } else {
      EXPECT_EQ(memory.error().code, Errc::out_of_memory);
      EXPECT_EQ(rig.manager->state().pending_count, 2u);
    }
  }
}

TEST_P(HostOnly, ReleasesWhatItCannotMap) {  // HST-7
  rig.driver.answer(Call::mem_host_get_device_pointer, {1});

  EXPECT_EQ(rig.manager->memhostalloc(16, {.mapped = true}).error().native, 1);

  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_EQ(rig.manager->state().pending_count, 0u);
}

TEST_P(HostOnly, PinsWhatItIsTold) {  // PIN-1, PIN-3
  const auto pinned = rig.manager->mempin(host_range(), {});
  EXPECT_EQ(rig.driver.last_register_flags, 0u);
  EXPECT_TRUE(std::holds_alternative<PinnedMemory>(*pinned));

  const auto mapped = rig.manager->mempin(host_range(0x30001000), {.mapped = true});
  EXPECT_EQ(rig.driver.last_register_flags, 2u);
  EXPECT_EQ(std::get<MappedMemory>(*mapped).device_pointer().value,
            0x30001000u + rig.driver.host_to_device);
}

TEST_P(HostOnly, UnpinsAtOnceEvenWhereCleanupIsDeferred) {  // PIN-5, DFR-7
  const auto deferred = rig.manager->defer_cleanup();
  for (const auto mapped : {false, true, false, true}) {
    ASSERT_TRUE(rig.manager->mempin(host_range(), {.mapped = mapped}))
        << "the same region can be pinned again";
    EXPECT_EQ(rig.driver.alive(), 0u);
  }
  EXPECT_EQ(rig.manager->state().pending_count, 0u);
}

TEST_P(HostOnly, PinningTwiceIsTheDriversError) {  // PIN-7
  const auto pinned = rig.manager->mempin(host_range(), {});
  EXPECT_EQ(rig.manager->mempin(host_range(), {}).error().code, Errc::already_registered);
  EXPECT_EQ(rig.driver.alive(), 1u);
}

TEST_P(HostOnly, UnpinsWhatItCannotMap) {  // PIN-8
  rig.driver.answer(Call::mem_host_get_device_pointer, {1});

  EXPECT_EQ(rig.manager->mempin(host_range(), {.mapped = true}).error().native, 1);

  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_EQ(rig.driver.bad_frees(), 0u);
}

TEST_P(HostOnly, MakesRoomForPinning) {  // PIN-2
  for (const auto mapped : {true, false}) {
    ASSERT_TRUE(rig.manager->memhostalloc(16, {.mapped = true}));
    rig.driver.answer(Call::mem_host_register, {2});
    const auto pinned = rig.manager->mempin(host_range(), {.mapped = mapped});
    EXPECT_EQ(pinned.has_value(), mapped || !numba());
  }
}

TEST_P(HostOnly, KeepsTheOwnerOfPinnedMemoryAlive) {  // PIN-4
  auto owner = std::make_shared<int>(1);
  std::weak_ptr<int> watched = owner;
  {
    const auto pinned = rig.manager->mempin(host_range(), {.mapped = true}, std::move(owner));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST_P(HostOnly, CountsAnUnpinningThatFails) {
  {
    const auto pinned = rig.manager->mempin(host_range(), {});
    rig.driver.answer(Call::mem_host_unregister, {700});
  }
  EXPECT_EQ(rig.observer.failures, std::vector<int>{700});
}

TEST_P(HostOnly, ManagedMemoryIsFreedThroughTheQueue) {  // MAN-1 to MAN-4
  {
    const auto memory = rig.manager->memallocmanaged(100, AttachFlags::host);
    ASSERT_TRUE(memory);
    EXPECT_EQ(rig.driver.last_attach, AttachFlags::host);
    EXPECT_EQ(memory->size(), 100u);
    EXPECT_EQ(rig.manager->state().live_bytes, 100u);
  }
  EXPECT_EQ(rig.manager->state().pending_bytes, 100u);
  rig.driver.answer(Call::mem_alloc_managed, {2});
  EXPECT_TRUE(rig.manager->memallocmanaged(100, AttachFlags::global));
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{1, 100}}));
}

TEST_P(HostOnly, ResetEndsWhatItRecordsInOrder) {  // RST-2, RST-5, RST-7
  auto mapped = *rig.manager->memhostalloc(16, {.mapped = true});
  auto pinned = *rig.manager->memhostalloc(16, {});
  auto registered = *rig.manager->mempin(host_range(), {});
  auto managed = *rig.manager->memallocmanaged(16, AttachFlags::global);
  rig.taken();

  rig.manager->reset();

  const auto mapped_at = number_of(std::get<MappedMemory>(mapped).host_pointer());
  const auto pinned_at = number_of(std::get<PinnedMemory>(pinned).host_pointer());
  Rig::Calls expected{{Call::mem_free_host, mapped_at}};
  if (!numba()) {
    expected = {{Call::mem_host_unregister, 0x30000000},
                {Call::mem_free_host, mapped_at},
                {Call::mem_free_host, pinned_at}};
  }
  expected.push_back({Call::mem_free, managed.device_pointer().value});
  EXPECT_EQ(rig.taken(), expected);
  EXPECT_FALSE(std::get<MappedMemory>(mapped).alive());
  EXPECT_FALSE(managed.alive());
  EXPECT_EQ(std::get<PinnedMemory>(pinned).alive(), numba()) << "numba keeps no record of it";
  EXPECT_EQ(std::get<PinnedMemory>(registered).alive(), numba());
}

TEST_P(HostOnly, AFinalizerAfterResetFreesNothingASecondTime) {  // RST-6, RST-7
  {
    const auto mapped = rig.manager->memhostalloc(16, {.mapped = true});
    const auto pinned = rig.manager->memhostalloc(16, {});
    const auto registered = rig.manager->mempin(host_range(), {.mapped = true});
    rig.manager->reset();
    rig.manager->reset();
  }
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_EQ(rig.driver.bad_frees(), 0u);
}

TEST_P(HostOnly, ResetMayComeFirstAndAgain) {  // RST-3
  rig.manager->reset();
  rig.manager->reset();
  EXPECT_TRUE(rig.manager->initialize());
  EXPECT_TRUE(rig.manager->memhostalloc(16, {}));
}

TEST_P(HostOnly, ResetInsideDeferralQueuesAndFreesLater) {  // RST-8, DFR-7
  const auto memory = rig.manager->memhostalloc(16, {.mapped = true});
  {
    const auto deferred = rig.manager->defer_cleanup();
    rig.manager->reset();
    EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u);
    EXPECT_EQ(rig.manager->state().pending_count, 1u);
  }
  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u)
      << "the end of the guard flushes nothing (PD-14)";
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST_P(HostOnly, DeferralNests) {  // DFR-2, DFR-3, DFR-8
  auto outer = rig.manager->defer_cleanup();
  {
    const auto inner = rig.manager->defer_cleanup();
    for (int i = 0; i < 15; ++i) ASSERT_TRUE(rig.manager->memhostalloc(16, {.mapped = true}));
  }
  ASSERT_TRUE(rig.manager->memhostalloc(16, {.mapped = true}));
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.manager->state().pending_count, 16u);
  outer.end();
  ASSERT_TRUE(rig.manager->memhostalloc(16, {.mapped = true}));
  EXPECT_EQ(rig.manager->state().pending_count, 0u);
}

TEST_P(HostOnly, MemoryMayEndAfterItsManager) {  // ERR-4
  {
    const auto memory = rig.manager->memhostalloc(16, {.mapped = true});
    const auto managed = rig.manager->memallocmanaged(16, AttachFlags::global);
    rig.manager.reset();
    rig.driver.forget_calls();
  }
  EXPECT_EQ(rig.driver.calls(), Rig::Calls{});
  EXPECT_EQ(rig.driver.bad_frees(), 0u);
}

TEST(HostOnlyManager, DeclinesDeviceMemory) {
  Rig rig("host-only");
  EXPECT_EQ(rig.manager->memalloc(16).error().code, Errc::not_supported);
  EXPECT_EQ(rig.manager->get_ipc_handle({{0x1000}, 16}).error().code, Errc::not_supported);
  EXPECT_EQ(*rig.manager->get_memory_info(), (MemoryInfo{.free = 1000, .total = 1000}));
}

TEST(HostOnlyManager, KnowsItsCapacityOnceInitialized) {  // INI-5, HST-9
  for (const auto* entry : bundled_managers()) {
    if (entry->promise < Promise::host_only) continue;
    Rig rig{std::string(entry->name)};
    EXPECT_TRUE(rig.manager->initialize());
    EXPECT_TRUE(rig.manager->initialize());
    EXPECT_EQ(rig.driver.count(Call::mem_get_info), 1u);
    ASSERT_TRUE(rig.manager->memhostalloc(200, {.mapped = true}));
    EXPECT_EQ(rig.manager->state().pending_count, 1u);
  }
}

TEST(HostOnlyManager, AsNumbaHasNoCapacityAndFreesSizedItemsEagerly) {  // INI-5, HST-9
  Rig rig("host-only:profile=numba");
  EXPECT_TRUE(rig.manager->initialize());
  EXPECT_EQ(rig.driver.count(Call::mem_get_info), 0u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(rig.manager->memhostalloc(16, {}));
  EXPECT_EQ(rig.manager->state().pending_count, 3u);

  ASSERT_TRUE(rig.manager->memhostalloc(1, {.mapped = true}));

  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{4, 1}}));
}

TEST(HostOnlyManager, AddressesOfHostAndDeviceDoNotMix) {
  Rig rig("default");
  rig.driver.host_to_device = 0;
  rig.driver.always_gives = DevicePtr{0x20010000};  // the first that the host gets, too
  const auto host = rig.manager->memhostalloc(16, {.mapped = true});
  EXPECT_TRUE(rig.manager->memallocmanaged(16, AttachFlags::global));
}

}  // namespace
}  // namespace emm::test
