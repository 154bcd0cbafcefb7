// A pool of any options under a program that asks for anything, on any stream and from two threads,
// while others take from its device and its driver may fail; and what must be so after each step.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "driver/call.hpp"
#include "pool_most.hpp"
#include "pool_plan.hpp"
#include "pool_rig.hpp"
#include "pool_sound.hpp"
#include "stream_order/checker.hpp"

namespace emm::test {
namespace {

constexpr auto kNoLimit = ~std::uint64_t{0};
constexpr std::uint64_t kSeeds = 64, kSteps = 200;

std::uint64_t no_event() noexcept { return 0; }

/// Does what it is given on a thread of its own, and waits for that.
class Elsewhere {
 public:
  explicit Elsewhere(Driver& driver)
      : thread_([this, &driver] {
          EXPECT_TRUE(driver.ctx_push_current());
          while (next()) {
          }
        }) {}
  ~Elsewhere() {
    (*this)({});
    thread_.join();
  }
  void operator()(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    work_ = std::move(work);
    given_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !given_; });
  }

 private:
  bool next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return given_; });
    const bool goes_on = bool(work_);
    if (goes_on) work_();
    given_ = false;
    changed_.notify_all();
    return goes_on;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool given_ = false;
  std::thread thread_;
};

/// Fails calls as told, and counts the frees that it refused: their memory is lost to the device.
class Hook final : public CallHook {
 public:
  std::int32_t before(const CallEvent& event) override {
    const auto native = faults ? faults->before(event) : 0;
    if (native == 0) return 0;
    ++failed;
    lost += event.call == Call::mem_unmap || event.call == Call::mem_release ||
            event.call == Call::mem_free || event.call == Call::mem_address_free;
    return native;
  }
  void after(const CallEvent& event) override { waits += event.call == Call::ctx_synchronize; }
  std::optional<FaultInjector> faults;
  std::uint64_t failed = 0, lost = 0, waits = 0;
};

class Program {
 public:
  /// With `planned` the pool follows a plan, which may be of any kind.
  explicit Program(std::uint64_t seed, bool planned = false) : random_(seed), seed_(seed) {
    draw_options();
    if (planned) draw_plan();
    platform_ = *open_platform(device_, {});
    opened_ = checker_.watch(*platform_->open(0), 0);
    driver_ = std::make_unique<ForwardingDriver>(*opened_.driver, hook_);
    EXPECT_TRUE(device().ctx_push_current());
    others_.push_back(*device().mem_alloc(512 * random_.between(1, 100)));
    free_at_start_ = device().mem_get_info()->free;
    manager_ = *find_manager(spec_)->make({.driver = driver_.get(),
                                           .runtime = nullptr,
                                           .clock = &platform_->clock(),
                                           .observer = &observer_});
    const auto ready = manager_->initialize();
    EXPECT_TRUE(ready || ready.error().code == Errc::out_of_memory);
    streams_ = {StreamHandle{}, kLegacyStream, kPerThreadStream};
    for (auto own = random_.below(4); own > 0; --own) add_stream();
    elsewhere_ = std::make_unique<Elsewhere>(device());
  }

  std::string words() const { return spec_ + " on " + device_; }
  const std::vector<std::uint64_t>& addresses() const noexcept { return addresses_; }
  bool has_threads() const noexcept { return elsewhere_chance_ > 0; }
  std::uint64_t stitched = 0, refusals = 0, deferred = 0;
  unsigned long planned = 0, plan_left = 0;

  void run() {
    for (std::uint64_t step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      one_step(random_.below(100));
      look();
    }
    hook_.faults.reset();
    if (is_planned_) note_plan();
    guards_.clear();
    while (!pieces_.empty()) end(pieces_.size() - 1, false);
    managed_.clear();
    while (others_.size() > 1) others_go();
    EXPECT_TRUE(manager_->flush() && (manager_->trim(0) || hook_.failed > 0));
    look();
    EXPECT_EQ(*manager_->statistics().reserved_bytes.current, 0u);
    if (hook_.lost > 0) return;
    EXPECT_EQ(device().mem_get_info()->free, free_at_start_);
    EXPECT_TRUE(manager_->trim(0)) << "and nothing is told twice";
  }

