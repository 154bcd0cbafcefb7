#include "trace/generate.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

/// A live allocation with the thread and the stream that made it.
struct GeneratedAllocation {
  std::uint64_t id = 0;
  std::uint64_t size = 0;
  std::uint64_t thread = 0;  // from 0
  std::uint64_t stream = 0;  // 0 is the default stream
};

/// What all patterns use: counts the operations, so that each pattern can end with everything
/// freed, and writes them to the sink. After the sink fails, more() is false and status() holds the
/// failure.
class Maker {
 public:
  Maker(const GenerateOptions& options, const GenerateKind& kind, OperationSink& sink)
      : min_size(options.min_size.value_or(kind.min_size)),
        max_size(options.max_size.value_or(kind.max_size)),
        live_target(options.live.value_or(kind.live)),
        threads(options.threads.value_or(kind.threads)),
        streams(options.streams.value_or(kind.streams)),
        random(options.seed),
        events_(options.events),
        sink_(sink) {}

  const std::uint64_t min_size, max_size, live_target, threads, streams;
  Prng random;

  /// Is there room for one more allocation, its free, and the frees of all that is live?
  bool more() const { return status_.has_value() && made_ + live_.size() + 2 <= events_; }
  bool full() const { return live_.size() >= live_target; }
  bool empty() const { return live_.empty(); }
  std::size_t count() const { return live_.size(); }
  const Status& status() const { return status_; }

  std::uint64_t any_size() { return random.log_uniform(min_size, max_size); }
  std::size_t any_block() { return static_cast<std::size_t>(random.below(live_.size())); }

  void alloc(std::uint64_t size, std::uint64_t thread = 0, std::uint64_t stream = 0) {
    Operation op{.op = Op::memalloc, .members = Members(Member::id, Member::size)};
    op.id = Id::of(++last_id_);
    op.size = size;
    live_.push_back({.id = last_id_, .size = size, .thread = thread, .stream = stream});
    ++made_;
    give(op, thread, stream);
  }
  void free(std::size_t index, std::uint64_t thread, std::uint64_t stream) {
    Operation op{.op = Op::free, .members = Members(Member::id)};
    op.id = Id::of(live_[index].id);
    ++made_;
    give(op, thread, stream);
  }
  /// Frees the allocation at `index`; the last one takes its place.
  void free_any(std::size_t index) {
    free(index, live_[index].thread, live_[index].stream);
    live_[index] = live_.back();
    live_.pop_back();
  }
  void free_newest() { free_any(live_.size() - 1); }
  /// Frees all from `first` on. With `keep_odd`, every second one stays.
  void free_from(std::size_t first, bool keep_odd = false) {
    auto kept = first;
    for (auto index = first; index < live_.size(); ++index) {
      if (keep_odd && (index - first) % 2 == 1) {
        live_[kept++] = live_[index];
      } else {
        free(index, live_[index].thread, live_[index].stream);
      }
    }
    live_.resize(kept);
  }
  GeneratedAllocation& block(std::size_t index) { return live_[index]; }

  /// Makes later work of stream `to` wait for the work of stream `from` so far.
  void order(std::uint64_t from, std::uint64_t to) {
    const auto record = text::format("r{}", ++last_record_);
    Operation op{.op = Op::event_record, .members = Members(Member::record)};
    op.record = Id::of(record);
    give(op, 0, from);
    op.op = Op::stream_wait;
    op.members = Members(Member::record);
    give(op, 0, to);
  }

