#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "base/prng.hpp"
#include "emm/context.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "fake_device.hpp"
#include "replay/address_shards.hpp"
#include "replay/engine.hpp"
#include "replay/null_manager.hpp"
#include "trace_builder.hpp"

namespace emm::replay {
namespace {

using trace::Op;
using Threads = ReplayOptions::Threads;

/// First fit over a small range, under a lock; refuses what its script says, by size.
class SmallManager final : public MemoryManager {
 public:
  static constexpr std::uint64_t kRefused = 666;

  explicit SmallManager(bool overlaps) : overlaps_(overlaps) {}
  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle) override {
    if (size == kRefused) return Error{.code = Errc::out_of_memory, .native = 2};
    const std::lock_guard lock(mutex_);
    std::uint64_t at = FakeDriver::kBase;
    for (const auto& [begin, end] : live_) {
      if (begin - at >= size) break;
      at = (end + 255) / 256 * 256;
    }
    if (overlaps_ && size == 777 && !live_.empty()) at = live_.begin()->first;
    live_.emplace(at, at + size);
    return MemoryPointer(
        {at}, size,
        Lifetime({.run = &SmallManager::finalize, .self = this, .cookie = at}, epoch_.mark()));
  }
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags) override {
    const std::lock_guard lock(mutex_);
    host_.push_back(std::make_unique<std::byte[]>(size));
    return PinnedMemory({host_.back().get(), size}, Lifetime({}, epoch_.mark()));
  }
  Result<HostMemory> mempin(HostRange, HostRegisterFlags, std::shared_ptr<const void>) override {
    return Error{.code = Errc::not_supported};
  }
  Result<IpcHandle> get_ipc_handle(MemoryView) override {
    return Error{.code = Errc::not_supported};
  }
  Result<MemoryInfo> get_memory_info() override { return MemoryInfo{}; }
  void reset() noexcept override {
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    live_.clear();
  }
  DeferCleanup defer_cleanup() override { return {}; }

 private:
  static void finalize(void* self, std::uint64_t at, StreamHandle) noexcept {
    auto& manager = *static_cast<SmallManager*>(self);
    const std::lock_guard lock(manager.mutex_);
    manager.live_.erase(manager.live_.find(at));
  }
  std::mutex mutex_;
  const bool overlaps_;
  Epoch epoch_;
  std::multimap<std::uint64_t, std::uint64_t> live_;
  std::vector<std::unique_ptr<std::byte[]>> host_;
};

class SmallStack final : public Stack {
 public:
  explicit SmallStack(bool overlaps = false) : overlaps_(overlaps) {}
  Result<std::unique_ptr<Context>> make_context(std::uint32_t, ManagerObserver* observer,
                                                stream_order::Checker*) override {
    device_.driver = std::make_unique<FakeDriver>();
    return Context::create(
        device_, clock_,
        {.name = "small",
         .make = [this](const ManagerContext&) -> Result<std::unique_ptr<MemoryManager>> {
           return std::make_unique<SmallManager>(overlaps_);
         }},
        observer);
  }
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<Peer>> start_peer(std::uint32_t) override {
    return Error{.code = Errc::not_supported};
  }
  std::string describe_manager() const override { return "small"; }
  std::string describe_device() const override { return "toy"; }

 private:
  bool overlaps_;
  SteadyClock clock_;
  OpenedDevice device_;
};

/// Keeps what a log is told.
class Rows final : public log::RecordSink {
 public:
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    rows.push_back(record);
    live.push_back(gauges.live_bytes);
  }
  std::vector<log::Record> rows;
  std::vector<std::uint64_t> live;
};

