// The pool over virtual memory.
#include <vector>

#include "base/prng.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "pool_rig.hpp"

namespace emm::test {
namespace {

TEST_F(PoolOverVirtualMemory, FreeBlocksApartServeWhatNoneOfThemHolds) {
  make("pool:max=64MiB");
  auto first = memory(24_MiB);
  const auto kept = memory(16_MiB);
  auto last = memory(24_MiB);
  fill(kept, 7);
  ASSERT_TRUE(first.free());
  ASSERT_TRUE(last.free());

  const auto whole = memory(48_MiB);
  fill(whole, 9);
  expect_filled(kept, 7);
  expect_filled(whole, 9);
  EXPECT_EQ(driver().held_bytes(), 64_MiB);
}

TEST_F(PoolOverVirtualMemory, WhatFreeBlocksLackIsAskedOfTheDriver) {
  make("pool:max=72MiB");
  auto first = memory(24_MiB);
  const auto kept = memory(16_MiB);
  auto last = memory(24_MiB);
  ASSERT_TRUE(first.free());
  ASSERT_TRUE(last.free());

  const auto whole = memory(56_MiB);
  fill(whole, 9);
  fill(kept, 7);
  expect_filled(whole, 9);
  EXPECT_EQ(driver().held_bytes(), 72_MiB);
}

TEST_F(PoolOverVirtualMemory, WhereMappingIsMuchOfTheCostWhatTheDriverGivesIsMappedOnce) {
  make("pool");
  auto first = memory(24_MiB);
  auto kept = memory(16_MiB);
  auto last = memory(24_MiB);
  auto end = memory(16_MiB);
  ASSERT_TRUE(first.free());
  ASSERT_TRUE(last.free());
  ASSERT_TRUE(memory(48_MiB).free());  // a fifth request, and an alias mapping of two spans
  fill(kept, 7);
  fill(end, 5);

  hook.mapped = 0;
  auto whole = memory(80_MiB);
  EXPECT_EQ(hook.mapped, 3) << "a new piece of 32 MiB, and the two of 24 once more";
  EXPECT_EQ(driver().held_bytes(), 112_MiB);
  fill(whole, 9);
  expect_filled(whole, 9);
  expect_filled(kept, 7);
  expect_filled(end, 5);

  ASSERT_TRUE(whole.free());
  hook.calls = 0;
  whole = memory(80_MiB);
  EXPECT_EQ(hook.calls, 0);
  for (auto* piece : {&whole, &kept, &end}) ASSERT_TRUE(piece->free());
  ASSERT_TRUE(manager->trim(0));
  EXPECT_EQ(driver().held_bytes(), 0u);
  whole = memory(80_MiB);
  fill(whole, 3);
  expect_filled(whole, 3);
}

TEST_F(PoolOverVirtualMemory, WhatIsAskedForAgainComesBackWithoutTheDriver) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    make("pool");
    Prng random(seed);
    std::vector<std::pair<bool, std::uint64_t>> requests;  // allocate so much, or free the n-th
    std::uint64_t live = 0;
    for (int i = 0; i < 2000; ++i) {
      // The program always keeps something alive: an empty arena begins anew, and need not serve
      // alike.
      const bool allocates = live < 4 || (live < 40 && random.chance(0.5));
      requests.emplace_back(allocates,
                            allocates ? random.log_uniform(512, 16_MiB) : random.below(live));
      live = allocates ? live + 1 : live - 1;
    }
    const auto pass = [&] {
      std::vector<MemoryPointer> pieces;
      for (const auto& [allocates, number] : requests) {
        if (allocates) {
          pieces.push_back(memory(number));
        } else {
          pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(number));
        }
      }
    };
    pass();
    const auto held = driver().held_bytes();
    hook.calls = 0;
    pass();
    EXPECT_EQ(hook.calls, 0);
    EXPECT_EQ(driver().held_bytes(), held);
  }
}

