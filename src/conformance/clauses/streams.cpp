#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"

// Beyond the catalogue: the order of streams (docs/streams.md).

namespace emm {
namespace {

using namespace emm::conformance;

/// A program on several streams, at random: memory goes round in few sizes, so that what was freed
/// on one stream is soon asked for on another, while its work is pending.
class StreamProgram {
 public:
  StreamProgram(Bench& bench, std::uint64_t seed)
      : b_(bench), random_(seed), order_(bench.watch_order()) {}

  /// With `faults` the device refuses some calls about order, which the manager makes.
  void run(int steps, bool faults) {
    b_.manager();
    b_.expect(true, {}, {}, {});
    for (const auto kind :
         {StreamKind::blocking, StreamKind::non_blocking, StreamKind::non_blocking}) {
      auto made = b_.ordered().stream_create(kind);
      if (!made) return b_.inconclusive(describe(made.error()));
      streams_.push_back(*made);
    }
    if (random_.chance(0.5))
      b_.leave_on_device(std::array{64_MiB, 64_MiB, 24_MiB, 12_MiB}[random_.below(4)]);
    resets_ = random_.chance(0.3);
    is_faulty_ = faults;
    for (int i = 0; i < steps && !b_.decided() && !is_over_; ++i) {
      step();
      if (b_.watch().total() == 0)
        b_.inconclusive("the driver calls of this manager are not seen here");
      for (const auto& hazard : order_.take_found()) accuse(hazard);
    }
    while (!live_.empty() && !b_.decided()) end(live_.size() - 1);
    for (const auto stream : streams_) {
      if (stream.value != 0 && !b_.ordered().stream_destroy(stream))
        continue;  // the device goes next
    }
  }

 private:
  struct Live {
    BenchMemory block;
    std::uint32_t id = 0;
    StreamHandle stream;
    std::vector<StreamHandle> also;  ///< That work on it reaches.
  };

  void accuse(const order::Hazard& hazard) {
    using How = order::Hazard::How;
    // A manager that has to release memory and cannot wait for its work has no right way left.
    is_over_ = is_faulty_ && hazard.how != How::handed_out;
    if (is_over_) return;
    const auto what = hazard.how == How::handed_out
                          ? text::format("was handed out as block {}", hazard.to)
                      : hazard.how == How::unmapped ? std::string("was unmapped")
                                                    : std::string("was released to the device");
    b_.expect(
        false, text::format("a random program on four streams, seed {}", b_.seed()),
        text::format("memory of block {} {} while work on it may be pending", hazard.id, what),
        "an order between that work and what comes after");
  }

  StreamHandle any() { return streams_[random_.below(streams_.size())]; }

  void step() {
    switch (random_.below(16)) {
      case 0:
        return wait(any(), any());
      case 1:
        if (random_.chance(0.3)) {
          if (b_.ordered().ctx_synchronize()) return;
        } else if (random_.chance(0.4)) {
          const auto trimmed = b_.manager().trim(0);
          if (!is_faulty_) b_.expect_ok("trim(0)", trimmed);
        }
        return;
      case 2:
        if (random_.chance(0.5) && b_.ordered().stream_synchronize(any())) return;
        if (resets_ && random_.chance(0.4)) reset();
        return;
      case 3:
      case 4:
        return use();
      default:
        if (live_.size() < 16 && random_.chance(0.55)) return make();
        if (!live_.empty()) end(random_.below(live_.size()));
    }
  }

  /// While one lives, the device refuses some of the calls that order work.
  class Refusing {
   public:
    /// A request may be refused where nothing can be waited for. A free always has a wait left.
    Refusing(StreamProgram& program, bool waits_too) : program_(program) {
      if (!program_.is_faulty_ || !program_.random_.chance(0.5)) return;
      const auto count = waits_too ? kCalls.size() : kOfEvents;
      const bool all = program_.random_.chance(0.2);
      const auto one = program_.random_.below(count);
      for (std::size_t i = 0; i < count; ++i)
        if (all || i == one) program_.b_.watch().fail_always(kCalls[i], 700);
    }
    ~Refusing() {
      if (!program_.is_faulty_) return;
      for (const auto call : kCalls) program_.b_.watch().fail_always(call, 0);
    }
    Refusing(const Refusing&) = delete;
    Refusing& operator=(const Refusing&) = delete;