/// `threads` threads that make memory and end their own and each other's.
trace::Trace crossing(std::uint64_t seed, std::uint64_t threads, std::uint64_t allocations) {
  Prng random(seed);
  TraceBuilder builder;
  std::vector<std::uint64_t> live;
  for (std::uint64_t id = 1; id <= allocations; ++id) {
    builder.on_thread(random.below(threads)).alloc(id, random.between(1, 600));
    live.push_back(id);
    while (live.size() > 30 || (!live.empty() && random.chance(0.4))) {
      const auto which = random.below(live.size());
      builder.on_thread(random.below(threads)).free(live[which]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  return builder.done();
}

log::Summary replay(const trace::Trace& trace, const ReplayOptions& options,
                    log::RecordSink* log = nullptr, bool overlaps = false) {
  SmallStack stack(overlaps);
  auto summary = Engine(trace, stack, options, log).run();
  EXPECT_TRUE(summary) << describe(summary.error());
  return summary ? *std::move(summary) : log::Summary{};
}

class Parallel : public ::testing::TestWithParam<Threads> {};
INSTANTIATE_TEST_SUITE_P(Threads, Parallel, ::testing::Values(Threads::recorded, Threads::free));

TEST_P(Parallel, ServesWhatOneThreadServes) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    const auto trace = crossing(seed, 8, 2000);
    const auto one = replay(trace, {});

    const auto many = replay(trace, {.repeat = 2, .latency = true, .threads = GetParam()});

    EXPECT_EQ(many.violation_count, 0u);
    EXPECT_EQ(many.threads, 8u);
    ASSERT_EQ(many.repeats.size(), 2u);
    for (const auto& pass : many.repeats) {
      EXPECT_EQ(pass.events, one.pass.events);
      EXPECT_EQ(pass.allocs, one.pass.allocs);
      EXPECT_EQ(pass.frees, one.pass.frees);
      EXPECT_EQ(pass.leaked, one.pass.leaked);
      EXPECT_EQ(pass.leaked_bytes, one.pass.leaked_bytes);
      EXPECT_GT(pass.peak_live_bytes, 0u);
    }
    EXPECT_EQ(many.alloc_latency->count, one.pass.allocs);
  }
}

TEST_P(Parallel, InALogNoAddressIsLiveTwiceAndTheGaugesAreOfItsOrder) {
  const auto trace = crossing(7, 6, 3000);
  Rows log;

  const auto summary = replay(trace, {.threads = GetParam()}, &log);

  EXPECT_EQ(log.rows.size(), summary.pass.allocs + summary.pass.frees);
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < log.rows.size(); ++i) {
    const auto& row = log.rows[i];
    if (row.op == Op::memalloc) {
      EXPECT_TRUE(live.emplace(row.pointer, row.size).second) << "row " << i;
      bytes += row.size;
    } else {
      EXPECT_EQ(live.erase(row.pointer), 1u) << "row " << i;
      bytes -= row.size;
    }
    EXPECT_EQ(log.live[i], bytes);
  }
}

TEST_P(Parallel, WhoWaitsForMemoryThatWasRefusedIsTold) {
  const auto trace = TraceBuilder()
                         .on_thread(1)
                         .alloc(1, SmallManager::kRefused)
                         .on_thread(2)
                         .free(1)
                         .alloc(2, 8)
                         .on_thread(1)
                         .free(2)
                         .done();

  const auto summary = replay(trace, {.threads = GetParam()});

  EXPECT_EQ(summary.pass.failures, 1u);
  EXPECT_EQ(summary.pass.unmade, 1u);
  EXPECT_EQ(summary.pass.frees, 1u);
  ASSERT_TRUE(summary.first_failure);
  EXPECT_EQ(summary.first_failure->id, "1");
}

TEST_P(Parallel, WhatTheRecordedProgramWasRefusedNoOtherThreadMeets) {
  using B = TraceBuilder;
  TraceBuilder builder;
  for (std::uint64_t id = 1; id <= 200; ++id) {
    auto refused = B::recorded(B::sized(Op::memalloc, id, 64), trace::Outcome::oom);
    builder.on_thread(1).add(refused).on_thread(2).free(id);
  }

  const auto summary = replay(builder.done(), {.threads = GetParam()});

  EXPECT_EQ(summary.outcomes.only_replay_succeeded, 200u);
  EXPECT_EQ(summary.pass.frees, 200u);
  EXPECT_EQ(summary.pass.unmade, 200u);
  EXPECT_EQ(summary.pass.leaked, 0u);
}

TEST_P(Parallel, AResetIsServedAloneAndFreesAfterItAreLate) {
  TraceBuilder builder;
  for (std::uint64_t id = 1; id <= 40; ++id) builder.on_thread(id % 4).alloc(id, 100 + id);
  builder.op(Op::reset);
  for (std::uint64_t id = 1; id <= 40; ++id) builder.on_thread((id + 1) % 4).free(id);
  for (std::uint64_t id = 41; id <= 80; ++id) builder.on_thread(id % 4).alloc(id, 100).free(id);
  const auto trace = builder.done();

  const auto summary = replay(trace, {.threads = GetParam()});

  EXPECT_EQ(summary.violation_count, 0u);
  EXPECT_EQ(summary.pass.allocs, 80u);
  EXPECT_EQ(summary.pass.frees, 80u);
  EXPECT_EQ(summary.pass.leaked, 0u);
}