// The passes of a program differ, as those of a training with rows of any length do.
TEST_F(PoolOverVirtualMemory, AProgramWhosePassesDifferIsServedFromWhatItsEarlierPassesTook) {
  double held = 0, most_live = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    make("pool");
    Prng random(seed);
    std::vector<std::pair<bool, std::uint64_t>> requests;  // allocate so much, or free the n-th
    std::uint64_t count = 0;
    for (int i = 0; i < 1000; ++i) {
      const bool allocates = count < 4 || (count < 60 && random.chance(0.55));
      requests.emplace_back(allocates,
                            allocates ? random.log_uniform(64_KiB, 16_MiB) : random.below(count));
      count = allocates ? count + 1 : count - 1;
    }
    std::uint64_t most = 0;
    for (int pass = 0; pass < 12; ++pass) {
      std::vector<MemoryPointer> pieces;
      std::uint64_t live = 0;
      for (const auto& [allocates, number] : requests) {
        if (allocates) {
          pieces.push_back(memory(number * random.between(90, 110) / 100));
          live += pieces.back().size();
          most = std::max(most, live);
        } else {
          live -= pieces[number].size();
          pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(number));
        }
      }
    }
    held += static_cast<double>(driver().held_bytes());
    most_live += static_cast<double>(most);
  }
  EXPECT_LT(held / most_live, 1.15)
      << "what one pass left over is not added to what the next needs";
}

TEST_F(PoolOverVirtualMemory, BlocksNeverShareMemoryWhateverTheyAreMadeOf) {
  for (const auto* spec : {"pool:max=200MiB", "pool:max=200MiB,backing=cumem",
                           "pool:max=200MiB,release_threshold=32MiB"}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(std::string(spec) + ", seed " + std::to_string(seed));
      make(spec);
      Prng random(seed);
      struct Piece {
        MemoryPointer memory;
        std::uint8_t fill;
      };
      std::vector<Piece> pieces;
      for (int step = 0; step < 1200; ++step) {
        if (pieces.empty() || random.chance(0.52)) {
          const StreamHandle stream{random.chance(0.8) ? 0u : kPerThreadStream.value};
          auto made = manager->memalloc(random.log_uniform(512, 48_MiB), stream);
          if (!made) {
            ASSERT_EQ(made.error().code, Errc::out_of_memory);
            continue;
          }
          pieces.push_back({*std::move(made), static_cast<std::uint8_t>(random.below(256))});
          fill(pieces.back().memory, pieces.back().fill);
        } else {
          const auto which = random.below(pieces.size());
          expect_filled(pieces[which].memory, pieces[which].fill);
          pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
        }
        if (step % 300 == 299) {
          ASSERT_TRUE(manager->trim(64_MiB));
        }
      }
      for (const auto& piece : pieces) expect_filled(piece.memory, piece.fill);
      EXPECT_LE(driver().held_bytes(), 200_MiB);
      pieces.clear();
      manager->reset();
      EXPECT_EQ(driver().held_bytes(), 0u);
      EXPECT_EQ(observer.failures, std::vector<int>());
    }
  }
}

// A generation replays what the one before it stitched. If it asks for a little else here and
// there, some of that memory is in use.
TEST_F(PoolOverVirtualMemory, BlocksNeverShareMemoryInGenerationsThatAreNearlyAlike) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    make("pool:max=300MiB");
    for (int generation = 0; generation < 8; ++generation) {
      Prng random(seed);
      Prng changes(seed + 100 + static_cast<std::uint64_t>(generation));
      std::vector<std::pair<MemoryPointer, std::uint8_t>> pieces;
      for (int step = 0; step < 500; ++step) {
        const bool allocates = pieces.size() < 3 || random.chance(0.5);
        const auto size = random.log_uniform(1_MiB, 32_MiB);
        const auto which = random.below(1000);
        const bool changed = generation % 2 == 1 && changes.chance(0.01);
        if (changed && step % 50 == 7) {
          ASSERT_TRUE(manager->trim(0));
        }
        if (allocates) {
          auto made = manager->memalloc(changed ? size / 2 : size);
          if (!made) continue;
          const auto with = static_cast<std::uint8_t>(1 + which % 255);
          fill(*made, with);
          pieces.emplace_back(*std::move(made), with);
        } else if (!changed) {
          const auto piece = pieces.begin() + static_cast<std::ptrdiff_t>(which % pieces.size());
          expect_filled(piece->first, piece->second);
          pieces.erase(piece);
        }
      }
      for (const auto& [piece, with] : pieces) expect_filled(piece, with);
    }
    EXPECT_GT(*manager->statistics().times_aliased, 0u);
  }
}