 private:
  struct Piece {
    MemoryPointer memory;
    std::uint32_t id = 0;
    StreamHandle stream{};
    bool elsewhere = false;  ///< Asked for by the other thread.
  };

  Driver& device() { return *opened_.driver; }
  void note_plan() {
    const auto report = manager_->report();
    const auto at = report.rfind('\n', report.find(" requests served as planned")) + 1;
    EXPECT_EQ(std::sscanf(report.c_str() + at,
                          "pool: %lu requests served as planned; the plan was left %lu times",
                          &planned, &plan_left),
              2);
  }
  void draw_options() {
    const auto option = [&](const char* name, std::uint64_t value) {
      spec_ += std::string(",") + name + "=" + std::to_string(value);
    };
    maps_ = random_.chance(0.6);
    spec_ = maps_ ? "pool:backing=vmm" : "pool:backing=cumem";
    const auto capacity = 32_MiB << random_.below(5);
    limit_ = capacity;
    if (random_.chance(0.6)) {
      max_ = random_.between(2_MiB, random_.chance(0.5) ? 9_MiB : 200_MiB);
      if (random_.chance(0.4)) max_ = max_ / 2_MiB * 2_MiB;
      if (!maps_ && random_.chance(0.3)) max_ = random_.log_uniform(1, 4_MiB);
      option("max", max_);
      limit_ = std::min(limit_, max_);
    }
    if (random_.chance(0.2)) option("initial", random_.log_uniform(1, limit_));
    if (random_.chance(0.25)) option("release_threshold", threshold_ = random_.below(64_MiB));
    if (random_.chance(0.3))
      option("alignment", alignment_ = std::uint64_t{256} << random_.below(14));
    if (random_.chance(0.2)) spec_ += ",inactive_split=peak";
    device_ = "sim:costs=none,capacity=" + std::to_string(capacity) +
              ",order=random,seed=" + std::to_string(seed_);
    fails_ = random_.chance(0.3);
    elsewhere_chance_ = random_.chance(0.4) ? 0.3 : 0;
    other_stream_chance_ = random_.chance(0.5) ? 0.3 : 0;
    large_ = random_.chance(0.5);
  }
  /// A plan whose places overlap anyhow, and which a program meets that asks for a few sizes only.
  void draw_plan() {
    if (spec_.find("inactive_split") != std::string::npos) return;
    planned_sizes_[0] = planned_sizes_[1] = random_.log_uniform(1, limit_ / 64);
    if (random_.chance(0.3)) planned_sizes_[1] = random_.log_uniform(1, limit_ / 16);
    PoolPlan plan;
    plan.alignment = alignment_;
    for (auto streams = random_.between(1, 3); streams > 0; --streams) {
      std::vector<PlannedRequest> requests;
      for (auto count = random_.between(1, 30); count > 0; --count) {
        const auto at = static_cast<std::uint32_t>(requests.size());
        requests.push_back({planned_sizes_[random_.below(planned_sizes_.size())]});
        if (random_.chance(0.8))
          requests.back().end = at + 1 + static_cast<std::uint32_t>(random_.below(8));
      }
      auto stream = lay_out(requests, alignment_, streams == 1);
      stream.period_begin = static_cast<std::uint32_t>(random_.below(requests.size() + 1));
      // What the plan says of ends need not be so.
      for (auto& end : stream.ends) {
        if (random_.chance(0.1)) end += end == PoolPlan::kNever ? 0 : 3;
      }
      plan.streams.push_back(std::move(stream));
    }
    spec_ += ",plan=" + written(plan);
    is_planned_ = true;
  }
  std::uint64_t draw_size() {
    if (is_planned_ && random_.chance(0.9))
      return planned_sizes_[random_.below(planned_sizes_.size())];
    const auto statistics = manager_->statistics();
    switch (random_.below(large_ ? 40 : 12)) {
      case 0:
        return kNoLimit - random_.below(2) * 511;
      case 1:
        return std::uint64_t{1} << random_.below(64);
      case 2:
        return std::max<std::uint64_t>(*statistics.largest_free_bytes, 1);
      case 3:
        return limit_ - std::min(limit_ - 1, *statistics.reserved_bytes.current);
      case 4:
        return 2_MiB * random_.between(1, 9) - random_.below(2);
      default:
        return large_ ? random_.log_uniform(std::min(limit_, 256_KiB), limit_ / 6 + 256_KiB)
                      : random_.log_uniform(1, limit_ / 8 + 64_KiB);
    }
  }
  void add_stream() {
    streams_.push_back(*device().stream_create(random_.chance(0.7) ? StreamKind::non_blocking
                                                                   : StreamKind::blocking));
  }
  void on(bool elsewhere, const std::function<void()>& work) {
    if (elsewhere) return (*elsewhere_)(work);
    work();
  }