TEST_P(Parallel, HostMemoryGoesFromThreadToThread) {
  TraceBuilder builder;
  for (std::uint64_t id = 1; id <= 50; ++id) {
    builder.on_thread(1).host(id, 64).on_thread(2).free(id);
  }

  const auto summary = replay(builder.done(), {.threads = GetParam()});

  EXPECT_EQ(summary.pass.frees, 50u);
  EXPECT_EQ(summary.pass.leaked, 0u);
}

TEST_P(Parallel, FindsMemoryThatWasGivenTwice) {
  TraceBuilder builder;
  builder.on_thread(1).alloc(1, 100).on_thread(2).alloc(2, 5000);
  builder.on_thread(1).host(3, 8).on_thread(2).free(3).alloc(4, 777).on_thread(1).free(4).free(1);

  const auto summary = replay(builder.done(), {.threads = GetParam()}, nullptr, true);

  ASSERT_EQ(summary.violation_count, 1u);
  EXPECT_EQ(summary.violations[0].kind, log::Violation::Kind::overlap);
  EXPECT_TRUE(found_failure(summary, false));
}

TEST_P(Parallel, MemoryOfOneThreadsPerThreadStreamIsNotOrderedOnAnothers) {
  TraceBuilder builder;
  builder.on_per_thread().on_thread(1).alloc(1, 100).free(1).host(2, 8);
  builder.on_thread(2).free(2).alloc(3, 100).free(3);

  const auto summary = replay(builder.done(), {.threads = GetParam()});

  EXPECT_EQ(summary.pass.hazards, 1u);
}

TEST_P(Parallel, WorkOnAnotherThreadsPerThreadStreamIsWaitedForBeforeAFree) {
  TraceBuilder builder;
  builder.on_per_thread().on_thread(1).alloc(1, 100);
  builder.on_thread(2).use(1).host(2, 8);
  builder.on_thread(1).free(2).free(1).alloc(3, 100).free(3);

  const auto summary = replay(builder.done(), {.threads = GetParam()});

  EXPECT_EQ(summary.pass.hazards, 0u);
}

TEST_P(Parallel, AnInterruptEndsEveryThread) {
  std::atomic<bool> interrupted{true};

  const auto summary =
      replay(crossing(3, 8, 500), {.threads = GetParam(), .interrupted = &interrupted});

  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.pass.events, 0u);
}

TEST(AddressShards, WhatIsOverOverlapsNothingUntilItIsErased) {
  LiveSet live(4);
  AddressShards shards(live);
  const std::uint64_t window = std::uint64_t{1} << 28;
  const auto held = live.add(AllocId{1}, live.cache());
  live.show(held);
  ASSERT_FALSE(shards.insert(window - 512, 1024, 1));
  EXPECT_EQ(shards.insert(window, 256, 2), 1u) << "while it is live it does";

  live.hide(held);

  EXPECT_FALSE(shards.insert(window, 256, 2));
  shards.erase(window - 512, 1024, 1);
  EXPECT_EQ(shards.insert(window, 256, 3), 2u) << "the late end of one is not the other's";
  EXPECT_FALSE(shards.insert(window - 512, 512, 3)) << "of the first nothing is left";
  live.forget(held, live.cache());
}

TEST(NullManager, GivesEachThreadAddressesOfItsOwn) {
  OpenedDevice device;
  device.driver = std::make_unique<FakeDriver>();
  const auto manager = null_manager().make({.driver = device.driver.get()});
  ASSERT_TRUE(manager);
  std::map<std::uint64_t, std::uint64_t> taken;
  std::mutex mutex;
  const auto take = [&] {
    for (std::uint64_t size = 1; size < 2000; size += 7) {
      const auto memory = (*manager)->memalloc(size, {});
      ASSERT_TRUE(memory);
      const std::lock_guard lock(mutex);
      taken[memory->device_pointer().value] = size;
    }
  };

  std::thread other(take);
  take();
  other.join();

  std::uint64_t end = 0;
  for (const auto& [begin, size] : taken) {
    EXPECT_GE(begin, end);
    end = begin + size;
  }
  EXPECT_EQ(taken.size(), 2 * 286u);
}

}  // namespace
}  // namespace emm::replay
