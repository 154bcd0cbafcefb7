// Whom the pool refuses, and whom it must not: what could be served is served.
#include <vector>

#include "base/prng.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace emm::test {
namespace {

using State = MemoryMap::State;

class PoolRefusals : public PoolOverVirtualMemory {
 protected:
  void every(Call call, std::int32_t native) {
    hook.faults.emplace(FaultPlan{.call = call, .native = native, .rate = 1});
  }
  /// 16,384 granules of 512 bytes: five holes of 64 of them, and `last` free at the end or in the
  /// midst of what is used.
  void holes_of_nearly_one_size(std::uint64_t last, bool at_the_end) {
    std::vector<MemoryPointer> holes;
    const auto hole = [&](std::uint64_t granules) {
      holes.push_back(memory(granules * 512));
      kept.push_back(memory(100 * 512));
    };
    if (!at_the_end) hole(last);
    for (int i = 0; i < 5; ++i) hole(64);
    const auto used = 5 * (64 + 100) + last + (at_the_end ? 0u : 100u);
    kept.push_back(memory((16'384 - used) * 512));
    for (auto& memory : holes) memory = {};
  }
  std::vector<MemoryPointer> kept;
};

TEST_F(PoolRefusals, AHoleBehindOthersOfNearlyItsSizeIsFound) {
  for (const auto* spec :
       {"pool:initial=8MiB,max=8MiB", "pool:initial=8MiB,max=8MiB,backing=cumem"}) {
    for (const bool at_the_end : {true, false}) {
      SCOPED_TRACE(std::string(spec) + (at_the_end ? ", at the end" : ", in the midst"));
      kept.clear();
      make(spec);
      holes_of_nearly_one_size(65, at_the_end);
      const auto found = memory(65 * 512);
      EXPECT_TRUE(found.alive() && found.device_pointer() != DevicePtr{});
      EXPECT_EQ(manager->state().live_bytes, manager->statistics().requested_bytes.current);
      EXPECT_EQ(manager->statistics().allocation.current, kept.size() + 1);
    }
  }
}

TEST_F(PoolRefusals, WhatTheDriverCouldNotMapOnceIsTriedAgain) {
  for (const auto call : {Call::mem_address_reserve, Call::mem_map, Call::mem_set_access}) {
    kept.clear();
    make("pool:max=64MiB");
    for (int i = 0; i < 64; ++i) kept.push_back(memory(1_MiB));
    for (const auto i : {1u, 2u, 3u, 6u, 7u, 8u}) kept[i] = {};  // each half a piece, and a whole
    every(call, 2);
    const auto refused = manager->memalloc(6_MiB);
    hook.faults.reset();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_TRUE(manager->memalloc(6_MiB)) << "nothing is freed, and the driver has come to itself";
  }
}

TEST_F(PoolRefusals, IdleMemoryThatCouldNotGoBackOnceIsTriedAgain) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    const auto own = memory(16_MiB);
    const auto other = *driver().stream_create(StreamKind::non_blocking);
    ASSERT_TRUE(memory(48_MiB).free(other));
    every(Call::ctx_synchronize, 900);  // as while a stream is captured
    const auto refused = manager->memalloc(32_MiB, other);
    hook.faults.reset();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_TRUE(manager->memalloc(32_MiB, other));
  }
}

TEST_F(PoolRefusals, WhereMemoryMayBeMappedStillNothingElseIsEverMapped) {
  make("pool");
  auto first = memory(100_MiB);
  auto second = memory(100_MiB);
  auto third = memory(100_MiB);
  third = {};
  every(Call::mem_unmap, 1);
  EXPECT_FALSE(manager->trim(0));
  hook.faults.reset();
  second = {};
  ASSERT_TRUE(manager->trim(0));
  EXPECT_TRUE(manager->memalloc(150_MiB));
}

}  // namespace
}  // namespace emm::test