   private:
    static constexpr std::array kCalls{
        Call::event_create,    Call::event_record,       Call::stream_wait_event, Call::event_query,
        Call::ctx_synchronize, Call::stream_synchronize, Call::event_synchronize};
    static constexpr std::size_t kOfEvents = 3;
    StreamProgram& program_;
  };

  Result<BenchMemory> ask(std::uint64_t size, StreamHandle stream) {
    const Refusing refusing(*this, true);
    return b_.try_memalloc(size, stream);
  }

  void make() {
    const auto size = std::array{4_KiB, 64_KiB, 1_MiB, 5_MiB}[random_.below(4)];
    const auto stream = any();
    auto block = ask(size, stream);
    if (!block && (block.error().code == Errc::out_of_memory || is_faulty_)) return;
    if (!block && block.error().code == Errc::not_supported) {
      return ids_ == 0 ? b_.not_applicable(describe(block.error())) : void();
    }
    if (!b_.expect_ok("memalloc on a stream", block)) return;
    Live one{.block = *std::move(block), .id = ++ids_, .stream = stream, .also = {}};
    order_.allocated(0, one.id, one.block.device(), size, stream);
    work_on(one, stream);
    live_.push_back(std::move(one));
  }

  /// Where the device takes it; its order counts all the same.
  void work_on(const Live& one, StreamHandle stream) {
    const auto value = static_cast<std::uint8_t>(random_.below(256));
    if (!b_.device().memset_d8_async(one.block.device(), value, 1_KiB, stream)) return;
  }

  void use() {
    if (live_.empty()) return;
    auto& one = live_[random_.below(live_.size())];
    const auto stream = any();
    wait(stream, one.stream);  // for its content
    order_.used(0, one.id, one.block.device(), stream);
    work_on(one, stream);
    if (stream != one.stream) one.also.push_back(stream);
  }

  /// What `later` gets from here on comes after what `earlier` has.
  void wait(StreamHandle later, StreamHandle earlier) {
    auto event = b_.ordered().event_create();
    if (!event && is_faulty_) {  // memory went where work was pending, and the context with it
      is_over_ = true;
      return;
    }
    if (!event) return b_.inconclusive(describe(event.error()));
    const bool ordered =
        b_.ordered().event_record(*event, earlier) && b_.ordered().stream_wait_event(later, *event);
    if ((!b_.ordered().event_destroy(*event) || !ordered) && !is_faulty_)
      b_.inconclusive("the device has no events");
  }

