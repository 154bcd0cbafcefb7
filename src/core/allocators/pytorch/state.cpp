#include "allocators/pytorch/state.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "allocators/made_up_memory.hpp"
#include "allocators/pytorch/allocator.hpp"
#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/recording.hpp"
#include "base/address_range.hpp"

namespace emm::allocators::pytorch {
namespace {

using Kind = Step::Kind;

/// Follows the segments and blocks of a recording.
class Follow {
 public:
  Follow(const Recording& recording, const OneStep& found)
      : settings_(recording.settings()), found_(found) {}

  void step(const Step& step) {
    switch (step.kind) {
      case Kind::segment_begin:
        remove_range(segments_, step.address, step.size);
        segments_[step.address] = segment_of(step);
        break;
      case Kind::segment_end:
        remove_range(segments_, step.address, step.size);
        break;
      case Kind::alloc:
        blocks_[step.allocation] = {.address = step.address,
                                    .size = block_size(step),
                                    .requested = step.size,
                                    .allocation = step.allocation};
        break;
      case Kind::free:
        if (!step.delayed) {
          blocks_.erase(step.allocation);
        } else if (const auto at = blocks_.find(step.allocation); at != blocks_.end()) {
          at->second.pending = true;
        }
        break;
      case Kind::complete:
        blocks_.erase(step.allocation);
        break;
      case Kind::refused:
        break;
    }
    event_ = step.event;
  }

  State state() const {
    State out{.segments = {}, .blocks = {}, .event = event_};
    std::uint64_t end = 0;
    for (const auto& [address, segment] : segments_) {
      if (segment.size == 0 || address < end) continue;
      out.segments.push_back(segment);
      end = address + segment.size;
    }
    for (const auto& [allocation, block] : blocks_) out.blocks.push_back(block);
    std::sort(out.blocks.begin(), out.blocks.end(),
              [](const auto& a, const auto& b) { return a.address < b.address; });
    return out;
  }

 private:
  State::SegmentRange segment_of(const Step& step) const {
    State::SegmentRange held{.address = step.address,
                             .size = step.size,
                             .stream = step.stream,
                             .pool = step.pool,
                             .small = step.small,
                             .mapped = step.mapped};
    if (step.allocation < found_.segment_pools.size()) {
      held.pool = found_.segment_pools[step.allocation].id;
      held.small = found_.segment_pools[step.allocation].small;
    }
    return held;
  }
  std::uint64_t block_size(const Step& step) const {
    if (step.granted != 0) return step.granted;
    if (step.allocation < found_.blocks.size() && found_.blocks[step.allocation] != 0)
      return found_.blocks[step.allocation];
    return round_size(settings_, step.size);
  }

  const Settings& settings_;
  const OneStep& found_;
  std::map<std::uint64_t, State::SegmentRange> segments_;
  std::map<std::uint32_t, State::Used> blocks_;
  std::uint64_t event_ = 0;
};

/// An allocator that begins with a state.
struct AllocatorInState {
  MadeUpMemory source;
  Allocator allocator;
  bool fits;

  AllocatorInState(const State& state, const Settings& settings, std::uint64_t capacity)
      : source(Addresses::first_fit, capacity, nullptr),
        allocator(settings, source),
        fits(begin(state)) {}

 private:
  bool begin(const State& state) {
    allocator.begin_with(state);
    return source.begin_with(allocator.heap());
  }
};

std::uint64_t whole_units(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }

/// The largest request that is rounded to at most `size`.
std::uint64_t request_of(const Settings& settings, std::uint64_t size) {
  if (round_size(settings, size) <= size) return size;
  std::uint64_t low = 0, high = size;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    (round_size(settings, middle) <= size ? low : high) = middle;
  }
  return low;
}

/// The bytes that a run of free memory can have from `first` on, if `room` bytes can be mapped.
std::uint64_t reach(const Block* first, std::uint64_t room, std::uint64_t unit) {
  std::uint64_t bytes = 0;
  for (const auto* block = first; block != nullptr && block->state == Block::State::free;
       block = block->after) {
    if (block->mapped) {
      bytes += block->size;
      continue;
    }
    const auto maps = std::min(whole_units(room, unit), block->size);
    bytes += maps;
    room -= maps;
    if (maps < block->size) break;
  }
  return bytes;
}

}  // namespace