TEST_F(PoolOverVirtualMemory, TheSameRequestsGetTheSameAddressesInEveryGeneration) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    make("pool");
    const auto generation = [&] {
      Prng random(seed);
      std::vector<MemoryPointer> pieces;
      std::vector<std::uint64_t> addresses;
      for (int step = 0; step < 400; ++step) {
        pieces.push_back(memory(random.log_uniform(64_KiB, 24_MiB)));
        addresses.push_back(pieces.back().device_pointer().value);
        if (pieces.size() == 20)
          pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(random.below(20)));
      }
      return addresses;
    };
    const auto first = generation();
    for (int again = 0; again < 4; ++again) ASSERT_EQ(generation(), first);
  }
}

TEST_F(PoolOverVirtualMemory, WhateverCallsFailMemoryIsApartAndNothingIsLostUntold) {
  for (const auto* spec : {"pool:max=200MiB", "pool:max=200MiB,backing=cumem",
                           "pool:max=200MiB,release_threshold=64MiB"}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(std::string(spec) + ", seed " + std::to_string(seed));
      on_another_device();
      make(spec);
      observer.failures.clear();
      observer.waits = 0;
      const std::array streams{StreamHandle{}, *driver().stream_create(StreamKind::non_blocking)};
      hook.failed.clear();
      hook.faults.emplace(FaultPlan{.call = {}, .rate = 0.03, .seed = seed});
      Prng random(seed);
      struct Piece {
        MemoryPointer memory;
        std::uint8_t fill;
      };
      std::vector<Piece> pieces;
      for (int step = 0; step < 600; ++step) {
        const auto stream = streams[random.below(streams.size())];
        if (pieces.empty() || random.chance(0.52)) {
          auto made = manager->memalloc(random.log_uniform(512, 48_MiB), stream);
          if (!made) continue;
          pieces.push_back({*std::move(made), static_cast<std::uint8_t>(random.below(256))});
          fill(pieces.back().memory, pieces.back().fill);
        } else {
          std::swap(pieces[random.below(pieces.size())], pieces.back());
          expect_filled(pieces.back().memory, pieces.back().fill);
          ASSERT_TRUE(pieces.back().memory.free(stream));
          pieces.pop_back();
        }
        if (step % 100 == 50) {
          const auto trimmed = manager->trim(64_MiB);
        }
        if (step % 250 == 249) {
          pieces.clear();
          manager->reset();
        }
      }
      pieces.clear();
      hook.faults.reset();
      EXPECT_TRUE(manager->memalloc(4_MiB)) << "what may be mapped still is in nobody's way";
      manager.reset();
      auto untaken = observer.waits;
      for (const auto call :
           {Call::mem_free, Call::mem_unmap, Call::mem_release, Call::mem_address_free})
        untaken += hook.failed[call];
      EXPECT_EQ(observer.failures.size(), untaken) << "each is told, once";
      EXPECT_TRUE(untaken > 0 || driver().held_bytes() == 0);
    }
  }
}

TEST_F(PoolOverVirtualMemory, KeepsNearWhatIsLiveAlsoWhereRequestsNeverRepeat) {
  make("pool");
  Prng random(11);
  std::vector<MemoryPointer> pieces;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (int step = 0; step < 3000; ++step) {
    const auto size = random.log_uniform(1_MiB, 32_MiB);
    while (live + size > 400_MiB || (!pieces.empty() && random.chance(0.3))) {
      const auto which = random.below(pieces.size());
      live -= pieces[which].size();
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
    }
    pieces.push_back(memory(size));
    live += size;
    peak = std::max(peak, live);
  }
  EXPECT_LE(driver().held_bytes(), peak + peak / 2);
}

TEST_F(PoolOverVirtualMemory, MemoryFreedOnAnotherStreamWaitsForAnOrderBetweenThem) {
  make("pool:max=4MiB");
  const auto own = *driver().stream_create(StreamKind::non_blocking);
  const auto other = *driver().stream_create(StreamKind::non_blocking);
  auto piece = memory(4_MiB, own);
  hook.calls = 0;
  ASSERT_TRUE(piece.free(other));
  const auto again = memory(4_MiB, own);
  EXPECT_EQ(hook.calls, 4) << "an event is made, recorded there, waited for here and destroyed";
  EXPECT_EQ(manager->state().live_bytes, 4_MiB);
}