  void one_step(std::uint64_t what) {
    const bool elsewhere = random_.chance(elsewhere_chance_);
    if (fails_ && random_.chance(0.05)) toggle_faults();
    if (what < 50 && pieces_.size() < 50) return begin(draw_size(), elsewhere);
    if (what < 84) return pieces_.empty() ? void() : end(random_.below(pieces_.size()), elsewhere);
    if (what < 87) return trim(random_.chance(0.4) ? 0 : random_.log_uniform(1, limit_));
    if (what < 88) return reset();
    if (what < 90 && guards_.size() < 3) return guards_.push_back(manager_->defer_cleanup());
    if (what < 93 && !guards_.empty()) return guards_.pop_back();
    if (what < 94) return add_stream();
    if (what < 95) return end_stream();
    if (what < 97) return managed_memory();
    if (what < 99) return random_.chance(0.5) ? others_come() : others_go();
    while (!pieces_.empty()) end(pieces_.size() - 1, false);
    if (random_.chance(0.7)) random_ = Prng(seed_ * 3 + random_.below(2));  // nearly the same again
  }
  void toggle_faults() {
    if (hook_.faults) return hook_.faults.reset();
    hook_.faults.emplace(
        FaultPlan{.call = {}, .rate = random_.chance(0.5) ? 0.05 : 0.5, .seed = addresses_.size()});
  }

  void begin(std::uint64_t size, bool elsewhere) {
    const auto stream = streams_[random_.below(streams_.size())];
    const auto failed = hook_.failed;
    const auto waits = hook_.waits;
    const auto retries = *manager_->statistics().num_alloc_retries;
    Result<MemoryPointer> made = Error{.code = Errc::not_supported};
    on(elsewhere, [&] {
      made = manager_->memalloc(size, stream);
      if (made) checker_.allocated(0, ids_, made->device_pointer(), size, stream);
    });
    const auto statistics = manager_->statistics();
    if (!made) {
      refused_ += made.error().code == Errc::out_of_memory;
      if (hook_.failed == failed) {
        EXPECT_EQ(made.error().code, Errc::out_of_memory);
        expect_justified(size, stream);
      }
      EXPECT_EQ(statistics.num_ooms, refused_);
      return;
    }
    EXPECT_TRUE(fails_ || hook_.waits == waits || *statistics.num_alloc_retries > retries)
        << "nobody waits for the device while there is memory";
    const auto address = made->device_pointer().value;
    EXPECT_TRUE(address != 0 && address % alignment_ == 0) << address;
    for (const auto& piece : pieces_) {
      const auto at = piece.memory.device_pointer().value;
      EXPECT_TRUE(address + size <= at || at + piece.memory.size() <= address) << address;
    }
    addresses_.push_back(address);
    pieces_.push_back({*std::move(made), ids_++, stream, elsewhere});
    live_ += size;
    ever_ += size;
    peak_ = std::max(peak_, live_);
  }
  /// What there is after a refusal, whose idle memory has gone back, is less.
  void expect_justified(std::uint64_t size, StreamHandle stream) {
    if (hook_.lost > 0 || stream == kPerThreadStream) return;
    const auto reserved = *manager_->statistics().reserved_bytes.current;
    const auto of_max = max_ - std::min(max_, reserved);
    const auto on_device =
        (maps_ ? device().mem_get_info()->free : device().largest_free_bytes()) / 2_MiB * 2_MiB;
    auto room = std::min(of_max, on_device);  // whole pages, but for the last of `max`
    if (!maps_ && alignment_ > 512 && room / alignment_ * alignment_ <= 1_MiB) room = 0;
    if (stream == kLegacyStream) stream = {};
    const auto most =
        most_to_be_had(*manager_->memory_map(), stream, room, maps_, maps_ && guards_.empty());
    EXPECT_GT(size, most / alignment_ * alignment_);
    ++refusals;
  }