  void end(std::size_t at) {
    auto one = std::move(live_[at]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    for (const auto stream : one.also)
      wait(one.stream, stream);  // the contract has one stream for each block
    const auto stream = random_.chance(is_faulty_ ? 0.3 : 0.7) ? one.stream
                        : random_.chance(0.5)                  ? any()
                                                               : StreamHandle{};
    for (const auto other : one.also) order_.came_back(0, one.id, one.block.device(), other);
    order_.ending(0, one.id, one.block.device(), stream);
    const Refusing refusing(*this, false);
    const auto freed = one.block.free(stream);
    if (!freed && !is_faulty_) b_.expect_ok("free() on a stream", freed);
  }

  /// Ends all memory, each block on its own stream, sometimes inside a deferral.
  void reset() {
    if (b_.is_numba()) return;  // it leaves device memory alive: RST-5
    for (const auto& one : live_) {
      for (const auto stream : one.also) {
        wait(one.stream, stream);
        order_.came_back(0, one.id, one.block.device(), stream);
      }
      order_.ending(0, one.id, one.block.device(), one.stream);
    }
    const auto deferred = random_.chance(0.7) ? std::optional(b_.defer()) : std::nullopt;
    b_.reset();
    live_.clear();
  }

  Bench& b_;
  Prng random_;
  order::Checker& order_;
  bool resets_ = false;  ///< A reset leaves little to go wrong later.
  bool is_faulty_ = false;
  bool is_over_ = false;
  std::vector<StreamHandle> streams_{{}};
  std::vector<Live> live_;
  std::uint32_t ids_ = 0;
};

void run_stream_programs(Bench& b) {
  constexpr std::int32_t kNotReady = 600;
  const std::uint64_t kPrograms = 80 * b.effort();
  b.untraceable();
  b.expect(true, {}, {}, {});
  for (std::uint64_t i = 0; i < kPrograms && !b.decided(); ++i) {
    auto subject = b.subject();
    subject.seed += i;
    auto fresh = Bench::create(subject, "stream/hazards");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    if (i % 4 == 3)  // events take their time
      (*fresh)->watch().fail_always(Call::event_query, kNotReady);
    StreamProgram(**fresh, subject.seed).run(120, i % 4 == 1);
    b.take(**fresh);
  }
}

/// Two streams that wait for nobody, on a bench whose order is checked.
class TwoStreams {
 public:
  explicit TwoStreams(Bench& bench) : b_(bench), order_(bench.watch_order()) {
    b_.untraceable();
    b_.expect(true, {}, {}, {});
    for (auto& stream : streams_) {
      auto made = b_.ordered().stream_create(StreamKind::non_blocking);
      if (made) stream = *made;
    }
    if (streams_[1].value == 0) b_.inconclusive("the device has no streams");
  }
  ~TwoStreams() {
    for (const auto stream : streams_) {
      if (stream.value != 0 && !b_.ordered().stream_destroy(stream))
        return;  // the device goes next
    }
  }
  TwoStreams(const TwoStreams&) = delete;
  TwoStreams& operator=(const TwoStreams&) = delete;
  StreamHandle operator[](std::size_t at) const noexcept { return streams_[at]; }
  order::Checker& order() noexcept { return order_; }
  void expect_order(std::string_view done) {
    for (const auto& hazard : order_.take_found())
      b_.expect(false, done,
                text::format("memory of block {} is handed out while work on it may be pending",
                             hazard.id),
                "the new owner's stream waits for that work, or all of the device was waited for");
  }