std::uint64_t State::reserved() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& segment : segments) sum += segment.size;
  return sum;
}

State state_before(const Recording& recording, const OneStep& found) {
  Follow follow(recording, found);
  for (const auto& step : recording.steps()) {
    // A free that was asked for before the first row is a step of the program's.
    if (step.preexisting) follow.step(step);
  }
  auto state = follow.state();
  if (state.segments.empty()) return {};
  return state;
}

State state_at_end(const Recording& recording, const OneStep& found) {
  Follow follow(recording, found);
  for (const auto& step : recording.steps()) follow.step(step);
  return follow.state();
}

std::vector<Inactive> inactive(const State& state, const Settings& settings) {
  const AllocatorInState begun(state, settings, kNoLimit);
  std::vector<Inactive> out;
  for (const auto& [key, pool] : begun.allocator.heap().pools()) {
    std::map<std::uint64_t, Inactive> by_stream;
    const auto of = [&by_stream, &of_pool = *pool](std::uint64_t stream) -> Inactive& {
      auto& found = by_stream[stream];
      found.pool = of_pool.id;
      found.small = of_pool.small;
      found.stream = stream;
      return found;
    };
    for (const auto* block : pool->free) of(block->stream).stuck += block->size;
    std::vector<Idle> idle;
    add_idle(settings, *pool, idle);
    for (const auto& piece : idle) {
      auto& found = of(piece.block->stream);
      found.returnable += piece.size;
      found.stuck -= piece.size;
    }
    for (const auto& [stream, found] : by_stream) out.push_back(found);
  }
  return out;
}

bool serves(const State& state, const Settings& settings, std::uint64_t capacity,
            std::uint64_t size, std::uint64_t stream) {
  AllocatorInState begun(state, settings, capacity);
  return begun.fits && begun.allocator.allocate(size, stream) != nullptr;
}

// The largest request either takes a free block, or new memory after the cache was emptied, alone
// or joined to what is mapped before it. Each such size is a candidate; since rounding and
// splitting decide in the end, the largest that the model serves is the answer.
std::optional<Largest> largest_request(const State& state, const Settings& settings,
                                       std::uint64_t capacity) {
  AllocatorInState begun(state, settings, capacity);
  if (!begun.fits) return std::nullopt;
  struct Candidate {
    std::uint64_t size = 0, stream = 0;
    bool from_block = false;
  };
  std::vector<Candidate> candidates;
  for (const auto small : {false, true}) {
    for (const auto* block : begun.allocator.heap().free_of({}, small)) {
      const auto most = small ? std::min(block->size, kSmallSize) : block->size;
      candidates.push_back({most, block->stream, true});
    }
  }
  begun.allocator.empty_cache();
  const auto& heap = begun.allocator.heap();
  const auto bound = std::min(capacity, settings.limit());
  const auto room = bound - std::min(bound, heap.reserved());
  const auto stream = state.segments.empty() ? 0 : state.segments.front().stream;
  const auto page = settings.expandable_segments ? settings.large_segment_size : kSmallSegment;
  for (const auto size : {whole_units(room, page), kSmallSize}) {
    if (size != 0) candidates.push_back({size, stream, false});
  }
  if (settings.expandable_segments) {
    for (const auto& [key, pool] : heap.pools()) {
      if (!pool->id.is_default()) continue;
      const auto unit = granule(settings, *pool);
      for (const auto* block : pool->unmapped) {
        const auto* const before = block->before;
        const bool joins = before != nullptr && before->state == Block::State::free;
        const auto most = reach(joins ? before : block, room, unit);
        candidates.push_back(
            {pool->small ? std::min(most, kSmallSize) : most, block->stream, false});
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.size != b.size ? a.size > b.size : a.from_block > b.from_block;
  });
  std::set<std::pair<std::uint64_t, std::uint64_t>> tried;
  for (const auto& each : candidates) {
    const auto bytes = request_of(settings, each.size);
    if (bytes == 0 || !tried.insert({bytes, each.stream}).second) continue;
    if (serves(state, settings, capacity, bytes, each.stream))
      return Largest{.bytes = bytes, .stream = each.stream, .from_block = each.from_block};
  }
  return std::nullopt;
}

}  // namespace emm::allocators::pytorch
