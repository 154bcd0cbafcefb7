// The pool over virtual memory under many threads: what threads_test.cpp asks of all managers, with
// memory that is stitched, refused and released meanwhile.
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace emm::test {
namespace {

struct Piece {
  MemoryPointer memory;
  std::uint8_t fill = 0;
};

class PoolThreads : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kThreads = 4;
  static constexpr int kSteps = 400;

  PoolThreads() {
    manager =
        *find_manager(GetParam())
             ->make(
                 {.driver = device.driver.get(), .runtime = nullptr, .clock = &platform->clock()});
    EXPECT_TRUE(manager->initialize());
    streams = {StreamHandle{}, *driver().stream_create(StreamKind::non_blocking),
               *driver().stream_create(StreamKind::blocking)};
  }
  Driver& driver() { return *device.driver; }

  bool is_whole(const Piece& piece) {
    for (const auto at : {std::uint64_t{0}, piece.memory.size() / 2, piece.memory.size() - 1}) {
      std::array<std::byte, 1> read{};
      if (!driver().memcpy_dtoh(read, piece.memory.device_pointer() + at)) return false;
      if (std::to_integer<std::uint8_t>(read[0]) != piece.fill) return false;
    }
    return true;
  }
  std::optional<Piece> make(Prng& random) {
    const auto largest = random.chance(0.4) ? 16_MiB : 1_MiB;
    const auto stream = random.chance(0.1) ? kPerThreadStream : streams[random.below(3)];
    auto made = manager->memalloc(random.log_uniform(512, largest), stream);
    if (!made) {
      EXPECT_EQ(made.error().code, Errc::out_of_memory);
      return {};
    }
    Piece piece{*std::move(made), static_cast<std::uint8_t>(random.below(256))};
    EXPECT_TRUE(driver().memset_d8(piece.memory.device_pointer(), piece.fill, piece.memory.size()));
    return piece;
  }
  std::optional<Piece> out_of(std::vector<Piece>& pieces, Prng& random) {
    if (pieces.empty()) return {};
    std::swap(pieces[random.below(pieces.size())], pieces.back());
    std::optional<Piece> piece(std::move(pieces.back()));
    pieces.pop_back();
    return piece;
  }
  void run(std::uint64_t seed) {
    ASSERT_TRUE(driver().ctx_push_current());
    Prng random(seed);
    std::vector<Piece> own;
    for (int step = 0; step < kSteps; ++step) {
      if (random.chance(0.51)) {
        auto piece = make(random);
        if (!piece) continue;
        if (random.chance(0.6)) {
          own.push_back(*std::move(piece));
        } else {
          const std::lock_guard lock(mutex);
          shared.push_back(*std::move(piece));
        }
      } else {
        std::optional<Piece> piece;
        if (random.chance(0.5)) {
          piece = out_of(own, random);
        } else {
          const std::lock_guard lock(mutex);
          piece = out_of(shared, random);
        }
        if (!piece) continue;
        EXPECT_TRUE(is_whole(*piece));
        EXPECT_TRUE(
            piece->memory.free(random.chance(0.5) ? StreamHandle{} : streams[random.below(3)]));
      }
      if (step % 97 == 5) {
        EXPECT_TRUE(manager->trim(random.below(64) << 20));
      }
      if (step % 61 == 7) {
        const auto deferred = manager->defer_cleanup();
        make(random);
      }
    }
    for (const auto& piece : own) EXPECT_TRUE(is_whole(piece));
  }

  std::unique_ptr<Platform> platform = *open_platform("sim:capacity=96MiB,costs=none", {});
  OpenedDevice device = *platform->open(0);
  std::array<StreamHandle, 3> streams;
  std::mutex mutex;
  std::vector<Piece> shared;
  std::unique_ptr<MemoryManager> manager;
};

INSTANTIATE_TEST_SUITE_P(Specs, PoolThreads,
                         ::testing::Values("pool", "pool:max=72MiB", "pool:max=72MiB,backing=cumem",
                                           "pool:release_threshold=24MiB"),
                         [](const auto& instance) {
                           return "Spec" + std::to_string(instance.index);
                         });

TEST_P(PoolThreads, MemoryIsApartAndAllOfItComesBack) {
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= kThreads; ++seed) {
    threads.emplace_back([this, seed] { run(seed); });
  }
  std::atomic<bool> done{false};
  std::thread looking([&] {
    while (!done) {
      const auto map = *manager->memory_map();
      for (const auto& segment : map.segments) {
        std::uint64_t size = 0;
        for (const auto& block : segment.blocks) size += block.size;
        EXPECT_EQ(size, segment.size);
      }
      const auto counted = manager->statistics();
      EXPECT_LE(counted.requested_bytes.current, counted.allocated_bytes.current);
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) thread.join();
  done = true;
  looking.join();
  for (const auto& piece : shared) EXPECT_TRUE(is_whole(piece));
  shared.clear();

  const auto counted = manager->statistics();
  EXPECT_EQ(counted.allocation.current, 0u);
  EXPECT_EQ(counted.requested_bytes.current, 0u);
  EXPECT_EQ(counted.allocated_bytes.current, 0u);
  EXPECT_TRUE(manager->trim(0));
  EXPECT_EQ(driver().held_bytes(), 0u);
}

// Each thread holds one block at a time, and all blocks fit together with the pieces that they lie
// in. So whoever finds too little gets it from what the others keep idle, whatever they are doing.
TEST_P(PoolThreads, WhatFitsBesideWhatOthersHoldIsNeverRefused) {
  std::atomic<int> refused{0};
  std::atomic<std::size_t> started{0};
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= streams.size(); ++seed) {
    threads.emplace_back([&, seed] {
      ASSERT_TRUE(driver().ctx_push_current());
      Prng random(seed);
      for (++started; started < streams.size();) std::this_thread::yield();
      for (int step = 0; step < 1500; ++step) {
        auto made = manager->memalloc(random.log_uniform(512, 8_MiB), streams[seed - 1]);
        refused += made ? 0 : 1;
        if (made && random.chance(0.5)) {
          EXPECT_TRUE(made->free(streams[random.below(streams.size())]));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(manager->memalloc(72_MiB)) << "and all of it afterwards";
}

// There are as many leaves as there is room for pieces, so whoever holds a leaf finds a piece,
// while another thread is refused all the time and locks every arena for it.
TEST_P(PoolThreads, RefusalsOfOneThreadTakeNothingFromTheOthers) {
  constexpr std::size_t kLeaves = 9;
  std::counting_semaphore<kLeaves> leaves(kLeaves);
  std::vector<MemoryPointer> handed_over;
  std::atomic<int> refused{0};
  std::atomic<bool> done{false};
  std::thread asking([&] {
    ASSERT_TRUE(driver().ctx_push_current());
    while (!done) EXPECT_FALSE(manager->memalloc(97_MiB, streams[2]));
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_TRUE(driver().ctx_push_current());
      const auto stream = *driver().stream_create(StreamKind::non_blocking);
      Prng random(static_cast<std::uint64_t>(i));
      std::vector<MemoryPointer> held;
      for (int step = 0; step < 600; ++step) {
        if (random.chance(0.5) && leaves.try_acquire()) {
          auto made = manager->memalloc(8_MiB, stream);
          refused += made ? 0 : 1;
          if (made) held.push_back(*std::move(made));
          if (!made) leaves.release();
        } else if (!held.empty() && random.chance(0.3)) {
          const std::lock_guard lock(mutex);
          handed_over.push_back(std::move(held.back()));
          held.pop_back();
        } else {
          std::unique_lock lock(mutex, std::defer_lock);
          if (random.chance(0.5)) lock.lock();
          auto& pieces = lock ? handed_over : held;
          if (pieces.empty()) continue;
          pieces.pop_back();
          leaves.release();
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  done = true;
  asking.join();
  EXPECT_EQ(refused, 0);
}

/// Lets another thread ask at the moment when the device has refused and the pool does not know it
/// yet.
class WhereTheDeviceRefuses final : public CallHook {
 public:
  std::int32_t before(const CallEvent&) override { return 0; }
  void after(const CallEvent& event) override {
    const bool asks = event.call == Call::mem_create || event.call == Call::mem_alloc;
    if (!asks || event.native != 2 || !waits.exchange(false)) return;
    goes_on.release();
    for (int turns = 0; turns < 1000; ++turns) std::this_thread::yield();
  }
  std::atomic<bool> waits{true};
  std::binary_semaphore goes_on{0};
};

TEST(PoolBesideARefusalOfTheDevice, WhatTheDeviceDoesNotGiveToOneIsThereForTheOthers) {
  for (const std::string backing : {"vmm", "cumem"}) {
    SCOPED_TRACE(backing);
    const auto platform = *open_platform("sim:capacity=64MiB,costs=none", {});
    const auto device = *platform->open(0);
    WhereTheDeviceRefuses hook;
    ForwardingDriver driver(*device.driver, hook);
    const auto manager =
        *find_manager("pool:max=70MiB,backing=" + backing)
             ->make({.driver = &driver, .runtime = nullptr, .clock = &platform->clock()});
    ASSERT_TRUE(manager->initialize() && device.driver->mem_alloc(10_MiB));
    const auto one = *driver.stream_create(StreamKind::non_blocking);
    const auto kept = *manager->memalloc(42_MiB);
    std::thread other([&] {
      EXPECT_TRUE(driver.ctx_push_current());
      hook.goes_on.acquire();
      EXPECT_TRUE(manager->memalloc(10_MiB)) << "52 MiB of 70, and as much as the device has";
    });
    EXPECT_FALSE(manager->memalloc(20_MiB, one));
    other.join();
  }
}

/// Does what another thread may do while an arena's addresses are being freed.
class WhileAddressesGoBack final : public CallHook {
 public:
  std::int32_t before(const CallEvent&) override { return 0; }
  void after(const CallEvent& event) override {
    if (event.call == Call::mem_address_free && meanwhile) meanwhile();
  }
  std::function<void()> meanwhile;
};

TEST(PoolThatMakesRoom, WhatOthersTakeOfItTheyHaveFreedElsewhereAndThatIsFoundToo) {
  const auto platform = *open_platform("sim:capacity=96MiB,costs=none", {});
  const auto device = *platform->open(0);
  WhileAddressesGoBack hook;
  ForwardingDriver driver(*device.driver, hook);
  const auto manager =
      *find_manager("pool:max=24MiB")
           ->make({.driver = &driver, .runtime = nullptr, .clock = &platform->clock()});
  ASSERT_TRUE(manager->initialize());
  std::array<StreamHandle, 4> streams;
  for (auto& stream : streams) stream = *driver.stream_create(StreamKind::non_blocking);
  const auto first = streams[0], second = streams[1], third = streams[2], asking = streams[3];
  auto of_first = *manager->memalloc(8_MiB, first);
  auto of_second = *manager->memalloc(8_MiB, second);
  ASSERT_TRUE(manager->memalloc(8_MiB, third));

  MemoryPointer instead;
  int turns = 0;
  hook.meanwhile = [&] {  // two blocks are in use at any time, and three fit
    if (++turns > 2) return;
    (turns == 1 ? of_second : of_first) = {};
    auto taken = manager->memalloc(8_MiB, turns == 1 ? first : third);
    ASSERT_TRUE(taken);
    (turns == 1 ? of_second : instead) = *std::move(taken);
  };
  EXPECT_TRUE(manager->memalloc(8_MiB, asking));
  EXPECT_EQ(turns, 2);
  hook.meanwhile = {};
}

}  // namespace
}  // namespace emm::test
