// How memory passes between the pool's arenas: idle spans from stream to stream, and whole arenas
// of streams and threads that have ended.
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "base/units.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace emm::test {
namespace {

class PoolLending : public PoolOverVirtualMemory {
 protected:
  StreamHandle stream() { return *driver().stream_create(StreamKind::non_blocking); }
  std::uint64_t reserved() { return *manager->statistics().reserved_bytes.current; }
  void streams_without_end() {
    std::uint64_t most_reserved = 0;
    for (int each = 0; each < 10'000; ++each) {
      const auto on = stream();
      auto first = memory(1_MiB, on);
      auto second = memory(3_MiB, on);
      ASSERT_TRUE(first.free(on));
      ASSERT_TRUE(second.free(on));
      ASSERT_TRUE(driver().stream_destroy(on));
      most_reserved = std::max(most_reserved, reserved());
    }
    const auto statistics = manager->statistics();
    EXPECT_LE(most_reserved, 16 * 8_MiB) << "sixteen arenas of one span";
    EXPECT_LE(*statistics.metadata_bytes, 1_MiB) << "31 KB for each of sixteen arenas";
  }
  /// Work on the stream that the simulated device does not do before something waits for it.
  void work_on(const MemoryPointer& memory, StreamHandle on) {
    ASSERT_TRUE(driver().memset_d8_async(memory.device_pointer(), 1, memory.size(), on));
  }
};

TEST_F(PoolLending, StreamsWithoutEndTakeBoundedMemory) {
  for (const auto* spec : {"pool", "pool:backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    streams_without_end();
  }
}

TEST_F(PoolLending, ThreadsWithoutEndTakeBoundedMemory) {
  make("pool");
  for (int each = 0; each < 500; ++each) {
    std::thread([&] {
      ASSERT_TRUE(driver().ctx_push_current());
      const auto held = memory(3_MiB, kPerThreadStream);
    }).join();
  }
  EXPECT_LE(reserved(), 16 * 8_MiB);
  EXPECT_LE(*manager->statistics().metadata_bytes, 1_MiB);
}

TEST_F(PoolLending, AnArenaWhoseStreamIsBusyIsNotPassedOn) {
  make("pool");
  std::vector<MemoryPointer> held;
  for (int each = 0; each < 16; ++each) held.push_back(memory(8_MiB, stream()));
  const auto busy = stream();
  auto used = memory(1_MiB, busy);
  const auto place = used.device_pointer();
  work_on(used, busy);
  ASSERT_TRUE(used.free(busy));

  EXPECT_NE(memory(1_MiB, stream()).device_pointer(), place);
  ASSERT_TRUE(driver().ctx_synchronize());
  const auto before = reserved();
  EXPECT_EQ(memory(1_MiB, stream()).device_pointer(), place) << "the work is done now";
  EXPECT_EQ(reserved(), before);
}

TEST_F(PoolLending, AStreamWhoseArenaWasPassedOnGetsAnother) {
  make("pool");
  std::vector<StreamHandle> streams;
  std::vector<MemoryPointer> held;
  for (int each = 0; each < 40; ++each) streams.push_back(stream());
  for (int round = 0; round < 3; ++round) {
    for (const auto on : streams) {
      auto used = memory(1_MiB, on);
      ASSERT_TRUE(used.free(on));
    }
  }
  for (const auto on : streams) held.push_back(memory(1_MiB, on));
  std::vector<std::uint64_t> addresses;
  for (const auto& each : held) addresses.push_back(each.device_pointer().value);
  std::sort(addresses.begin(), addresses.end());
  EXPECT_EQ(std::adjacent_find(addresses.begin(), addresses.end(),
                               [](auto a, auto b) { return b < a + 1_MiB; }),
            addresses.end());
  EXPECT_EQ(manager->statistics().allocation.current, streams.size());
}

TEST_F(PoolLending, ANewStreamTakesWhatAnotherHasLeft) {
  make("pool:lend=true");
  const auto one = stream(), two = stream();
  const auto small = memory(512, two);
  auto large = memory(200_MiB, one);
  ASSERT_TRUE(large.free(one));
  const auto before = reserved();

  const auto again = memory(200_MiB, two);
  EXPECT_EQ(reserved(), before);
  fill(again, 7);
  expect_filled(again, 7);
  EXPECT_EQ(hook.failed.size(), 0u);
}

TEST_F(PoolLending, MemoryThatAStreamMayStillUseStaysThere) {
  make("pool:lend=true");
  const auto one = stream(), two = stream();
  const auto small = memory(512, two);
  auto large = memory(64_MiB, one);
  work_on(large, one);
  ASSERT_TRUE(large.free(one));
  const auto before = reserved();

  auto other = memory(64_MiB, two);
  EXPECT_GT(reserved(), before) << "the work on the first stream is not done";
}

TEST_F(PoolLending, AStreamWaitsForAnotherBeforeThePoolHoldsATenthMoreThanEachNeeds) {
  make("pool:lend=true,initial=200MiB");
  const auto two = stream();
  const auto small = memory(512, two);
  auto large = memory(100_MiB);
  work_on(large, {});
  ASSERT_TRUE(large.free());
  const auto before = reserved();

  const auto again = memory(64_MiB, two);
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(*manager->statistics().stream_waits, 1u);
  work_on(again, two);
  ASSERT_TRUE(driver().ctx_synchronize());
}

TEST_F(PoolLending, AFreeThatNamesNoStreamLendsNothing) {
  make("pool:lend=true");
  const auto one = stream(), two = stream();
  const auto small = memory(512, two);
  ASSERT_TRUE(memory(64_MiB, one).free());
  ASSERT_TRUE(driver().stream_destroy(one));
  const auto recorded = hook.of_streams;

  auto other = memory(64_MiB, two);
  EXPECT_EQ(hook.of_streams, recorded) << "the stream may have ended: nothing is asked of it";
}

TEST_F(PoolLending, LentMemoryGoesBackToTheDriver) {
  make("pool:lend=true");
  const auto one = stream(), two = stream();
  {
    const auto small = memory(512, two);
    auto large = memory(200_MiB, one);
    ASSERT_TRUE(large.free(one));
    const auto again = memory(200_MiB, two);
    const auto map = *manager->memory_map();
    std::uint64_t in_segments = 0;
    for (const auto& segment : map.segments) in_segments += segment.size;
    EXPECT_EQ(in_segments, reserved());
  }
  ASSERT_TRUE(manager->trim(0));
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(driver().held_bytes(), 0u);
  const auto anew = memory(300_MiB, one);
  manager.reset();
  EXPECT_EQ(driver().held_bytes(), 0u);
  EXPECT_TRUE(hook.failed.empty());
}

// Requests whose sizes never repeat, on four streams: what they hold together changes little, what
// each holds changes much.
TEST_F(PoolLending, BusyStreamsShareWhatTheyDoNotNeedAtOnce) {
  make("pool:lend=true");
  struct Held {
    MemoryPointer memory;
    StreamHandle on;
  };
  const std::vector<StreamHandle> streams{stream(), stream(), stream(), stream()};
  std::vector<Held> held;
  std::uint64_t live = 0, most_live = 0, most_reserved = 0;
  Prng random(1);
  for (int step = 0; step < 8'000; ++step) {
    // Each stream has a time of its own when it holds most.
    const auto on =
        streams[random.chance(0.7) ? static_cast<std::size_t>(step / 500 % 4) : random.below(4)];
    const bool is_full = live > 100_MiB;
    if (!is_full && random.chance(0.55)) {
      held.push_back({memory(random.log_uniform(64_KiB, 8_MiB), on), on});
      live += held.back().memory.size();
    } else if (!held.empty()) {
      std::swap(held[random.below(held.size())], held.back());
      live -= held.back().memory.size();
      ASSERT_TRUE(held.back().memory.free(held.back().on));
      held.pop_back();
    }
    most_live = std::max(most_live, live);
    most_reserved = std::max(most_reserved, reserved());
  }
  EXPECT_LE(most_reserved, most_live * 9 / 5) << "2.66 times where nothing is lent";
  EXPECT_TRUE(hook.failed.empty());
  held.clear();
}

}  // namespace
}  // namespace emm::test