  /// `capacity` 0: the header names no device.
  void begin(const GenerateOptions& options, std::uint64_t capacity) {
    Header header;
    if (capacity != 0)
      header.devices.push_back({.id = 0, .name = {}, .uuid = {}, .capacity = capacity});
    header.name = text::format("{}, seed {}", options.kind, options.seed);
    header.level = Level::synthetic;
    header.complete = header.has_complete = true;
    if (threads > 1) header.requires_.emplace_back("threads");
    if (streams > 1) header.requires_.insert(header.requires_.end(), {"streams", "events"});
    header.tool = "emmctl generate";
    status_ = sink_.on_header(header);
    for (std::uint64_t stream = 1; stream < streams; ++stream) {
      const auto name = stream_name(stream);
      Operation op{.op = Op::stream_create, .members = Members(Member::id)};
      op.id = Id::of(name);
      give(op, 0, 0);
    }
  }
  void end() {
    free_from(0);
    Operation op{
        .op = Op::end,
        .members = Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
    op.events = given_;
    give(op, 0, 0);
    if (status_) status_ = sink_.finish();
  }

 private:
  static std::string stream_name(std::uint64_t stream) { return text::format("s{}", stream); }

  void give(Operation& op, std::uint64_t thread, std::uint64_t stream) {
    if (!status_) return;
    if (threads > 1) {
      op.thread = Id::of(thread + 1);
      op.members.add(Member::thread);
    }
    std::string name;
    if (stream != 0) {
      name = stream_name(stream);
      op.stream = Id::of(name);
      op.members.add(Member::stream);
    }
    ++given_;
    status_ = sink_.on_operation(op);
  }

  std::uint64_t events_;
  OperationSink& sink_;
  std::vector<GeneratedAllocation> live_;
  std::uint64_t last_id_ = 0, last_record_ = 0, made_ = 0, given_ = 0;
  Status status_;
};

/// Sizes climb evenly from the smallest to the largest; then all are freed, oldest first.
void ramps(Maker& maker) {
  const auto steps = maker.live_target > 1 ? maker.live_target - 1 : 1;
  while (maker.more()) {
    for (std::uint64_t step = 0; step <= steps && !maker.full() && maker.more(); ++step) {
      const auto share = static_cast<double>(step) / static_cast<double>(steps);
      const auto climb = static_cast<double>(maker.max_size - maker.min_size) * share;
      maker.alloc(std::min(maker.max_size, maker.min_size + static_cast<std::uint64_t>(climb)));
    }
    maker.free_from(0);
  }
}

/// Allocates a row of equal blocks and frees every second one. The next row is twice as large and
/// fits in no gap.
void comb(Maker& maker) {
  while (maker.more()) {
    auto size = maker.any_size();
    while (maker.more()) {
      const auto first = maker.count();
      const auto row =
          std::max<std::uint64_t>((maker.live_target - first) / 2 * 2, first == 0 ? 1 : 0);
      if (row == 0) break;
      for (std::uint64_t i = 0; i < row && maker.more(); ++i) maker.alloc(size);
      maker.free_from(first, true);
      size = size > maker.max_size / 2 ? maker.max_size : 2 * size;
    }
    maker.free_from(0);
  }
}

/// Allocates up to the full number, then frees newest first, mostly not down to zero.
void sawtooth(Maker& maker) {
  while (maker.more()) {
    while (!maker.full() && maker.more()) maker.alloc(maker.any_size());
    const auto floor = maker.random.below(maker.count() / 4 + 1);
    while (maker.count() > floor) maker.free_newest();
  }
}

/// Most allocations die after a few operations; one in sixteen grows old.
void generational(Maker& maker) {
  // As the weak generational hypothesis has it: most die young.
  constexpr std::uint64_t kOldOneIn = 16;
  const auto nursery = std::max<std::uint64_t>(maker.live_target / kOldOneIn, 1);
  std::size_t old = 0;  // blocks before this index are old
  while (maker.more()) {
    if (maker.count() - old >= nursery) {
      const auto young = old + static_cast<std::size_t>(maker.random.below(maker.count() - old));
      if (maker.random.below(kOldOneIn) == 0 && old + nursery < maker.live_target) {
        std::swap(maker.block(old++), maker.block(young));
      } else {
        maker.free_any(young);
      }
    }
    maker.alloc(maker.any_size());
    if (old + nursery >= maker.live_target) {  // a full collection: half of the old die
      for (auto dying = (old + 1) / 2; dying > 0; --dying) {
        const auto index = static_cast<std::size_t>(maker.random.below(old));
        std::swap(maker.block(index), maker.block(--old));
        maker.free_any(old);
      }
    }
  }
}

/// Fills up, then frees a random allocation before each new one.
void replace(Maker& maker) {
  while (maker.more()) {
    if (maker.full()) maker.free_any(maker.any_block());
    maker.alloc(maker.any_size());
  }
}

/// The number of live allocations wanders at random between none and all.
void wander(Maker& maker) {
  while (maker.more()) {
    if (maker.full() || (!maker.empty() && maker.random.below(2) == 0)) {
      maker.free_any(maker.any_block());
    } else {
      maker.alloc(maker.any_size());
    }
  }
}

/// Large blocks are freed, small ones take their places, and as many large ones are requested
/// again: the free space suffices but is fragmented.
void split(Maker& maker) {
  const auto row = std::max<std::uint64_t>(maker.live_target / 2, 1);
  const auto fill = [&](std::uint64_t size) {
    for (std::uint64_t i = 0; i < row && !maker.full() && maker.more(); ++i) maker.alloc(size);
  };
  while (maker.more()) {
    fill(maker.max_size);
    maker.free_from(0);
    fill(maker.min_size);
    fill(maker.max_size);
    maker.free_from(0);
  }
}

/// Each thread allocates its own blocks; another thread makes one free in four.
void multi_thread(Maker& maker) {
  while (maker.more()) {
    const auto thread = maker.random.below(maker.threads);
    if (maker.full() || (!maker.empty() && maker.random.below(2) == 0)) {
      const auto index = maker.any_block();
      if (maker.random.below(4) == 0) maker.block(index).thread = thread;
      maker.free_any(index);
    } else {
      maker.alloc(maker.any_size(), thread);
    }
  }
}

/// Each stream allocates its own blocks. One free in four is made on another stream, which first
/// waits for the owner.
void multi_stream(Maker& maker) {
  while (maker.more()) {
    const auto stream = maker.random.below(maker.streams);
    if (maker.full() || (!maker.empty() && maker.random.below(2) == 0)) {
      const auto index = maker.any_block();
      auto& block = maker.block(index);
      if (block.stream != stream && maker.random.below(4) == 0) {
        maker.order(block.stream, stream);
        block.stream = stream;
      }
      maker.free_any(index);
    } else {
      maker.alloc(maker.any_size(), 0, stream);
    }
  }
}

constexpr std::array<GenerateKind, 9> kGenerateKinds{{
    {.name = "ramps", .summary = "sizes climb from the smallest to the largest, then all is freed"},
    {.name = "comb",
     .summary = "every second of a row is freed, and what comes next does not fit in the gaps"},
    {.name = "sawtooth", .summary = "up to the full number and down again, newest first"},
    {.name = "generational", .summary = "most die young, few grow old, and the old go together"},
    {.name = "log-uniform",
     .summary = "any size is as likely as its double, and any block is freed next"},
    {.name = "many-live",
     .summary = "very many small blocks at once, one replaced at a time",
     .min_size = 16,
     .max_size = 4096,
     .live = 1'000'000},
    {.name = "split",
     .summary = "large blocks are wanted again whose places small ones have taken",
     .min_size = std::uint64_t{1} << 30,
     .max_size = std::uint64_t{4} << 30,
     .live = 2,
     .tight = true},
    {.name = "multi-thread", .summary = "several threads, which free each other's", .threads = 8},
    {.name = "multi-stream",
     .summary = "several streams, which wait for each other's",
     .streams = 8},
}};
constexpr std::array<void (*)(Maker&), kGenerateKinds.size()> kPatterns{
    ramps, comb, sawtooth, generational, wander, replace, split, multi_thread, multi_stream};

Status check(const Maker& maker) {
  if (maker.min_size == 0 || maker.min_size > maker.max_size) {
    return fail(Errc::usage,
                "sizes from {} to {} bytes: expected at least 1, and the smaller first",
                maker.min_size, maker.max_size);
  }
  constexpr std::uint64_t kMost = 60'000;  // the limit of an Event, less the default ones
  if (maker.live_target == 0 || maker.threads == 0 || maker.streams == 0 || maker.threads > kMost ||
      maker.streams > kMost) {
    return fail(
        Errc::usage,
        "{} live allocations, {} threads, {} streams: expected at least 1 of each, and at most {} "
        "threads and streams",
        maker.live_target, maker.threads, maker.streams, kMost);
  }
  return {};
}

}  // namespace

std::span<const GenerateKind> generate_kinds() { return kGenerateKinds; }

Status generate(const GenerateOptions& options, OperationSink& sink) {
  const auto* const kind =
      std::find_if(kGenerateKinds.begin(), kGenerateKinds.end(),
                   [&](const auto& each) { return each.name == options.kind; });
  if (kind == kGenerateKinds.end()) {
    std::vector<std::string_view> names;
    for (const auto& each : kGenerateKinds) names.push_back(each.name);
    return fail(Errc::usage, "unknown kind of trace '{}': known are {}", options.kind,
                text::join(names));
  }
  Maker maker(options, *kind, sink);
  if (auto good = check(maker); !good) return good;
  // The capacity is the peak live bytes plus half a large block.
  const auto rows = std::max<std::uint64_t>(maker.live_target / 2, 1);
  maker.begin(options,
              kind->tight ? rows * (maker.max_size + maker.min_size) + maker.max_size / 2 : 0);
  kPatterns[static_cast<std::size_t>(kind - kGenerateKinds.begin())](maker);
  maker.end();
  return maker.status();
}

}  // namespace emm::trace
