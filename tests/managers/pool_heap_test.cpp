// What the pool takes from the heap once a program repeats itself.
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace {

thread_local bool counts = false;
thread_local long taken = 0;

void* take(std::size_t size) {
  taken += counts ? 1 : 0;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace emm::test {
namespace {

/// Leaves out what the simulated device takes from the heap: that is not the pool's.
class NotTheDevices final : public CallHook {
 public:
  std::int32_t before(const CallEvent&) override {
    counted_ = std::exchange(counts, false);
    return 0;
  }
  void after(const CallEvent&) override { counts = counted_; }

 private:
  bool counted_ = false;
};

constexpr int kWarm = 8;  // passes, until what grows is large enough

class PoolHeap : public ::testing::TestWithParam<const char*> {
 protected:
  PoolHeap() { make(GetParam()); }
  void make(const std::string& spec) {
    manager = *find_manager(spec)->make(
        {.driver = &driver, .runtime = nullptr, .clock = &platform->clock()});
    EXPECT_TRUE(manager->initialize());
  }
  /// Makes the same requests each time, and ends with nothing alive.
  template <class End>
  void pass(std::uint64_t largest, StreamHandle stream, End&& end) {
    Prng random(5);
    for (int step = 0; step < 2000; ++step) {
      auto& place = places[random.below(places.size())];
      if (place.alive()) end(place, random);
      auto made = manager->memalloc(random.log_uniform(512, largest), stream);
      if (made) place = *std::move(made);
    }
    for (auto& place : places) place = {};
  }
  template <class Pass>
  long taken_once_warm(Pass&& pass) {
    for (int i = 0; i < kWarm; ++i) pass();
    taken = 0;
    counts = true;
    pass();
    counts = false;
    return taken;
  }

  std::unique_ptr<Platform> platform = *open_platform("sim:capacity=1GiB,costs=none", {});
  OpenedDevice device = *platform->open(0);
  NotTheDevices hook;
  ForwardingDriver driver{*device.driver, hook};
  std::vector<MemoryPointer> places{48};
  std::unique_ptr<MemoryManager> manager;
};

INSTANTIATE_TEST_SUITE_P(Backings, PoolHeap, ::testing::Values("pool", "pool:backing=cumem"),
                         [](const auto& named) {
                           return named.param == std::string("pool") ? "vmm" : "cumem";
                         });

TEST_P(PoolHeap, GivesNothingToRequestsThatRepeat) {
  const auto ended = [](MemoryPointer& memory, Prng&) { memory = {}; };
  EXPECT_EQ(taken_once_warm([&] { pass(2_MiB, {}, ended); }), 0);
  EXPECT_EQ(taken_once_warm([&] { pass(16_MiB, {}, ended); }), 0);
  const bool maps = GetParam() == std::string("pool");
  EXPECT_EQ(*manager->statistics().times_aliased > 0, maps) << "stitched blocks are among them";
}

TEST_P(PoolHeap, GivesNothingToFreesOnAnotherStream) {
  const auto own = *device.driver->stream_create(StreamKind::non_blocking);
  const auto other = *device.driver->stream_create(StreamKind::non_blocking);
  const auto ended = [&](MemoryPointer& memory, Prng& random) {
    ASSERT_TRUE(memory.free(random.chance(0.3) ? other : own));
  };
  EXPECT_EQ(taken_once_warm([&] { pass(2_MiB, own, ended); }), 0);
}

TEST_P(PoolHeap, GivesNothingToFreesOfAnotherThread) {
  const auto fill = [&] {
    Prng random(5);
    for (auto& place : places) place = *manager->memalloc(random.log_uniform(512, 2_MiB));
  };
  long taken_there = 0;
  const auto end_elsewhere = [&] {
    std::thread([&] {
      taken = 0;
      counts = true;
      for (auto& place : places) place = {};
      counts = false;
      taken_there = taken;
    }).join();
  };
  for (int i = 0; i < kWarm; ++i) {
    fill();
    end_elsewhere();
  }
  taken = 0;
  counts = true;
  fill();
  counts = false;
  EXPECT_EQ(taken, 0);
  end_elsewhere();
  EXPECT_EQ(taken_there, 0);
}

// What is beyond the threshold cannot go back, as it is in use.
TEST_P(PoolHeap, GivesNothingToFreesBeyondTheReleaseThreshold) {
  const std::string spec = GetParam();
  make(spec + (spec == "pool" ? ":" : ",") + "release_threshold=1MiB");
  const auto in_use = *manager->memalloc(60_MiB);
  const auto of_the_rest = *manager->memalloc(64_KiB);
  EXPECT_EQ(taken_once_warm([&] { *manager->memalloc(64_KiB); }), 0);
}

}  // namespace
}  // namespace emm::test