 private:
  Bench& b_;
  order::Checker& order_;
  std::array<StreamHandle, 2> streams_{};
};

/// A block that is used and freed on another stream than its own, again and again.
void change_streams_often(Bench& b) {
  constexpr std::uint32_t kTimes = 1'100;
  b.untraceable();
  TwoStreams streams(b);
  b.manager();
  for (std::uint32_t i = 1; i <= kTimes && !b.decided(); ++i) {
    auto block = b.try_memalloc(64_KiB, streams[0]);
    if (!block) return;
    streams.order().allocated(0, i, block->device(), 64_KiB, streams[0]);
    streams.expect_order(
        text::format("memalloc on one stream, and free() on another, {} times", i - 1));
    streams.order().ending(0, i, block->device(), streams[1]);
    if (!block->free(streams[1])) return;
  }
}

/// One block on each of many streams, in turn: what one freed is no other's.
void use_many_streams(Bench& b) {
  constexpr std::uint32_t kStreams = 300;
  TwoStreams streams(b);
  b.manager();
  std::vector<StreamHandle> all;
  for (std::uint32_t i = 1; i <= kStreams && !b.decided(); ++i) {
    const auto stream = b.ordered().stream_create(StreamKind::non_blocking);
    if (!stream) break;
    all.push_back(*stream);
    auto block = b.try_memalloc(64_KiB, *stream);
    if (!block) break;
    streams.order().allocated(0, i, block->device(), 64_KiB, *stream);
    streams.expect_order(text::format("a block asked for and freed on each of {} streams", i));
    streams.order().ending(0, i, block->device(), *stream);
    if (!block->free(*stream)) break;
  }
  for (const auto stream : all) {
    if (!b.ordered().stream_destroy(stream)) return;  // the device goes next
  }
}

/// Hears of each call of a manager after all else has.
class Afterwards final : public CallHook {
 public:
  std::function<void(const CallEvent&)> hears;
  std::int32_t before(const CallEvent&) override { return 0; }
  void after(const CallEvent& event) override {
    if (hears) hears(event);
  }
};

/// Memory runs out, and the manager waits for the device. What another thread frees when that wait
/// is over was not waited for.
void free_after_a_wait(Bench& b) {
  constexpr auto kSize = 4_MiB;
  TwoStreams streams(b);
  b.leave_on_device(64_MiB);
  Afterwards afterwards;
  ForwardingDriver driver(b.ordered(), afterwards);
  auto made = b.subject().factory.make({.driver = &driver,
                                        .runtime = b.runtime(),
                                        .clock = &b.platform().clock(),
                                        .observer = &b.observer(),
                                        .profile = b.subject().profile});
  if (!made || !(*made)->initialize()) return;
  auto& manager = **made;
  std::vector<MemoryPointer> blocks;
  const auto allocated = [&](const MemoryPointer& block, std::size_t stream) {
    streams.order().allocated(0, static_cast<std::uint32_t>(blocks.size() + 1),
                              block.device_pointer(), kSize, streams[stream]);
  };
  while (blocks.size() < 20) {
    auto block = manager.memalloc(kSize, streams[0]);
    if (!block) break;
    allocated(*block, 0);
    blocks.push_back(*std::move(block));
  }
  if (blocks.size() < 4) return;
  std::atomic<bool> is_due{true}, is_freed{false};
  std::thread other;
  afterwards.hears = [&](const CallEvent& event) {
    const bool waits = event.call == Call::ctx_synchronize ||
                       event.call == Call::stream_synchronize ||
                       event.call == Call::event_synchronize;
    if (!waits || !is_due.exchange(false)) return;
    other = start_thread([&] {
      streams.order().ending(0, 2, blocks[1].device_pointer(), streams[0]);
      static_cast<void>(blocks[1].free(streams[0]).has_value());
      is_freed = true;
    });
    // A manager that holds a lock here waits no longer for the free than that.
    for (int i = 0; i < 200 && !is_freed; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const auto next = manager.memalloc(kSize, streams[1]);
  is_due = false;
  if (other.joinable()) other.join();
  if (next) allocated(*next, 1);
  streams.expect_order(
      "memalloc where memory is out, and a free on another stream after the manager's wait");
}

/// Memory that the host can touch has no stream when it is handed out: work on it has ended by
/// then.
void hand_out_what_the_host_sees(Bench& b) {
  constexpr int kWrites = 16;
  b.untraceable();
  b.expect(true, {}, {}, {});
  if (b.keeps_host_memory()) return;
  const auto stream = b.stream();
  const std::array makes{
      +[](Bench& on, std::uint64_t size) { return on.try_hosted(size, {.mapped = true}); },
      +[](Bench& on, std::uint64_t size) { return on.try_managed(size); }};
  for (const auto make : makes) {
    for (const auto size : {std::uint64_t{2000}, 64_KiB, 600_KiB, 3_MiB}) {
      auto block = make(b, size);
      if (!block || block->device().value == 0) break;
      for (int i = 0; i < kWrites; ++i)
        if (!b.device().memset_d8_async(block->device(), 1, size, stream)) return;
      const auto begin = block->address();
      const auto is_managed = block->host() == nullptr;
      if (!block->free(stream)) return;
      const auto next = make(b, size);
      if (!next || next->address() >= begin + size || begin >= next->address() + size) continue;
      const auto is_done = b.device().stream_query(stream);
      b.expect(!is_done || *is_done,
               text::format("{} bytes of {} memory freed on a stream that works on them, and as "
                            "many asked for",
                            size, is_managed ? "managed" : "mapped"),
               "the same memory is handed out, and the work on it is pending",
               "other memory, or the same once that work has ended");
    }
  }
}

/// What was freed on another stream serves again, though the device refused for a while to order
/// its work.
void ask_again_after_refusals(Bench& b) {
  TwoStreams streams(b);
  b.leave_on_device(64_MiB);
  b.manager();
  const auto size = b.affordable(64_MiB) / 8 * 5;
  auto block = b.try_memalloc(size, streams[0]);
  if (!block) return;
  streams.order().allocated(0, 1, block->device(), size, streams[0]);
  streams.order().ending(0, 1, block->device(), streams[1]);
  if (!block->free(streams[1])) return;
  for (const auto call : {Call::stream_wait_event, Call::event_query, Call::event_synchronize,
                          Call::ctx_synchronize}) {
    b.watch().fail_always(call, 700);
    // Its answer is its own affair.
    static_cast<void>(b.manager().memalloc(size, streams[0]).has_value());
    b.watch().fail_always(call, 0);
  }
  b.expect_ok("flush()", b.manager().flush());
  b.expect_ok(text::format("memalloc({}) of what was freed on another stream, after the device "
                           "refused to order the work on it and does so no longer",
                           size),
              b.try_memalloc(size, streams[0]));
}

/// What the manager writes comes before what its new owner does, on whatever stream.
void check_own_writes(Bench& b) {
  b.untraceable();
  const auto stream = b.device().stream_create(StreamKind::non_blocking);
  if (!stream) return b.inconclusive(describe(stream.error()));
  for (int i = 0; i < 24 && !b.decided(); ++i) {
    const auto size = std::array{4_KiB, 64_KiB, 1_MiB, 3_MiB}[static_cast<std::size_t>(i % 4)];
    const auto value = static_cast<std::uint8_t>(i + 1);
    const auto block = b.memalloc(size, *stream);
    if (b.decided()) break;
    if (!b.device().memset_d8_async(block.device(), value, size, *stream) ||
        !b.device().stream_synchronize(*stream) || !b.device().ctx_synchronize())
      break;
    b.expect(
        b.holds(block, value),
        text::format("{} bytes asked for and written on a stream that waits for no other", size),
        "other content when the device was waited for", "what was written");
  }
  if (!b.device().stream_destroy(*stream)) return;  // the device goes next
}

constexpr Clause kStreamsClauses[] = {
    {.id = "stream/hazards",
     .rule = "Memory goes to another stream, or back to the device, only when work that may touch "
             "it comes before.",
     .source = "docs/streams.md",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/reuse_waits suite/cross_stream_free threads/default_streams",
     .check =
         [](Bench& b) {
           for (const auto check : {change_streams_often, use_many_streams, free_after_a_wait,
                                    ask_again_after_refusals, hand_out_what_the_host_sees}) {
             auto fresh = Bench::create(b.subject(), b.clause());
             if (!fresh) return b.inconclusive(describe(fresh.error()));
             check(**fresh);
             b.take(**fresh);
             if (b.decided()) return;
           }
           run_stream_programs(b);
         }},

    {.id = "stream/own_writes",
     .rule = "What a manager itself writes to memory comes before all that its new owner does "
             "there.",
     .source = "emm_plugin.h, memalloc: the memory may be used by work put on the stream",
     .level = Level::must,
     .scope = Scope::all,
     .check = check_own_writes},
};

}  // namespace

extern constinit const ClauseGroup streams_clauses{"Beyond the catalogue: streams",
                                                   kStreamsClauses};

}  // namespace emm
