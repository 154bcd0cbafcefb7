#include <atomic>
#include <thread>
#include <utility>
#include <variant>

#include "base/prng.hpp"
#include "base/units.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

struct OwnStack {
  std::string manager;
  std::vector<std::string> adaptors;
};

class ManyThreads : public ::testing::TestWithParam<OwnStack> {
 protected:
  static constexpr int kThreads = 4;
  static constexpr int kSteps = 400;

  ManyThreads() {
    driver.total = 1_GiB;
    manager =
        *find_manager(GetParam().manager, GetParam().adaptors)
             ->make(
                 {.driver = &driver, .runtime = &runtime, .clock = &clock, .observer = &observer});
    EXPECT_TRUE(manager->initialize());
  }
  void expect_all_is_given_back() {
    EXPECT_TRUE(manager->flush());
    EXPECT_EQ(manager->state().live_bytes, 0u);
    EXPECT_EQ(manager->state().pending_count, 0u);
    manager.reset();
    EXPECT_EQ(driver.alive(), 0u);
    EXPECT_EQ(driver.bad_frees(), 0u);
    EXPECT_TRUE(observer.failures.empty());
  }

  ScriptedDriver driver;
  ScriptedRuntime runtime{driver};
  ManualClock clock;
  RecordingObserver observer;
  std::unique_ptr<MemoryManager> manager;
};

INSTANTIATE_TEST_SUITE_P(
    Managers, ManyThreads,
    ::testing::Values(OwnStack{"default", {}}, OwnStack{"default:profile=numba", {}},
                      OwnStack{"cudart", {}}, OwnStack{"pool:release_threshold=4MiB", {}},
                      OwnStack{"default", {"limiting:max=1GiB", "statistics", "tracking"}}),
    [](const auto& instance) { return "OwnStack" + std::to_string(instance.index); });

// Such a free may not wait (ERR-6), so it is made later.
TEST(AnotherThreadInTheDriver, FreesAreMadeByTheNextFlush) {
  for (const auto* name : {"pytorch", "rmm-binning"}) {
    SCOPED_TRACE(name);
    Rig rig(name);
    rig.driver.total = 1_GiB;
    EXPECT_TRUE(rig.manager->initialize());
    auto block = rig.memory(4_KiB);
    bool is_inside = false;
    rig.driver.during = [&](const ScriptedDriver::Entry&) {
      if (std::exchange(is_inside, true)) return;
      std::thread([&] { EXPECT_TRUE(block.free()); }).join();
    };
    const auto large = rig.memory(300_MiB);
    rig.driver.during = nullptr;

    EXPECT_TRUE(is_inside);
    EXPECT_TRUE(rig.manager->flush());
    EXPECT_EQ(rig.manager->state().live_bytes, large.size());
  }
}

TEST_P(ManyThreads, AllocateAndFreeEachOthersMemory) {
  std::mutex mutex;
  std::vector<MemoryPointer> shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Prng random(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < kSteps; ++i) {
        auto memory = manager->memalloc(random.log_uniform(1, 64_KiB), {random.below(3)});
        ASSERT_TRUE(memory);
        const auto mapped =
            manager->memhostalloc(random.below(4096) + 1, {.mapped = random.chance(0.5)});
        ASSERT_TRUE(mapped);
        MemoryPointer ended;
        {
          const std::lock_guard lock(mutex);
          shared.push_back(*std::move(memory));
          if (shared.size() > 20) {
            std::swap(shared[random.below(shared.size())], shared.back());
            ended = std::move(shared.back());
            shared.pop_back();
          }
        }
        EXPECT_TRUE(ended.free({random.below(3)}));
        if (i % 50 == 0) {
          const auto deferred = manager->defer_cleanup();
          EXPECT_TRUE(manager->flush());
        }
        if (i % 37 == 0) {
          EXPECT_TRUE(manager->flush());
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  shared.clear();
  expect_all_is_given_back();
}

TEST_P(ManyThreads, ResetWhileOthersAllocateAndFree) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Prng random(static_cast<std::uint64_t>(t) + 1);
      for (int i = 0; i < kSteps; ++i) {
        auto memory = manager->memalloc(random.log_uniform(1, 64_KiB), {random.below(3)});
        ASSERT_TRUE(memory);
        const auto mapped = manager->memhostalloc(64, {.mapped = true});
        ASSERT_TRUE(mapped);
        if (random.chance(0.5)) {
          const auto freed = memory->free();  // or a reset came first
          EXPECT_TRUE(freed || freed.error().code == Errc::dead_pointer);
        }
      }
    });
  }
  std::thread resetting([&] {
    while (!done) {
      manager->reset();
      const auto state = manager->state();
      EXPECT_TRUE(state.live_bytes);
      const auto counted = manager->statistics();
      EXPECT_LE(counted.allocated_bytes.current, counted.active_bytes.current);
      const auto map = manager->memory_map();
      for (const auto& segment : map ? map->segments : std::vector<MemoryMap::Segment>()) {
        std::uint64_t size = 0;
        for (const auto& block : segment.blocks) size += block.size;
        EXPECT_EQ(size, segment.size);
      }
    }
  });
  for (auto& thread : threads) thread.join();
  done = true;
  resetting.join();
  manager->reset();
  expect_all_is_given_back();
}

}  // namespace
}  // namespace emm::test