TEST_F(PoolOverVirtualMemory, AStreamThatIsGoneIsAskedForNothing) {
  make("pool:release_threshold=2MiB");
  const auto own = *driver().stream_create(StreamKind::non_blocking);
  const auto other = *driver().stream_create(StreamKind::non_blocking);
  auto freed_elsewhere = memory(4_MiB, own);
  auto freed_late = memory(4_MiB, own);
  ASSERT_TRUE(freed_elsewhere.free(other));
  ASSERT_TRUE(driver().stream_destroy(own));
  ASSERT_TRUE(driver().stream_destroy(other));
  hook.of_streams = 0;

  ASSERT_TRUE(freed_late.free());
  ASSERT_TRUE(manager->trim(0));
  EXPECT_EQ(driver().held_bytes(), 0u);
  manager->reset();
  manager.reset();
  EXPECT_EQ(hook.of_streams, 0);
}

TEST_F(PoolOverVirtualMemory, AResetAmidADeferralForgetsNoOrder) {
  make("pool:max=4MiB");
  const auto own = *driver().stream_create(StreamKind::non_blocking);
  const auto other = *driver().stream_create(StreamKind::non_blocking);
  const auto deferred = manager->defer_cleanup();
  auto freed_elsewhere = memory(2_MiB, own);
  const auto ended = memory(2_MiB, own);
  ASSERT_TRUE(freed_elsewhere.free(other));
  hook.calls = 0;
  manager->reset();
  EXPECT_EQ(hook.calls, 0) << "nobody needs the memory, and its stream may be gone";
  EXPECT_FALSE(ended.alive());

  const auto in_order = memory(2_MiB, own);
  EXPECT_EQ(hook.calls, 0) << "what was freed on its own stream is there at once";
  const auto ordered = memory(2_MiB, own);
  EXPECT_EQ(hook.of_streams, 2) << "recorded at the free, and waited for here";
  EXPECT_EQ(driver().held_bytes(), 4_MiB);
  EXPECT_NE(in_order.device_pointer(), ordered.device_pointer());
}

TEST_F(PoolOverVirtualMemory, WhatMaxRefusesIsNotAskedOfTheDriver) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    std::vector<MemoryPointer> pieces;
    for (int i = 0; i < 56 * 4; ++i) pieces.push_back(memory(256_KiB));
    hook.calls = 0;
    EXPECT_EQ(manager->memalloc(16_MiB).error().code, Errc::out_of_memory) << "8 MiB are left";
    EXPECT_EQ(hook.calls, 0);

    while (auto more = manager->memalloc(256_KiB)) pieces.push_back(*std::move(more));
    EXPECT_EQ(pieces.size(), 64u * 4) << "filled to the last page";
    for (std::size_t i = 0; i < pieces.size(); i += 2) pieces[i] = {};
    hook.calls = 0;
    EXPECT_EQ(manager->memalloc(16_MiB).error().code, Errc::out_of_memory)
        << "32 MiB in free blocks";
    EXPECT_EQ(hook.calls, 0);
    EXPECT_EQ(manager->statistics().num_ooms, 3u);
  }
}

TEST_F(PoolOverVirtualMemory, ARefusalIsForgottenAsSoonAsSomethingIsFreed) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    const auto other = *driver().stream_create(StreamKind::non_blocking);
    auto elsewhere = memory(16_MiB, other);
    std::vector<MemoryPointer> pieces;
    for (int i = 0; i < 48; ++i) pieces.push_back(memory(1_MiB));
    const auto refused = [&](std::uint64_t size) {
      const auto made = manager->memalloc(size);
      EXPECT_TRUE(made || made.error().code == Errc::out_of_memory);
      return !made;
    };
    for (std::size_t i = 0; i < 16; i += 2) pieces[i] = {};
    EXPECT_TRUE(refused(12_MiB)) << "8 MiB in free blocks";
    EXPECT_TRUE(refused(12_MiB));
    ASSERT_TRUE(elsewhere.free());
    EXPECT_FALSE(refused(12_MiB)) << "another stream's memory is idle";

    while (auto more = manager->memalloc(1_MiB)) pieces.push_back(*std::move(more));
    for (std::size_t i = 17; i < 33; i += 2) pieces[i] = {};
    EXPECT_TRUE(refused(7_MiB)) << "8 MiB in free blocks, and no other stream";
    EXPECT_TRUE(refused(7_MiB));
    for (std::size_t i = 18; i < 34; i += 2) pieces[i] = {};
    EXPECT_FALSE(refused(7_MiB)) << "the free blocks are one";
    EXPECT_TRUE(refused(32_MiB));
    pieces.clear();
    EXPECT_FALSE(refused(32_MiB));
  }
}

