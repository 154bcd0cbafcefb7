#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

class Default : public ::testing::TestWithParam<const char*> {
 protected:
  static bool numba() { return std::string(GetParam()).find("numba") != std::string::npos; }
  Rig rig{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Profiles, Default, ::testing::Values("default", "default:profile=numba"),
                         [](const auto& instance) {
                           return std::string(instance.param).find("numba") == std::string::npos
                                      ? "standard"
                                      : "numba";
                         });

TEST_P(Default, AsksForTheCapacityOnce) {  // INI-2, INI-3
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(rig.manager->initialize());
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_get_info, 0}}));
}

TEST_P(Default, ACapacityOfZeroIsUnsetOnlyForNumba) {  // INI-4
  rig.driver.total = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(rig.manager->initialize());
  EXPECT_EQ(rig.driver.count(Call::mem_get_info), numba() ? 3u : 1u);
}

TEST_P(Default, SaysWhereItCannotLearnTheCapacity) {
  rig.driver.answer(Call::mem_get_info, {700});
  EXPECT_EQ(rig.manager->initialize().error().native, 700);
  EXPECT_TRUE(rig.manager->initialize());
}

TEST_P(Default, GivesExactlyWhatWasAskedFor) {  // DEV-1, DEV-10
  const auto memory = rig.memory(12345);
  EXPECT_EQ(memory.size(), 12345u);
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 12345}}));
}

TEST_P(Default, ASizeOfZeroIsTheDriversToRefuse) {  // DEV-2
  EXPECT_EQ(rig.manager->memalloc(0).error().native, 1);
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 0}}));
}

TEST_P(Default, AFreeWaits) {  // DEV-9
  ASSERT_TRUE(rig.manager->initialize());
  { const auto memory = rig.memory(100); }
  EXPECT_EQ(rig.driver.count(Call::mem_free), 0u);
  EXPECT_EQ(rig.manager->state().live_bytes, 0u);
  EXPECT_EQ(rig.manager->state().pending_count, 1u);
  EXPECT_EQ(rig.manager->state().pending_bytes, 100u);
  EXPECT_EQ(rig.manager->state().reserved_bytes, 100u);
}

TEST_P(Default, FreesWhatIsPendingWhereMemoryRunsOut) {  // DEV-3
  ASSERT_TRUE(rig.manager->initialize());
  const auto first = rig.memory(10).device_pointer().value;
  const auto second = rig.memory(20).device_pointer().value;
  rig.taken();
  rig.driver.answer(Call::mem_alloc, {2});

  const auto memory = rig.memory(30);

  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 30},
                                     {Call::mem_free, first},
                                     {Call::mem_free, second},
                                     {Call::mem_alloc, 30}}));
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{2, 30}}));
}

TEST_P(Default, TriesTwiceAndNotMore) {  // DEV-3
  ASSERT_TRUE(rig.manager->initialize());
  { const auto memory = rig.memory(10); }
  rig.driver.answer(Call::mem_alloc, {2, 2});

  EXPECT_EQ(rig.manager->memalloc(30).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 3u);
  EXPECT_EQ(rig.manager->state().pending_count, 0u);
}

TEST_P(Default, AnyOtherFailureIsFinal) {  // DEV-4
  ASSERT_TRUE(rig.manager->initialize());
  { const auto memory = rig.memory(10); }
  rig.driver.answer(Call::mem_alloc, {1});

  EXPECT_EQ(rig.manager->memalloc(30).error().native, 1);
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 2u);
  EXPECT_EQ(rig.manager->state().pending_count, 1u);
}

TEST_P(Default, RetriesWithoutFreeingWhereCleanupIsDeferred) {  // DEV-5
  ASSERT_TRUE(rig.manager->initialize());
  const auto deferred = rig.manager->defer_cleanup();
  { const auto memory = rig.memory(10); }
  rig.driver.answer(Call::mem_alloc, {2, 2});

  EXPECT_FALSE(rig.manager->memalloc(30));
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 3u);
  EXPECT_EQ(rig.driver.count(Call::mem_free), 0u);
}

TEST_P(Default, AFreeThatFailsInTheFlushDoesNotStopTheRetry) {  // DEV-7
  ASSERT_TRUE(rig.manager->initialize());
  { const auto memory = rig.memory(10); }
  rig.driver.answer(Call::mem_alloc, {2});
  rig.driver.answer(Call::mem_free, {700});

  const auto memory = rig.manager->memalloc(30);

  EXPECT_EQ(rig.observer.failures, std::vector<int>{700});
  EXPECT_EQ(memory.has_value(), !numba());
  if (numba()) {
    EXPECT_EQ(memory.error().native, 700);
  }
}

TEST_P(Default, AnAddressGivenTwiceIsReported) {  // BASE-10
  rig.driver.always_gives = DevicePtr{0x7000};
  const auto first = rig.memory(16);
  const auto second = rig.manager->memalloc(16);
  EXPECT_EQ(describe(second.error()), "key already in dictionary: 0x7000");
  EXPECT_EQ(rig.manager->state().live_bytes, 16u);
}

TEST_P(Default, ResetFreesPendingThenLiveInOrderOfAllocation) {  // RST-2
  ASSERT_TRUE(rig.manager->initialize());
  const auto a = rig.memory(10);
  const auto b = rig.memory(20).device_pointer().value;
  const auto c = rig.memory(30);
  rig.taken();

  rig.manager->reset();

  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_free, b},
                                     {Call::mem_free, a.device_pointer().value},
                                     {Call::mem_free, c.device_pointer().value}}));
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{3, 60}}));
}

TEST_P(Default, ResetOfManyFlushesWhereTheQueueIsFullAndThenTheRest) {  // RST-2, PD-2
  ASSERT_TRUE(rig.manager->initialize());
  std::vector<MemoryPointer> memory;
  for (std::uint64_t i = 0; i < 25; ++i) memory.push_back(rig.memory(i == 20 ? 201 : 1));

  rig.manager->reset();

  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{11, 11}, {10, 210}, {4, 4}}));
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST_P(Default, MemoryInfoIsTheDevices) {  // INF-1, INF-2
  EXPECT_EQ(*rig.manager->get_memory_info(), (MemoryInfo{.free = 1000, .total = 1000}));
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_get_info, 0}}));
}

TEST_P(Default, ItsEndFreesWhatIsLeft) {  // ERR-3
  ASSERT_TRUE(rig.manager->initialize());
  const auto live = rig.memory(16);
  { const auto pending = rig.memory(16); }

  rig.manager.reset();

  EXPECT_EQ(rig.driver.alive(), numba() ? 2u : 0u) << "numba abandons it to the driver";
  EXPECT_FALSE(live.alive());
}

TEST(DefaultManager, TakesItsLimitsFromOptions) {
  Rig rig("default:count=2,ratio=0.5,capacity=100");
  EXPECT_TRUE(rig.manager->initialize());
  EXPECT_EQ(rig.driver.count(Call::mem_get_info), 0u);
  { const auto memory = rig.memory(50); }
  EXPECT_EQ(rig.manager->state().pending_count, 1u);
  { const auto memory = rig.memory(1); }
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{2, 51}}));
  for (int i = 0; i < 3; ++i) rig.memory(1);
  EXPECT_EQ(rig.observer.flushes.back(), (RecordingObserver::Flush{3, 3}));
}

}  // namespace
}  // namespace emm::test
