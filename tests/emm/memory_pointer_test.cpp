#include "emm/memory_pointer.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace emm {
namespace {

struct Ends {
  std::vector<std::uint64_t> cookies;
  std::vector<std::uint64_t> streams;
  Finalizer finalizer(std::uint64_t cookie) {
    return {.run =
                [](void* self, std::uint64_t which, StreamHandle stream) noexcept {
                  static_cast<Ends*>(self)->cookies.push_back(which);
                  static_cast<Ends*>(self)->streams.push_back(stream.value);
                },
            .self = this,
            .cookie = cookie};
  }
};

MemoryPointer memory_of(Ends& ends, const Epoch& epoch, std::uint64_t size = 100) {
  return MemoryPointer({0x1000}, size, Lifetime(ends.finalizer(7), epoch.mark()));
}

TEST(MemoryPointer, RunsItsFinalizerOnceWhenItDies) {  // PTR-2, PTR-22
  Ends ends;
  Epoch epoch;
  {
    auto memory = memory_of(ends, epoch);
    auto moved = std::move(memory);
    EXPECT_TRUE(moved.is_managed());
    EXPECT_TRUE(ends.cookies.empty());
  }
  EXPECT_EQ(ends.cookies, std::vector<std::uint64_t>{7});
}

TEST(MemoryPointer, FreesAtOnceAndRefusesASecondTime) {  // PTR-5
  Ends ends;
  Epoch epoch;
  auto memory = memory_of(ends, epoch);

  EXPECT_TRUE(memory.free({5}));
  const auto again = memory.free();

  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::dead_pointer);
  EXPECT_EQ(describe(again.error()), "Freeing dead memory");
  EXPECT_EQ(ends.streams, std::vector<std::uint64_t>{5});
}

TEST(MemoryPointer, WithoutAFinalizerIsFreedAnyNumberOfTimes) {  // PTR-1, PTR-5
  MemoryPointer foreign({0x1000}, 10);

  EXPECT_TRUE(foreign.free());
  EXPECT_TRUE(foreign.free());
  EXPECT_FALSE(foreign.is_managed());
}

TEST(MemoryPointer, DiesSilentlyAfterAReset) {  // RST-6, RST-7
  Ends ends;
  Epoch epoch;
  {
    auto memory = memory_of(ends, epoch);
    epoch.advance();
    EXPECT_FALSE(memory.alive());
    EXPECT_EQ(memory.free().error().code, Errc::dead_pointer);
    EXPECT_EQ(memory.view().error().code, Errc::dead_pointer);
  }
  EXPECT_TRUE(ends.cookies.empty());
}

TEST(MemoryPointer, MayOutliveItsManager) {  // ERR-4
  Ends ends;
  MemoryPointer memory;
  {
    Epoch epoch;
    memory = memory_of(ends, epoch);
  }
  Epoch successor;

  EXPECT_FALSE(memory.alive());
  memory = {};
  EXPECT_TRUE(ends.cookies.empty());
}

TEST(MemoryPointer, AssignmentEndsWhatWasHeld) {
  Ends ends;
  Epoch epoch;
  auto memory = memory_of(ends, epoch);
  memory = MemoryPointer({0x2000}, 5);
  EXPECT_EQ(ends.cookies.size(), 1u);
}

TEST(MemoryView, IsCutRelativeToItsOwnStart) {  // PTR-9
  const MemoryView whole{.device_pointer = {0x1000}, .size = 100};

  const auto part = whole.view(10)->view(5, 20);

  ASSERT_TRUE(part);
  EXPECT_EQ(part->device_pointer.value, 0x1000u + 15);
  EXPECT_EQ(part->size, 15u);
}

TEST(MemoryView, RefusesWhatLiesOutside) {  // PTR-11, PTR-12
  const MemoryView whole{.device_pointer = {0x1000}, .size = 100};

  EXPECT_EQ(describe(whole.view(20, 10).error()), "size cannot be negative");
  EXPECT_EQ(describe(whole.view(101).error()), "size cannot be negative");
  EXPECT_EQ(describe(whole.view(90, 5000).error()),
            "view [90, 5000) is not inside memory of 100 bytes");
  EXPECT_TRUE(whole.view(100));
}

TEST(MemoryView, OfNothingIsNothing) {  // PTR-11
  const MemoryView nothing;

  EXPECT_TRUE(nothing.view(0));
  EXPECT_EQ(describe(nothing.view(0, 1).error()), "non-empty slice into empty slice");
}

TEST(OwnedPointer, EndsTheMemoryWithItsLastReference) {  // PTR-3, PTR-4, PTR-9, PTR-10
  Ends ends;
  Epoch epoch;
  auto base = own(memory_of(ends, epoch));
  auto middle = *base.view(10);
  auto part = *middle.view(5, 20);
  EXPECT_EQ(part.references(), 3);
  EXPECT_EQ(part.device_pointer().value, 0x1000u + 15);
  EXPECT_EQ(part.size(), 15u);

  base = {};
  EXPECT_EQ(part.references(), 2);
  middle = {};
  EXPECT_EQ(part.references(), 1);
  EXPECT_TRUE(ends.cookies.empty());
  part = {};
  EXPECT_EQ(ends.cookies.size(), 1u);
}

TEST(OwnedPointer, IsFreedForEveryone) {  // PTR-6
  Ends ends;
  Epoch epoch;
  auto base = own(memory_of(ends, epoch));
  auto part = *base.view(10);

  EXPECT_TRUE(base.free());

  EXPECT_FALSE(part.alive());
  EXPECT_EQ(describe(part.free().error()), "Freeing dead memory");
  EXPECT_EQ(part.view().error().code, Errc::dead_pointer);
  part = {};
  base = {};
  EXPECT_EQ(ends.cookies.size(), 1u) << "the references end silently";
}

TEST(OwnedPointer, OfDeadMemoryIsDead) {  // PTR-7
  Ends ends;
  Epoch epoch;
  auto memory = memory_of(ends, epoch);
  ASSERT_TRUE(memory.free());

  auto owned = own(std::move(memory));

  EXPECT_FALSE(owned.alive());
  EXPECT_FALSE(owned.free());
  EXPECT_FALSE(OwnedPointer().free());
}

TEST(PinnedMemory, UnpinsBeforeItsOwnerGoes) {  // PIN-4
  struct Order {
    std::vector<std::string> events;
  } order;
  const Finalizer finalizer{
      .run = [](void* self, std::uint64_t,
                StreamHandle) noexcept { static_cast<Order*>(self)->events.emplace_back("unpin"); },
      .self = &order,
      .cookie = 0};
  const auto make_owner = [&] {
    return std::shared_ptr<const void>(&order, [](Order* at) { at->events.emplace_back("owner"); });
  };
  Epoch epoch;
  {
    PinnedMemory pinned({nullptr, 8}, Lifetime(finalizer, epoch.mark()), make_owner());
    pinned = PinnedMemory({nullptr, 9}, {});
  }
  {
    MappedMemory mapped({nullptr, 8}, {}, Lifetime(finalizer, epoch.mark()), make_owner());
    mapped = MappedMemory({nullptr, 9}, {}, {});
  }
  EXPECT_EQ(order.events, (std::vector<std::string>{"unpin", "owner", "unpin", "owner"}));
}

TEST(Epoch, GivesNoMarkTwice) {
  Epoch::Mark old;
  for (int i = 0; i < 100; ++i) {
    Epoch epoch;
    EXPECT_FALSE(old.bound() && old.current());
    old = epoch.mark();
    EXPECT_TRUE(old.current());
  }
}

}  // namespace
}  // namespace emm
