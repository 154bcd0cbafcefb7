#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: the order of streams (docs/streams.md).

namespace emm {
namespace {

using namespace emm::conformance;

/// A random program on several streams. It reuses memory in a few sizes, so that what was freed on
/// one stream is soon requested on another while its work is pending.
class StreamProgram {
 public:
  StreamProgram(Bench& bench, std::uint64_t seed)
      : b_(bench), random_(seed), defers_(seed), order_(bench.watch_order()) {}

  /// With `faults`, the device refuses some of the manager's calls that order work. Deferrals begin
  /// and end meanwhile if `in_deferrals`.
  void run(int steps, bool faults, bool in_deferrals) {
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
    // A program uses few sizes, so that its memory is reused. Half of the programs have random
    // sizes: one of each band, or only large ones, which are often neighbours.
    if (random_.chance(0.2)) {
      for (auto& size : sizes_) size = 8_MiB + random_.below(6_MiB);
    } else if (random_.chance(0.4)) {
      sizes_ = {1 + random_.below(2_KiB), 2_KiB + random_.below(1_MiB),
                1_MiB + random_.below(5_MiB), 6_MiB + random_.below(18_MiB)};
    }
    resets_ = random_.chance(0.3);
    is_faulty_ = faults;
    for (int i = 0; i < steps && !b_.decided() && !is_over_; ++i) {
      if (in_deferrals) defer();
      step();
      if (b_.watch().total() == 0)
        b_.inconclusive("the driver calls of this manager are not seen here");
      for (const auto& hazard : order_.take_found()) accuse(hazard);
    }
    deferrals_.clear();
    while (!live_.empty() && !b_.decided()) end(live_.size() - 1);
    for (const auto stream : streams_) {
      if (stream.value != 0 && !b_.ordered().stream_destroy(stream))
        continue;  // the whole device is reset next
    }
  }

 private:
  struct Live {
    BenchMemory block;
    std::uint32_t id = 0;
    StreamHandle stream;
    std::vector<StreamHandle> also;  ///< Other streams with work on it.
  };

  void accuse(const stream_order::Hazard& hazard) {
    // A manager that must release memory and cannot wait for its work has no correct choice left.
    is_over_ = is_faulty_ && hazard.how != stream_order::Hazard::How::handed_out;
    if (is_over_) return;
    b_.expect(false, text::format("a random program on four streams, seed {}", b_.seed()),
              describe(hazard), "an order between that work and what comes after");
  }

  /// Begins or ends a deferral now and then, whatever else happens.
  void defer() {
    if (!defers_.chance(0.1)) return;
    if (deferrals_.size() < 2 && defers_.chance(0.5)) {
      deferrals_.push_back(b_.defer());
    } else if (!deferrals_.empty()) {
      deferrals_.erase(deferrals_.begin());
    }
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
    /// A request may fail if nothing can be waited for. A free always needs some way to wait.
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
    static constexpr std::size_t kOfEvents = 4;  // the first of kCalls are the calls of events
    StreamProgram& program_;
  };

  Result<BenchMemory> ask(std::uint64_t size, StreamHandle stream) {
    const Refusing refusing(*this, true);
    return b_.try_memalloc(size, stream);
  }

  void make() {
    const auto size = sizes_[random_.below(sizes_.size())];
    const auto stream = any();
    auto block = ask(size, stream);
    if (!block && (block.error().code == Errc::out_of_memory || is_faulty_)) return;
    // Larger than any block that the manager gives
    if (!block && ids_ != 0 && size > 5_MiB) return;
    if (!block && block.error().code == Errc::not_supported) {
      return ids_ == 0 ? b_.not_applicable(describe(block.error())) : void();
    }
    if (!b_.expect_ok("memalloc on a stream", block)) return;
    Live one{.block = *std::move(block), .id = ++ids_, .stream = stream, .also = {}};
    order_.allocated(0, one.id, one.block.device(), size, stream);
    work_on(one, stream);
    live_.push_back(std::move(one));
  }

  /// Puts work on the memory if the device accepts it. The checker counts it in any case.
  void work_on(const Live& one, StreamHandle stream) {
    const auto value = static_cast<std::uint8_t>(random_.below(256));
    const auto size = std::min<std::uint64_t>(one.block.size(), 1_KiB);
    if (!b_.device().memset_d8_async(one.block.device(), value, size, stream)) return;
  }

  void use() {
    if (live_.empty()) return;
    auto& one = live_[random_.below(live_.size())];
    const auto stream = any();
    wait(stream, one.stream);  // for what that stream's work writes
    order_.used(0, one.id, one.block.device(), stream);
    work_on(one, stream);
    if (stream != one.stream) one.also.push_back(stream);
  }