  void end(std::size_t index, bool elsewhere) {
    std::swap(pieces_[index], pieces_.back());
    auto piece = std::move(pieces_.back());
    pieces_.pop_back();
    auto stream = random_.chance(0.3) ? StreamHandle{} : piece.stream;
    if (random_.chance(other_stream_chance_)) {
      stream = streams_[1 + random_.below(streams_.size() - 1)];
      hand_over(piece, stream, elsewhere);
    } else if (piece.stream == kPerThreadStream) {
      elsewhere = piece.elsewhere;
    }
    const auto waits = hook_.waits;
    on(elsewhere, [&] {
      checker_.ending(0, piece.id, piece.memory.device_pointer(), stream);
      EXPECT_TRUE(piece.memory.free(stream));
    });
    EXPECT_FALSE(piece.memory.free(stream)) << "twice";
    live_ -= piece.memory.size();
    EXPECT_TRUE(threshold_ != kNoLimit || hook_.waits == waits);
    if (threshold_ != kNoLimit && !fails_ && guards_.empty()) expect_none_idle_beyond(threshold_);
    if (random_.chance(0.2)) ended_.push_back(std::move(piece.memory));
  }
  /// Orders the use as a program must: what runs on `stream` comes after what ran on the memory's
  /// stream.
  void hand_over(const Piece& piece, StreamHandle stream, bool elsewhere) {
    const auto event = *device().event_create();
    on(piece.elsewhere, [&] { EXPECT_TRUE(device().event_record(event, piece.stream)); });
    on(elsewhere, [&] {
      EXPECT_TRUE(device().stream_wait_event(stream, event));
      checker_.used(0, piece.id, piece.memory.device_pointer(), stream);
    });
    EXPECT_TRUE(device().event_destroy(event));
  }
  void expect_none_idle_beyond(std::uint64_t bytes) {
    if (*manager_->statistics().reserved_bytes.current <= bytes) return;
    auto map = *manager_->memory_map();
    for (auto& segment : map.segments) {
      for (auto& block : segment.blocks) {  // what waits is not idle
        if (block.state != MemoryMap::State::inactive)
          block.state = MemoryMap::State::active_allocated;
      }
      for (const auto& [start, end] : free_ranges_of(segment)) {
        for (const auto& piece : segment.pieces)
          EXPECT_FALSE(start <= piece.address && piece.address + piece.size <= end) << piece.size;
      }
    }
  }

  void trim(std::uint64_t keep) {
    const auto failed = hook_.failed;
    EXPECT_TRUE(manager_->trim(keep) || hook_.failed > 0);
    if (hook_.failed == failed && guards_.empty()) expect_none_idle_beyond(keep);
  }
  void reset() {
    const auto failed = hook_.failed;
    for (const auto& piece : pieces_)
      checker_.ending(0, piece.id, piece.memory.device_pointer(), {});
    manager_->reset();
    for (auto& piece : pieces_) ended_.push_back(std::move(piece.memory));
    for (auto& memory : ended_) EXPECT_FALSE(memory.free());
    pieces_.clear();
    managed_.clear();
    ended_.clear();
    live_ = 0;
    if (guards_.empty() && hook_.failed == failed) {
      EXPECT_EQ(*manager_->statistics().reserved_bytes.current, 0u);
    }
  }
  /// Ends the last stream if no memory is of it. A program waits for a stream before it ends it.
  void end_stream() {
    const auto gone = streams_.back();
    if (streams_.size() == 3 ||
        std::any_of(pieces_.begin(), pieces_.end(),
                    [&](const Piece& piece) { return piece.stream == gone; }))
      return;
    EXPECT_TRUE(device().stream_synchronize(gone) && device().stream_destroy(gone));
    streams_.pop_back();
  }
  void managed_memory() {
    if (managed_.size() > 2) return managed_.clear();
    auto made = manager_->memallocmanaged(random_.log_uniform(1, 8_MiB), AttachFlags::global);
    if (made) managed_.push_back(*std::move(made));
  }
  void others_come() {
    const auto pages = device().mem_get_info()->free / 2_MiB;
    auto made =
        device().mem_alloc((random_.chance(0.3) ? pages : random_.below(pages + 1)) * 2_MiB);
    if (made) others_.push_back(*made);
  }
  void others_go() {
    if (others_.size() == 1) return;
    EXPECT_TRUE(device().mem_free(others_.back()));
    others_.pop_back();
  }