TEST_F(PoolOverVirtualMemory, ARefusalIsForgottenWhenTheGuardEnds) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    const auto other = *driver().stream_create(StreamKind::non_blocking);
    const auto own = memory(32_MiB);
    auto guard = manager->defer_cleanup();
    ASSERT_TRUE(memory(32_MiB, other).free());
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(manager->memalloc(8_MiB).error().code, Errc::out_of_memory);
    guard = {};
    EXPECT_TRUE(manager->memalloc(8_MiB)) << "the other stream's slab goes back";
  }
}

TEST_F(PoolOverVirtualMemory, WhatAllStreamsHoldIsRefusedWithoutTheDriver) {
  for (const auto* spec : {"pool:max=64MiB", "pool:max=64MiB,backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    std::vector<MemoryPointer> pieces;
    for (int i = 0; i < 4; ++i)
      pieces.push_back(memory(16_MiB, *driver().stream_create(StreamKind::non_blocking)));
    hook.calls = 0;
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(manager->memalloc(1_MiB).error().code, Errc::out_of_memory);
    EXPECT_EQ(hook.calls, 0);
    EXPECT_EQ(manager->statistics().num_ooms, 3u);
  }
}

TEST_F(PoolOverVirtualMemory, ARefusalAsksTheDriverOnce) {
  for (const auto* spec : {"pool", "pool:backing=cumem"}) {
    SCOPED_TRACE(spec);
    make(spec);
    std::vector<MemoryPointer> pieces;
    while (auto piece = manager->memalloc(1_MiB)) pieces.push_back(*std::move(piece));
    const auto expect_refused_at_once = [&](std::uint64_t size) {
      SCOPED_TRACE(size);
      hook.asked = hook.calls = 0;
      EXPECT_EQ(manager->memalloc(size).error().code, Errc::out_of_memory);
      EXPECT_LE(hook.asked, 1);
      EXPECT_LE(hook.calls, 2) << "and what it has left";
    };
    for (const auto size : {1_MiB, 7_MiB, 100_MiB, 400_MiB}) expect_refused_at_once(size);
    for (std::size_t i = 0; i < pieces.size(); i += 2) pieces[i] = {};
    for (const auto size : {3_MiB, 8_MiB, 100_MiB, 400_MiB}) expect_refused_at_once(size);
  }
}

TEST_F(PoolOverVirtualMemory, AnotherStreamGetsTheMemoryOnceTheDeviceHasItBack) {
  make("pool:max=8MiB");
  { const auto piece = memory(8_MiB); }
  const auto stream = *driver().stream_create(StreamKind::non_blocking);
  const auto piece = memory(6_MiB, stream);
  EXPECT_EQ(driver().held_bytes(), 8_MiB);
}

TEST_F(PoolOverVirtualMemory, TrimReleasesWhatIsIdleAndNothingElse) {
  make("pool");
  const auto kept = memory(10_MiB);
  fill(kept, 5);
  { const auto piece = memory(100_MiB); }
  EXPECT_GE(driver().held_bytes(), 110_MiB);
  ASSERT_TRUE(manager->trim(64_MiB));
  EXPECT_LE(driver().held_bytes(), 64_MiB);
  ASSERT_TRUE(manager->trim(0));
  EXPECT_LE(driver().held_bytes(), 12_MiB);
  expect_filled(kept, 5);
  const auto more = memory(100_MiB);
  EXPECT_EQ(manager->state().live_bytes, 110_MiB);
}

TEST_F(PoolOverVirtualMemory, WhatCanBeExportedIsAskedForByItsBacking) {
  make("pool");
  const auto piece = memory(1_MiB);
  EXPECT_EQ(manager->get_ipc_handle(*piece.view()).error().code, Errc::not_supported);
  make("pool:backing=cumem");
  const auto exported = memory(1_MiB);
  EXPECT_TRUE(manager->get_ipc_handle(*exported.view()));
}

}  // namespace
}  // namespace emm::test