  /// Orders later work on `later` after the work that `earlier` has.
  void wait(StreamHandle later, StreamHandle earlier) {
    auto event = b_.ordered().event_create();
    // Memory was reused while work was pending, which destroyed the context
    if (!event && is_faulty_) {
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
    if (b_.is_numba()) return;  // it leaves device memory live: RST-5
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
  Prng random_, defers_;
  stream_order::Checker& order_;
  std::list<Deferral> deferrals_;
  bool resets_ = false;  ///< After a reset, little is left that can go wrong.
  bool is_faulty_ = false;
  bool is_over_ = false;
  std::vector<StreamHandle> streams_{{}};
  std::array<std::uint64_t, 4> sizes_{4_KiB, 64_KiB, 1_MiB, 5_MiB};
  std::vector<Live> live_;
  std::uint32_t ids_ = 0;
};

void run_stream_programs(Bench& b) {
  // The checker hears the same calls on any device, and a real one takes far longer.
  const auto programs = (b.is_simulated() ? 80 : 16) * b.effort();
  b.untraceable();
  b.expect(true, {}, {}, {});
  for (std::uint64_t i = 0; i < programs && !b.decided(); ++i) {
    auto subject = b.subject();
    subject.seed += i;
    auto fresh = Bench::create(subject, "stream/hazards");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    if (i % 8 == 3)  // no event completes
      (*fresh)->watch().fail_always(Call::event_query, kNotReady);
    if (i % 8 == 7) {  // some events complete
      (*fresh)->watch().fail(
          Call::event_query,
          {0,         kNotReady, 0, 0,         kNotReady, 0,         kNotReady, kNotReady,
           0,         kNotReady, 0, 0,         0,         kNotReady, kNotReady, 0,
           kNotReady, 0,         0, kNotReady, 0,         kNotReady, 0,         kNotReady});
    }
    StreamProgram(**fresh, subject.seed).run(120, i % 4 == 1, i % 2 == 1);
    b.take(**fresh);
  }
}

/// Streams without implicit synchronization, on a bench that checks their order.
class OwnStreams {
 public:
  explicit OwnStreams(Bench& bench) : b_(bench), order_(bench.watch_order()) {
    b_.untraceable();
    b_.expect(true, {}, {}, {});
    for (auto& stream : streams_) {
      auto made = b_.ordered().stream_create(StreamKind::non_blocking);
      if (made) stream = *made;
    }
    if (streams_.back().value == 0) b_.inconclusive("the device has no streams");
  }
  ~OwnStreams() {
    for (const auto stream : streams_) {
      if (stream.value != 0 && !b_.ordered().stream_destroy(stream))
        return;  // the whole device is reset next
    }
  }
  OwnStreams(const OwnStreams&) = delete;
  OwnStreams& operator=(const OwnStreams&) = delete;
  StreamHandle operator[](std::size_t at) const noexcept { return streams_[at]; }
  stream_order::Checker& order() noexcept { return order_; }
  void expect_order(std::string_view done) {
    for (const auto& hazard : order_.take_found())
      b_.expect(false, done, describe(hazard),
                "the new owner's stream waits for that work, or all of the device was waited for");
  }

 private:
  Bench& b_;
  stream_order::Checker& order_;
  std::array<StreamHandle, 4> streams_{};
};

/// A separate manager on the streams' device. Two hooks hear its driver calls: before() when a call
/// begins, after() when all other hooks have heard its end. A hook uses variables of its clause,
/// which end before the manager does, so it ends first: with the Hook that is returned. No other
/// thread may call the manager then.
class HookedManager {
 public:
  template <class Heard>
  class [[nodiscard]] Hook {
   public:
    Hook(std::function<Heard>& hook, std::function<Heard> heard) : hook_(hook) {
      hook_ = std::move(heard);
    }
    ~Hook() { hook_ = nullptr; }
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   private:
    std::function<Heard>& hook_;
  };

  explicit HookedManager(Bench& bench) : driver_(bench.ordered(), hooks_) {
    auto made = bench.subject().factory.make({.driver = &driver_,
                                              .runtime = bench.runtime(),
                                              .clock = &bench.platform().clock(),
                                              .observer = &bench.observer(),
                                              .profile = bench.subject().profile});
    if (made && (*made)->initialize()) manager_ = *std::move(made);
  }
  explicit operator bool() const noexcept { return manager_ != nullptr; }
  MemoryManager& operator*() noexcept { return *manager_; }
  MemoryManager* operator->() noexcept { return manager_.get(); }
  /// A result other than 0 is the call's answer.
  auto before(std::function<std::int32_t(const CallEvent&)> heard) {
    return Hook(hooks_.hears_before, std::move(heard));
  }
  auto after(std::function<void(const CallEvent&)> heard) {
    return Hook(hooks_.hears_after, std::move(heard));
  }
  /// False if no allocation was heard. The manager then calls the runtime, and its waits are not
  /// heard either.
  bool is_heard() const noexcept { return hooks_.has_heard; }

 private:
  struct Hooks final : CallHook {
    std::function<std::int32_t(const CallEvent&)> hears_before;
    std::function<void(const CallEvent&)> hears_after;
    std::atomic<bool> has_heard{false};
    std::int32_t before(const CallEvent& event) override {
      if (event.call == Call::mem_alloc || event.call == Call::mem_create ||
          event.call == Call::mem_alloc_async || event.call == Call::mem_alloc_from_pool_async)
        has_heard = true;
      return hears_before ? hears_before(event) : 0;
    }
    void after(const CallEvent& event) override {
      if (hears_after) hears_after(event);
    }
  };
  Hooks hooks_;
  ForwardingDriver driver_;
  std::unique_ptr<MemoryManager> manager_;
};

/// Runs `act` on another thread, and waits long enough for a manager that holds no lock here.
class Meanwhile {
 public:
  ~Meanwhile() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void run(std::function<void()> act) {
    if (thread_.joinable()) return;
    thread_ = start_thread([this, act = std::move(act)] {
      act();
      is_done_ = true;
    });
    for (int i = 0; i < 200 && !is_done_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::atomic<bool> is_done_{false};
  std::thread thread_;
};

bool is_wait(Call call) {
  return call == Call::ctx_synchronize || call == Call::stream_synchronize ||
         call == Call::event_synchronize;
}

/// Uses and frees a block on another stream than its own, again and again.
void change_streams_often(Bench& b) {
  constexpr std::uint32_t kTimes = 1'100;  // more than 1,024, at which tables often end
  b.untraceable();
  OwnStreams streams(b);
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

/// Uses one block on each of many streams in turn. No stream may get what another one freed.
void use_many_streams(Bench& b) {
  constexpr std::uint32_t kStreams = 300;  // more than 256, at which tables often end
  OwnStreams streams(b);
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
    if (!b.ordered().stream_destroy(stream)) return;  // the whole device is reset next
  }
}

/// Frees more blocks with pending work than a manager may like to keep events for.
void free_many_with_work(Bench& b) {
  constexpr std::uint32_t kBlocks = 2'400;  // events that may be alive at the same time
  OwnStreams streams(b);
  b.manager();
  b.watch().fail_always(Call::event_query, kNotReady);
  b.watch().fail_always(Call::stream_query, kNotReady);
  std::vector<BenchMemory> blocks;
  std::uint32_t id = 0;
  const auto ask = [&](StreamHandle stream) {
    auto block = b.try_memalloc(8_KiB, stream);
    if (!block) return false;
    streams.order().allocated(0, ++id, block->device(), 8_KiB, stream);
    blocks.push_back(*std::move(block));
    return true;
  };
  while (blocks.size() < kBlocks && ask(streams[0])) {
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    streams.order().ending(0, static_cast<std::uint32_t>(i + 1), blocks[i].device(), streams[0]);
    if (!blocks[i].free(streams[0])) break;
  }
  for (std::uint32_t i = 0; i < kBlocks / 2 && !b.decided() && ask(streams[1]); ++i)
    streams.expect_order(
        text::format("{} blocks freed on a stream that has work, and others asked "
                     "for on another stream",
                     kBlocks / 2));
  b.watch().fail_always(Call::event_query, 0);
  b.watch().fail_always(Call::stream_query, 0);
}

/// Memory runs out and the manager waits for the device. What another thread frees after that wait
/// is not covered by it.
void free_after_a_wait(Bench& b) {
  constexpr auto kSize = 4_MiB;  // two pages: blocks that managers do not cut from slabs
  OwnStreams streams(b);
  b.leave_on_device(64_MiB);
  HookedManager manager(b);
  if (!manager) return;
  std::vector<MemoryPointer> blocks;
  const auto allocated = [&](const MemoryPointer& block, std::size_t stream) {
    streams.order().allocated(0, static_cast<std::uint32_t>(blocks.size() + 1),
                              block.device_pointer(), kSize, streams[stream]);
  };
  while (blocks.size() < 20) {
    auto block = manager->memalloc(kSize, streams[0]);
    if (!block) break;
    allocated(*block, 0);
    blocks.push_back(*std::move(block));
  }
  if (blocks.size() < 4) return;
  Meanwhile meanwhile;
  std::atomic<bool> is_due{true};
  const auto hook = manager.after([&](const CallEvent& event) {
    if (!is_wait(event.call) || !is_due.exchange(false)) return;
    meanwhile.run([&] {
      streams.order().ending(0, 2, blocks[1].device_pointer(), streams[0]);
      static_cast<void>(blocks[1].free(streams[0]).has_value());
    });
  });
  const auto next = manager->memalloc(kSize, streams[1]);
  is_due = false;
  if (next) allocated(*next, 1);
  streams.expect_order(
      "memalloc where memory is out, and a free on another stream after the manager's wait");
  meanwhile.join();
}

/// The manager waits, or asks, for work of another stream on behalf of a third one. Just after
/// that, the memory is handed out to its own stream, used and freed there. What the manager learnt
/// then is out of date.
void use_again_after_a_wait(Bench& b, std::size_t nth, bool queries) {
  constexpr auto kSize = 4_MiB;  // two pages: blocks that managers do not cut from slabs
  constexpr std::uint32_t kBlocks = 8;
  OwnStreams streams(b);
  if (!queries) b.leave_on_device(kBlocks * kSize + 2_MiB);
  HookedManager manager(b);
  if (!manager) return;
  std::atomic<std::uint32_t> ids{0};  // the other thread may still run when this one goes on
  const auto allocate = [&](std::uint64_t size, StreamHandle stream, std::uint32_t id) {
    auto block = manager->memalloc(size, stream);
    if (block) streams.order().allocated(0, id, block->device_pointer(), size, stream);
    return block;
  };
  std::vector<MemoryPointer> blocks;
  while (blocks.size() < kBlocks) {
    auto block = allocate(kSize, streams[0], ++ids);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
  if (blocks.size() < 4 || !manager.is_heard()) return;
  for (std::uint32_t id = 1; auto& block : blocks) {
    streams.order().ending(0, id++, block.device_pointer(), streams[1]);
    if (!block.free(streams[1])) return;
  }
  const auto not_ready = manager.before([queries](const CallEvent& event) {
    return !queries && event.call == Call::event_query ? kNotReady : 0;
  });
  Meanwhile meanwhile;
  std::atomic<std::size_t> waits{0};
  const auto hook = manager.after([&](const CallEvent& event) {
    if (queries ? event.call != Call::event_query : !is_wait(event.call)) return;
    if (++waits != nth) return;
    meanwhile.run([&] {
      const auto id = ++ids;
      auto again = allocate(kSize, streams[0], id);
      if (!again) return;
      streams.order().ending(0, id, again->device_pointer(), streams[0]);
      static_cast<void>(again->free(streams[0]).has_value());
    });
  });
  const auto size = queries ? kSize : 2 * kSize;
  std::vector<MemoryPointer> next;
  while (next.size() < kBlocks) {
    auto block = manager->memalloc(size, streams[2]);
    waits = nth;
    if (!block) break;
    streams.order().allocated(0, ++ids, block->device_pointer(), size, streams[2]);
    next.push_back(*std::move(block));
  }
  streams.expect_order(
      "memalloc, and the use and free on another stream of memory that it has just waited for");
  meanwhile.join();
}

void use_again_after_waits(Bench& b) {
  for (const bool queries : {false, true}) {
    for (std::size_t nth = 1; nth <= 3; ++nth)
      b.apart([&](Bench& on) { use_again_after_a_wait(on, nth, queries); });
  }
}

/// Frees neighbours, some on their own stream and some on another one, whose work goes on. Only
/// those whose work has ended may serve, whatever they are merged with.
void ask_beside_pending_neighbours(Bench& b) {
  constexpr std::uint32_t kBlocks = 24;  // neighbours on both sides of those that are asked for
  constexpr std::array kSizes{64_KiB, 1_MiB, 10_MiB};
  for (std::size_t way = 0; way < 2 * kSizes.size(); ++way) {
    const auto size = kSizes[way / 2];
    const bool from_one = way % 2 == 1;
    b.apart([&](Bench& on) {
      OwnStreams streams(on);
      HookedManager manager(on);
      if (!manager) return;
      std::mutex mutex;
      std::map<std::uint64_t, StreamHandle> recorded;
      const auto hook = manager.before([&](const CallEvent& event) {
        const std::lock_guard lock(mutex);
        if (event.call == Call::event_record) recorded[event.pointer] = event.stream;
        return event.call == Call::event_query && recorded[event.pointer] == streams[1] ? kNotReady
                                                                                        : 0;
      });
      std::uint32_t ids = 0;
      const auto allocate = [&](std::uint64_t bytes) {
        auto block = manager->memalloc(bytes, streams[0]);
        if (block) streams.order().allocated(0, ++ids, block->device_pointer(), bytes, streams[0]);
        return block;
      };
      std::vector<MemoryPointer> blocks, next;
      if (from_one) {  // a manager that cuts blocks cuts them from this one
        auto whole = allocate(size * kBlocks);
        if (!whole) return;
        streams.order().ending(0, ids, whole->device_pointer(), streams[0]);
        if (!whole->free(streams[0]) || !on.ordered().ctx_synchronize()) return;
      }
      const auto first = ids + 1;
      while (blocks.size() < kBlocks) {
        auto block = allocate(size);
        if (!block) break;
        blocks.push_back(*std::move(block));
      }
      if (!manager.is_heard()) return;
      for (std::uint32_t at = 0; at < blocks.size(); ++at) {
        const auto on_stream = streams[(at + 1) / 2 % 2];
        streams.order().ending(0, first + at, blocks[at].device_pointer(), on_stream);
        if (!blocks[at].free(on_stream)) return;
      }
      while (next.size() < kBlocks) {
        auto block = allocate(next.size() % 2 == 0 ? size : 2 * size);
        if (!block) break;
        next.push_back(*std::move(block));
      }
      streams.expect_order(
          text::format("blocks of {} bytes freed on two streams, and some asked for again", size));
    });
  }
}

/// Another stream takes a part of what one has freed, and a third one's free records an event. The
/// rest still waits for the first stream's work.
void ask_for_the_rest(Bench& b) {
  // Names of blocks in the order that is watched.
  constexpr std::uint32_t kWhole = 1, kOther = 2, kPart = 3, kRest = 4;
  for (const auto size : {64_KiB, 1_MiB, 8_MiB}) {
    b.apart([&](Bench& on) {
      OwnStreams streams(on);
      for (const auto call : {Call::event_query, Call::stream_query})
        on.watch().fail_always(call, kNotReady);
      on.manager();
      const auto allocate = [&](std::uint32_t id, std::uint64_t bytes, std::size_t stream) {
        auto block = on.try_memalloc(bytes, streams[stream]);
        if (block) streams.order().allocated(0, id, block->device(), bytes, streams[stream]);
        return block;
      };
      const auto end = [&](std::uint32_t id, BenchMemory& block, std::size_t stream) {
        streams.order().ending(0, id, block.device(), streams[stream]);
        return block.free(streams[stream]).has_value();
      };
      auto whole = allocate(kWhole, size, 0);
      auto other = allocate(kOther, 700, 2);
      if (!whole || !other || !end(kWhole, *whole, 0)) return;
      auto part = allocate(kPart, size / 4, 1);
      if (!part || !end(kOther, *other, 2)) return;
      auto rest = allocate(kRest, size / 2, 3);
      if (!rest) return;
      streams.expect_order(
          text::format("{} bytes freed on one stream, a quarter of them asked for on another one, "
                       "other memory freed on a third, and half of them asked for on a fourth",
                       size));
      if (!end(kRest, *rest, 3) || !end(kPart, *part, 1)) return;
    });
  }
}

/// A request comes while a free records the event that it must wait for.
void ask_while_a_free_records(Bench& b) {
  OwnStreams streams(b);
  HookedManager manager(b);
  if (!manager) return;
  std::uint32_t ids = 0;
  for (const auto freed_on : {streams[0], streams[1]}) {
    auto block = manager->memalloc(64_KiB, streams[0]);
    if (!block) return;
    streams.order().allocated(0, ++ids, block->device_pointer(), 64_KiB, streams[0]);
    streams.order().ending(0, ids, block->device_pointer(), freed_on);
    std::optional<Result<MemoryPointer>> next;
    std::atomic<bool> is_due{true};
    Meanwhile meanwhile;
    const auto hook = manager.before([&](const CallEvent& event) {
      if (event.call == Call::event_record && is_due.exchange(false))
        meanwhile.run([&] { next = manager->memalloc(64_KiB, streams[2]); });
      return 0;
    });
    const auto freed = block->free(freed_on);
    is_due = false;
    meanwhile.join();
    if (!freed) return;
    if (!next || !*next) continue;
    streams.order().allocated(0, ++ids, (*next)->device_pointer(), 64_KiB, streams[2]);
    streams.expect_order("memalloc on a third stream while a free records its event");
    streams.order().ending(0, ids, (*next)->device_pointer(), streams[2]);
  }
}

/// Memory that the host can access has no stream when it is handed out. Work on it must have ended
/// by then, however it was freed and whatever the device refused.
void hand_out_what_the_host_sees(Bench& b) {
  constexpr int kWrites = 16;  // pieces of work that are still pending
  struct Way {
    std::string_view words;
    std::initializer_list<Call> refused_at_free{}, refused_at_request{};
    bool resets = false;
  };
  static const Way kWays[] = {
      {.words = "freed on a stream that works on them"},
      {.words = "freed on a stream that works on them, the device refusing events",
       .refused_at_free = {Call::event_create, Call::event_record}},
      {.words = "freed on a stream that works on them, where asking for that work fails",
       .refused_at_request = {Call::event_query, Call::stream_query}},
      {.words = "which a reset in a deferral ended while a stream worked on them", .resets = true}};
  b.untraceable();
  b.expect(true, {}, {}, {});
  if (b.keeps_host_memory()) return;
  const auto stream = b.device().stream_create(StreamKind::non_blocking);
  if (!stream) return b.inconclusive(describe(stream.error()));
  const std::array makes{
      +[](Bench& on, std::uint64_t size) { return on.try_hosted(size, {.mapped = true}); },
      +[](Bench& on, std::uint64_t size) { return on.try_managed(size); }};
  const auto refuse = [&](std::initializer_list<Call> calls, std::int32_t native) {
    for (const auto call : calls) b.watch().fail_always(call, native);
  };
  const auto judge = [&](auto make, std::uint64_t size, const Way& way) {
    auto block = make(b, size);
    if (!block || block->device().value == 0) return false;
    for (int i = 0; i < kWrites; ++i)
      if (!b.device().memset_d8_async(block->device(), 1, size, *stream)) return false;
    const auto begin = block->address();
    const auto is_managed = block->host() == nullptr;
    std::optional<Deferral> deferred;
    if (way.resets) {
      deferred.emplace(b.defer());
      b.reset();
    } else {
      refuse(way.refused_at_free, 700);
      const auto freed = block->free(*stream);
      refuse(way.refused_at_free, 0);
      if (!freed) return way.refused_at_free.size() != 0;
    }
    refuse(way.refused_at_request, 700);
    const auto next = make(b, size);
    refuse(way.refused_at_request, 0);
    if (!next || next->address() >= begin + size || begin >= next->address() + size) return true;
    const auto is_done = b.device().stream_query(*stream);
    b.expect(!is_done || *is_done,
             text::format("{} bytes of {} memory {}, and as many asked for", size,
                          is_managed ? "managed" : "mapped", way.words),
             "the same memory is handed out, and the work on it is pending",
             "other memory, or the same once that work has ended");
    return true;
  };
  for (const auto& way : kWays) {
    if (way.resets && b.is_numba()) break;  // its reset leaves memory live: RST-5
    for (const auto make : makes) {
      for (const auto size : {std::uint64_t{2000}, 64_KiB, 600_KiB, 3_MiB})
        if (!b.decided() && !judge(make, size, way)) break;
    }
  }
  if (!b.device().ctx_synchronize() || !b.device().stream_destroy(*stream)) return;
}

/// Expects blocks that were freed on another stream to serve again together, although the device
/// refused for a while to order their work. A part of one must still be as large as was asked for:
/// the bench finds out whether the next one begins in it.
void ask_again_after_refusals(Bench& b) {
  constexpr std::size_t kBlocks = 3;  // neighbours that only serve together
  constexpr std::array kAtFree{Call::event_create, Call::event_record};
  constexpr std::array kAtRequest{Call::stream_wait_event, Call::event_query,
                                  Call::event_synchronize, Call::ctx_synchronize};
  struct Again {
    std::size_t parts;
    bool is_cut;
  };
  for (const auto wanted : {Again{1, false}, Again{kBlocks, false}, Again{1, true}}) {
    for (std::size_t way = 0; way < 2 * (kAtFree.size() + 1) && !b.decided(); ++way) {
      b.apart([&](Bench& on) {
        const auto at_free = way / 2, freed_on = way % 2;
        OwnStreams streams(on);
        on.leave_on_device(64_MiB);
        on.manager();
        const auto size = on.affordable(64_MiB) / 8 * 5 / wanted.parts;
        std::vector<BenchMemory> blocks;
        for (std::uint32_t id = 1; id <= wanted.parts; ++id) {
          auto block = on.try_memalloc(size, streams[0]);
          if (!block) return;
          streams.order().allocated(0, id, block->device(), size, streams[0]);
          blocks.push_back(*std::move(block));
        }
        if (at_free < kAtFree.size()) on.watch().fail_always(kAtFree[at_free], 700);
        for (std::uint32_t id = 1; auto& block : blocks) {
          streams.order().ending(0, id++, block.device(), streams[freed_on]);
          if (!block.free(streams[freed_on])) return;
        }
        if (at_free < kAtFree.size()) on.watch().fail_always(kAtFree[at_free], 0);
        for (const auto call : kAtRequest) {
          on.watch().fail_always(Call::event_query, kNotReady);
          on.watch().fail_always(call, 700);
          // Any answer will do.
          static_cast<void>(on.manager().memalloc(size * wanted.parts, streams[2]).has_value());
          on.watch().fail_always(call, 0);
          on.watch().fail_always(Call::event_query, 0);
          if (wanted.is_cut) {
            const auto half = on.try_memalloc(size / 2, streams[2]);
            const auto beside = on.try_memalloc(size / 4, streams[2]);
          }
        }
        if (wanted.is_cut) return;
        on.expect_ok("flush()", on.manager().flush());
        // One large request is tried first: a manager that does not cut blocks would give all
        // memory to the first of several requests. The small requests follow, for a manager that
        // does not merge.
        if (on.try_memalloc(size * wanted.parts, streams[2])) return;
        std::vector<BenchMemory> again;
        while (again.size() < wanted.parts) {
          auto block = on.try_memalloc(size, streams[2]);
          if (!on.expect_ok(text::format("{} bytes asked for on another stream, after {} blocks of "
                                         "that size were freed, the device having refused to "
                                         "order the work on them, which it does no longer",
                                         size, wanted.parts),
                            block))
            return;
          again.push_back(*std::move(block));
        }
      });
    }
  }
}

/// The device refuses the second of two calls that order a block's work, or all from the second on.
/// No other stream may then get the memory, whether it asks at once or after others.
void refuse_the_second(Bench& b) {
  constexpr std::array kCalls{Call::event_create,      Call::event_record, Call::stream_wait_event,
                              Call::event_synchronize, Call::event_query,  Call::stream_synchronize,
                              Call::ctx_synchronize};
  constexpr std::uint64_t kSize = 6_MiB;  // three pages, more than a third of the room
  enum class Device { has_room, is_full, is_full_and_slow };
  // After a third party's request that half its order was made for, either stream may ask.
  constexpr std::array<std::array<std::size_t, 3>, 2> kAsking{{{3, 0, 1}, {3, 2, 0}}};
  for (const auto device : {Device::has_room, Device::is_full, Device::is_full_and_slow}) {
    constexpr std::size_t kOrders = 2;
    for (std::size_t nth = 0; nth < 2 * kOrders * kCalls.size(); ++nth) {
      const auto call = kCalls[nth / (2 * kOrders)];
      const auto& asking = kAsking[nth % 2];
      const bool is_second = nth / 2 % kOrders == 1;
      // Where no free block is large enough, a manager may wait for all of them at once.
      const bool large_first = device != Device::has_room && is_second;
      // A block between live ones joins none, whose order would stand for its own.
      const bool are_apart = device == Device::has_room && is_second;
      if (b.decided()) return;
      b.apart([&](Bench& on) {
        OwnStreams streams(on);
        if (device != Device::has_room) on.leave_on_device(3 * kSize + 2_MiB);
        if (device == Device::is_full_and_slow && call != Call::event_query)
          on.watch().fail_always(Call::event_query, kNotReady);
        on.manager();
        std::uint32_t ids = 0;
        const auto allocate = [&](std::uint64_t size, StreamHandle stream) {
          auto block = on.try_memalloc(size, stream);
          if (block) streams.order().allocated(0, ++ids, block->device(), size, stream);
          return block;
        };
        // The three blocks may then be parts of one, which can serve again as a whole.
        if (large_first) static_cast<void>(on.try_memalloc(3 * kSize, streams[0]).has_value());
        std::vector<BenchMemory> blocks, between;
        for (std::size_t i = 0; i < 3; ++i) {
          auto block = allocate(kSize, streams[i]);
          if (!block) return;
          blocks.push_back(*std::move(block));
          if (!are_apart) continue;
          auto small = on.try_memalloc(4_KiB);
          if (small) between.push_back(*std::move(small));
        }
        const bool at_free = call == Call::event_create || call == Call::event_record;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const auto freed_on = streams[(i + 1) % 3];
          streams.order().used(0, static_cast<std::uint32_t>(i + 1), blocks[i].device(), freed_on);
          streams.order().ending(0, static_cast<std::uint32_t>(i + 1), blocks[i].device(),
                                 freed_on);
          if (at_free) on.watch().fail(call, {0, 700});
          if (!blocks[i].free(freed_on)) return;
          if (at_free) on.watch().fail(call, {});
        }
        std::vector<BenchMemory> kept;
        for (const auto size : {large_first ? 2 * kSize : kSize, large_first ? kSize : 2 * kSize}) {
          for (const auto stream : asking) {
            if (!at_free && large_first) on.watch().fail(call, {0, 700, 700, 700, 700});
            if (!at_free && !large_first) on.watch().fail(call, {0, 700});
            auto next = allocate(size, streams[stream]);
            on.watch().fail(call, {});
            streams.expect_order(text::format(
                "{} refused when it is called for the second time{} for {}, and {} "
                "bytes asked for on another stream",
                call_info(call).cuda_name, large_first && !at_free ? " and after it" : "",
                at_free ? "a free" : "a request", size));
            if (!next) continue;
            streams.order().ending(0, ids, next->device(), streams[stream]);
            kept.push_back(*std::move(next));
          }
        }
        for (auto& block : kept) block.drop();
      });
    }
  }
}

/// The device refuses what a trim needs. What then stays idle still waits for the work on it.
void refuse_a_trim(Bench& b) {
  constexpr std::array kCalls{Call::stream_wait_event,  Call::event_query,     Call::mem_free,
                              Call::event_synchronize,  Call::ctx_synchronize, Call::mem_unmap,
                              Call::stream_synchronize, Call::mem_free_async};
  for (const auto call : kCalls) {
    for (const auto size : {4_KiB, 200_KiB, 5_MiB}) {
      if (b.decided()) return;
      b.apart([&](Bench& on) {
        OwnStreams streams(on);
        on.manager();
        std::uint32_t ids = 0;
        std::vector<BenchMemory> blocks, next;
        const auto allocate = [&](std::vector<BenchMemory>& into, StreamHandle stream) {
          auto block = on.try_memalloc(size, stream);
          if (!block) return false;
          streams.order().allocated(0, ++ids, block->device(), size, stream);
          into.push_back(*std::move(block));
          return true;
        };
        while (blocks.size() < 3)
          if (!allocate(blocks, streams[0])) return;
        for (std::uint32_t id = 1; auto& block : blocks) {
          streams.order().ending(0, id++, block.device(), streams[1]);
          if (!block.free(streams[1])) return;
        }
        if (call != Call::event_query) on.watch().fail_always(Call::event_query, kNotReady);
        on.watch().fail_always(call, 700);
        static_cast<void>(on.manager().trim(0).has_value());
        on.watch().fail_always(call, 0);
        on.watch().fail_always(Call::event_query, 0);
        on.watch().forgive();
        while (next.size() < 3)
          if (!allocate(next, streams[2])) return;
        streams.expect_order(text::format(
            "{} refused while trim(0) is to release blocks of {} bytes that were freed on another "
            "stream, and as many asked for on a third one",
            call_info(call).cuda_name, size));
      });
    }
  }
}

/// The device refuses events while memory is freed on another stream than its own. The manager can
/// wait for the device, so the work of both streams must still come before what follows.
void refuse_events_of_a_free(Bench& b) {
  for (const auto call : {Call::event_create, Call::event_record, Call::stream_wait_event}) {
    for (const std::size_t asking : {1, 2}) {
      b.apart([&](Bench& on) {
        OwnStreams streams(on);
        on.manager();
        auto block = on.try_memalloc(4_MiB, streams[0]);
        if (!block) return;
        streams.order().allocated(0, 1, block->device(), 4_MiB, streams[0]);
        streams.order().ending(0, 1, block->device(), streams[1]);
        on.watch().fail_always(call, 700);
        const auto freed = block->free(streams[1]);
        on.watch().fail_always(call, 0);
        if (!freed) return;
        const auto next = on.try_memalloc(4_MiB, streams[asking]);
        if (next) streams.order().allocated(0, 2, next->device(), 4_MiB, streams[asking]);
        streams.expect_order(text::format(
            "{} refused while a block is freed on another stream than its own, and as many bytes "
            "asked for on {}",
            call_info(call).cuda_name, asking == 1 ? "that stream" : "a third one"));
      });
    }
  }
}

/// A reset in a deferral ends a block beside one whose free waits. Where both lie in one allocation
/// of the driver, that cannot go back, and the first block may serve again at once.
void reset_beside_a_waiting_free(Bench& b) {
  if (b.is_numba()) return;            // its reset leaves memory live: RST-5
  constexpr std::uint32_t kAsked = 6;  // requests, of which one may get the block
  for (const auto size : {4_KiB, 512_KiB, 5_MiB}) {
    b.apart([&](Bench& on) {
      OwnStreams streams(on);
      on.manager();
      std::uint32_t ids = 0;
      const auto allocate = [&](StreamHandle stream) {
        auto block = on.try_memalloc(size, stream);
        if (block) streams.order().allocated(0, ++ids, block->device(), size, stream);
        return block;
      };
      const auto kept = allocate(streams[0]);
      auto waiting = allocate(streams[0]);
      if (!kept || !waiting) return;
      const auto deferred = on.defer();
      streams.order().ending(0, 2, waiting->device(), streams[0]);
      if (!waiting->free(streams[0])) return;
      streams.order().ending(0, 1, kept->device(), streams[0]);
      on.reset();
      std::vector<BenchMemory> next;
      while (next.size() < kAsked) {
        auto block = allocate(streams[1]);
        if (!block) break;
        next.push_back(*std::move(block));
      }
      streams.expect_order(text::format(
          "two blocks of {} bytes, one freed in a deferral and one ended by a reset in it, and as "
          "many bytes asked for on another stream",
          size));
    });
  }
}

/// Expects the manager to write to freed memory only behind the work on it.
void judge_writes_of_a_free(Bench& b, StreamHandle stream) {
  for (const auto size : {4_KiB, 3_MiB}) {
    auto block = b.try_memalloc(size, stream);
    if (!block) return;
    const auto begin = block->address();
    for (int i = 0; i < 16; ++i)
      if (!b.device().memset_d8_async(block->device(), 1, size, stream)) return;
    std::atomic<bool> too_soon{false};
    b.watch().during = [&](const CallEvent& event) {
      const bool writes = event.call == Call::memset_d8 ||
                          (event.call == Call::memset_d8_async && event.stream != stream);
      if (!writes || event.pointer < begin || event.pointer >= begin + size) return;
      const auto is_done = b.device().stream_query(stream);
      if (is_done && !*is_done) too_soon = true;
    };
    const auto freed = block->free(stream);
    b.watch().during = nullptr;
    b.expect(!too_soon, text::format("free() of {} bytes on a stream that works on them", size),
             "the manager writes to them while that work is pending",
             "it writes behind that work, or not at all");
    if (!freed || !b.device().stream_synchronize(stream)) return;
  }
}

/// Expects what the manager writes to come before the new owner's work, on whatever stream.
void check_own_writes(Bench& b) {
  b.untraceable();
  const auto stream = b.device().stream_create(StreamKind::non_blocking);
  if (!stream) return b.inconclusive(describe(stream.error()));
  judge_writes_of_a_free(b, *stream);
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
  if (!b.device().stream_destroy(*stream)) return;  // the whole device is reset next
}

constexpr Clause kStreamsClauses[] = {
    {.id = "stream/hazards",
     .rule = "Memory goes to another stream, or back to the device, only when work that may touch "
             "it comes before.",
     .source = "docs/streams.md",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/reuse_waits suite/cross_stream_free threads/default_streams",
     .not_of_class = "its memory has no streams",
     .check =
         [](Bench& b) {
           for (const auto check :
                {change_streams_often, use_many_streams, free_many_with_work, free_after_a_wait,
                 use_again_after_waits, ask_beside_pending_neighbours, ask_for_the_rest,
                 ask_while_a_free_records, ask_again_after_refusals, refuse_the_second,
                 refuse_a_trim, refuse_events_of_a_free, reset_beside_a_waiting_free,
                 hand_out_what_the_host_sees}) {
             b.apart(check);
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
     .not_of_class = "its memory has no streams",
     .check = check_own_writes},
};

}  // namespace

extern constinit const ClauseGroup streams_clauses{"Beyond the catalogue: streams",
                                                   kStreamsClauses};

}  // namespace emm
