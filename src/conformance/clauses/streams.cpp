#include <algorithm>

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

  void run(int steps) {
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
    for (int i = 0; i < steps && !b_.decided(); ++i) {
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
    const auto what = hazard.how == How::handed_out
                          ? text::format("was handed out as block {}", hazard.to)
                      : hazard.how == How::unmapped ? std::string("was unmapped")
                                                    : std::string("was given back to the device");
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
          b_.expect_ok("trim(0)", b_.manager().trim(0));
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

  void make() {
    const auto size = std::array{4_KiB, 64_KiB, 1_MiB, 5_MiB}[random_.below(4)];
    const auto stream = any();
    auto block = b_.try_memalloc(size, stream);
    if (!block && block.error().code == Errc::out_of_memory) return;
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
    if (!event) return b_.inconclusive(describe(event.error()));
    const bool ordered =
        b_.ordered().event_record(*event, earlier) && b_.ordered().stream_wait_event(later, *event);
    if (!b_.ordered().event_destroy(*event) || !ordered)
      b_.inconclusive("the device has no events");
  }

  void end(std::size_t at) {
    auto one = std::move(live_[at]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    for (const auto stream : one.also)
      wait(one.stream, stream);  // the contract has one stream for each block
    const auto stream = random_.chance(0.7)   ? one.stream
                        : random_.chance(0.5) ? any()
                                              : StreamHandle{};
    for (const auto other : one.also) order_.came_back(0, one.id, one.block.device(), other);
    order_.ending(0, one.id, one.block.device(), stream);
    if (!one.block.free(stream)) b_.expect(false, "free() on a stream", "an error", "success");
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
    StreamProgram(**fresh, subject.seed).run(120);
    b.take(**fresh);
  }
}

constexpr Clause kStreamsClauses[] = {
    {.id = "stream/hazards",
     .rule = "Memory goes to another stream, or back to the device, only when work that may touch "
             "it comes before.",
     .source = "docs/streams.md",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/reuse_waits suite/cross_stream_free threads/default_streams",
     .check = run_stream_programs},
};

}  // namespace

extern constinit const ClauseGroup streams_clauses{"Beyond the catalogue: streams",
                                                   kStreamsClauses};

}  // namespace emm