  void look() {
    std::map<std::uint64_t, std::uint64_t> live;
    for (const auto& piece : pieces_)
      live[piece.memory.device_pointer().value] = piece.memory.size();
    ASSERT_NO_FATAL_FAILURE(expect_sound(*manager_, live));
    const auto statistics = manager_->statistics();
    EXPECT_LE(statistics.reserved_bytes.peak, max_);
    EXPECT_GE(statistics.reserved_bytes.current, statistics.active_bytes.current);
    EXPECT_LE(*statistics.largest_free_bytes,
              *statistics.reserved_bytes.current - *statistics.active_bytes.current);
    EXPECT_EQ(statistics.requested_bytes.allocated, ever_);
    EXPECT_EQ(statistics.requested_bytes.freed, ever_ - live_);
    if (const auto peak = statistics.requested_bytes.peak) {  // not known of several streams
      EXPECT_GE(*peak, peak_);
      EXPECT_GE(statistics.allocated_bytes.peak, *peak);
      EXPECT_GE(statistics.active_bytes.peak, statistics.allocated_bytes.peak);
    }
    EXPECT_EQ(statistics.allocation.allocated, addresses_.size());
    EXPECT_TRUE(checker_.take_found().empty());
    stitched += statistics.times_aliased.value_or(0) > 0;
    deferred += statistics.active_bytes.current > statistics.allocated_bytes.current;
  }

  Prng random_;
  const std::uint64_t seed_;
  std::string spec_, device_;
  bool maps_ = true, fails_ = false, large_ = false, is_planned_ = false;
  std::array<std::uint64_t, 2> planned_sizes_{};
  std::uint64_t max_ = kNoLimit, threshold_ = kNoLimit, alignment_ = 512, limit_ = 0;
  double elsewhere_chance_ = 0, other_stream_chance_ = 0;

  std::unique_ptr<Platform> platform_;
  stream_order::Checker checker_{&no_event};
  OpenedDevice opened_;
  Hook hook_;
  std::unique_ptr<ForwardingDriver> driver_;
  RecordingObserver observer_;
  std::unique_ptr<MemoryManager> manager_;
  std::unique_ptr<Elsewhere> elsewhere_;
  std::vector<StreamHandle> streams_;
  std::vector<DevicePtr> others_;  ///< Memory of the device that is not the pool's.
  std::vector<Piece> pieces_;
  std::vector<MemoryPointer> ended_;
  std::vector<ManagedMemory> managed_;
  std::vector<DeferCleanup> guards_;
  std::vector<std::uint64_t> addresses_;
  std::uint32_t ids_ = 1;
  std::uint64_t free_at_start_ = 0, live_ = 0, peak_ = 0, ever_ = 0, refused_ = 0;
};

TEST(PoolFuzz, WithAnyPlanWhatMustHoldHolds) {
  unsigned long planned = 0, left = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    Program program(seed, true);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + program.words());
    program.run();
    planned += program.planned;
    left += program.plan_left;
  }
  EXPECT_GT(planned, 500u);
  EXPECT_GT(left, 30u);
}

TEST(PoolFuzz, WhateverIsAskedOfItWhatMustHoldHolds) {
  std::uint64_t stitched = 0, refusals = 0, deferred = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    Program program(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + program.words());
    program.run();
    stitched += program.stitched;
    refusals += program.refusals;
    deferred += program.deferred;
    if (seed % 8 != 0 || program.has_threads()) continue;
    Program again(seed);
    again.run();
    EXPECT_EQ(again.addresses(), program.addresses()) << "the same requests on one thread";
  }
  EXPECT_GT(stitched, 300u);
  EXPECT_GT(refusals, 300u);
  EXPECT_GT(deferred, 300u);
}

}  // namespace
}  // namespace emm::test
