#include "allocators/pytorch/one_step.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "allocators/pytorch/policy.hpp"
#include "allocators/pytorch/segment_pools.hpp"
#include "base/text.hpp"

namespace emm::allocators::pytorch {
namespace {

// Rows that the model did not explain, of which a message tells.
constexpr std::size_t kMissesShown = 20;
/// Stands for the pool of a capture that has served no request yet.
constexpr PoolId kOpenPool{0, ~std::uint64_t{0}};

using Kind = Step::Kind;

/// Sizes of released address ranges, by address.
using Ranges = std::map<std::uint64_t, std::uint64_t>;

void add_range(Ranges& ranges, std::uint64_t address, std::uint64_t size) {
  ranges[address] = std::max(ranges[address], size);
}

Ranges merged(const Ranges& ranges) {
  Ranges result;
  for (const auto& [address, size] : ranges) {
    if (!result.empty()) {
      auto& last = *result.rbegin();
      if (last.first + last.second >= address) {
        last.second = std::max(last.second, address + size - last.first);
        continue;
      }
    }
    result.emplace(address, size);
  }
  return result;
}

bool covers(const Ranges& ranges, std::uint64_t address) {
  const auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address - begin < size;
}

class Walk {
 public:
  Walk(const Recording& recording, const Settings& settings, const SegmentPools& pools,
       const HeapProbe* look, std::uint64_t unexplained_most)
      : recording_(recording),
        settings_(settings),
        pools_(pools),
        look_(look),
        unexplained_most_(unexplained_most),
        heap_(settings) {}

  OneStep run() {
    found_ = {};
    found_.pools.resize(recording_.allocations());
    found_.blocks.resize(recording_.allocations());
    const auto& steps = recording_.steps();
    for (at_ = 0; at_ < steps.size() && !found_.gave_up; ++at_) step(steps[at_]);
    if (!found_.gave_up) flush();
    return std::move(found_);
  }
  /// Pairs of segment groups that cannot belong to one pool.
  const SegmentPools::Pairs& apart() const { return apart_; }

 private:
  void step(const Step& step) {
    switch (step.kind) {
      case Kind::segment_begin:
        if (step.preexisting) {
          begin_segment(step);
        } else {
          begins_.push_back(at_);
        }
        break;
      case Kind::segment_end:
        // A segment has begun that no request has used yet, so this row belongs to a later request.
        if (!begins_.empty()) flush();
        ends_.push_back(at_);
        break;
      case Kind::alloc:
        alloc(step);
        break;
      case Kind::refused:
        refuse(step);
        break;
      case Kind::free:
        flush();
        if (const auto found = live_.find(step.allocation); found != live_.end()) {
          if (step.delayed) {
            heap_.set_pending(found->second);
          } else {
            heap_.release(found->second);
            live_.erase(found);
          }
        }
        break;
      case Kind::complete:
        if (!begins_.empty()) flush();
        completes_.push_back(at_);
        break;
    }
  }

  Pool& pool_of(const Step& segment) {
    return heap_.pool(pools_.pool(segment.allocation), pools_.is_small(segment.allocation));
  }

  /// Adds the recorded segment to the heap.
  void begin_segment(const Step& segment) {
    auto& pool = pool_of(segment);
    make_room(segment);
    if (found_.gave_up) return;
    if (!segment.mapped) {
      number_of_[segment.address] = segment.allocation;
      heap_.add_segment(segment.address, segment.size, segment.stream, pool);
      return;
    }
    auto* block = unmapped_at(segment.address, segment.stream, pool);
    if (block == nullptr) {
      const auto total = settings_.total != 0 ? settings_.total : std::uint64_t{1} << 37;
      auto bytes = total / 8 * 9 / granule(settings_, pool) * granule(settings_, pool);
      const auto next = heap_.segments().upper_bound(segment.address);
      if (next != heap_.segments().end()) bytes = std::min(bytes, next->first - segment.address);
      Block key{.address = segment.address, .stream = segment.stream};
      if (pool.unmapped.count(&key) != 0) return give_up(segment);
      block = heap_.add_range(segment.address, std::max(bytes, segment.size), segment.stream, pool);
      number_of_[segment.address] = segment.allocation;
    }
    const auto size = std::min(segment.size, segment.address - block->address < block->size
                                                 ? block->size - (segment.address - block->address)
                                                 : 0);
    if (is_unmapped_twice(*block, segment.address) ||
        is_unmapped_twice(*block, segment.address + size))
      return give_up(segment);
    if (block->address < segment.address) {
      block = heap_.cut_front(block, segment.address - block->address);
    }
    heap_.map(block, size);
  }

  /// Clears the addresses of a new segment where the recording lost the end of what lay there.
  void make_room(const Step& step) {
    const auto end = step.address + step.size;
    const auto goes_on = [&](const Segment& range) {
      return step.mapped && range.expandable && range.address == step.address &&
             range.pool == &pool_of(step) && range.first->stream == step.stream;
    };
    const auto& segments = heap_.segments();
    for (auto at = segments.lower_bound(step.address); at != segments.end() && at->first < end;) {
      const auto& found = *(at++)->second;
      if (!goes_on(found)) discard(step, found);
      if (found_.gave_up) return;
    }
    const auto* const around = heap_.segment_of(step.address);
    if (around == nullptr) return;
    if (around->expandable) {
      unmap(step, *around, step.address, step.size);
    } else {
      discard(step, *around);
    }
  }
  void discard(const Step& step, const Segment& segment) {
    miss(step, "the model holds what was there before");
    lose(segment, segment.address, segment.size);
    if (segment.expandable) unmap(step, segment, segment.address, segment.size);
    if (segment.first->is_split()) give_up(step);
    if (!found_.gave_up) heap_.remove_segment(segment.first);
  }
  /// Unmaps [address, +size) of a range.
  void unmap(const Step& step, const Segment& range, std::uint64_t address, std::uint64_t size) {
    if (lose(range, address, size)) miss(step, "the model holds what was there before");
    for (auto* block = range.first; block != nullptr; block = block->after) {
      const auto begin = std::max(block->address, address);
      const auto end = std::min(block->address + block->size, address + size);
      if (!block->mapped || begin >= end) continue;
      if (is_unmapped_twice(*block, begin)) return give_up(step);
      block = heap_.unmap(block, begin, end - begin);
    }
  }
  /// Frees the blocks in use in [address, +size), whose frees the recording lost. Returns whether
  /// there were any.
  bool lose(const Segment& segment, std::uint64_t address, std::uint64_t size) {
    std::vector<Block*> lost;
    for (auto* block = segment.first; block != nullptr; block = block->after) {
      if (block->address < address + size && address < block->address + block->size &&
          block->state != Block::State::free)
        lost.push_back(block);
    }
    for (auto* block : lost) {
      live_.erase(static_cast<std::uint32_t>(block->owner));
      heap_.release(block);
    }
    return !lost.empty();
  }

  /// Answers whether another range claims the address too. This happens if rows are lost: nothing
  /// then says that the first range ended before the other began.
  static bool is_unmapped_twice(const Block& block, std::uint64_t address) {
    Block key{.address = address, .stream = block.stream};
    const auto found = block.pool->unmapped.find(&key);
    return found != block.pool->unmapped.end() && (*found)->segment != block.segment;
  }
  void give_up(const Step& step) {
    miss(step, "two ranges claim its address: what follows is not judged");
    found_.gave_up = true;
  }

  Block* unmapped_at(std::uint64_t address, std::uint64_t stream, const Pool& pool) const {
    auto* const segment = heap_.segment_of(address);
    if (segment == nullptr || segment->pool != &pool) return nullptr;
    auto* const block = heap_.block_at(address);
    if (block == nullptr || block->mapped || block->stream != stream) return nullptr;
    return block;
  }

  void end_segment(const Step& step) {
    if (step.size == 0) return;
    if (const auto* const segment = heap_.segment_of(step.address);
        segment != nullptr && lose(*segment, step.address, step.size))
      miss(step, "it is in use by the model");
    auto* block = heap_.block_at(step.address);
    if (block == nullptr || !block->is_free()) return miss(step, "the model does not hold it");
    if (!block->segment->expandable) {
      if (!block->is_split())
        heap_.remove_segment(block);
      else
        miss(step, "the model holds more of it");
      return;
    }
    const auto end = std::min(step.address + step.size, block->address + block->size);
    if (is_unmapped_twice(*block, step.address)) return give_up(step);
    block = heap_.unmap(block, step.address, end - step.address);
    if (!block->is_split()) heap_.remove_segment(block);
  }

  void miss(const Step& step, std::string_view why) {
    if (found_.misses.size() < kMissesShown)
      found_.misses.push_back(text::format("event {}: {} bytes at {}: {}", step.event, step.size,
                                           text::hex(step.address), why));
  }

  /// The addresses that rows released since the last request and that no rule has explained yet.
  Ranges ended() const {
    Ranges ranges;
    for (const auto at : ends_) {
      const auto& step = recording_.steps()[at];
      add_range(ranges, step.address, step.size);
    }
    return merged(ranges);
  }

  template <class Blocks>
  static Ranges ranges_of(const Blocks& blocks) {
    Ranges ranges;
    for (const auto& each : blocks) {
      if constexpr (std::is_pointer_v<std::decay_t<decltype(each)>>) {
        add_range(ranges, each->address, each->size);
      } else {
        add_range(ranges, each.address, each.size);
      }
    }
    return merged(ranges);
  }

  void apply_ends() {
    for (const auto at : ends_) end_segment(recording_.steps()[at]);
    ends_.clear();
  }

  void apply_completes() {
    for (const auto at : std::exchange(completes_, {})) {
      const auto found = live_.find(recording_.steps()[at].allocation);
      if (found == live_.end()) continue;
      heap_.release(found->second);
      live_.erase(found);
    }
  }

  /// Attributes the releases that no request explains to the program.
  void flush() {
    apply_completes();
    if (!ends_.empty()) {
      explain_outside();
      apply_ends();
    }
    for (const auto at : begins_) {
      ++found_.segments.recorded;
      begin_segment(recording_.steps()[at]);
      miss(recording_.steps()[at], "no request uses it");
    }
    begins_.clear();
  }

  bool looks_no_more() const { return found_.looks >= looks_most(recording_.steps().size()); }

  /// Lists all idle memory and adds the cost of the look to `looks`. Each release to be explained
  /// allows for two entries at no cost.
  std::vector<Idle> all_idle() {
    auto found = idle(settings_, heap_);
    const auto cost = found.size() + heap_.pools().size();
    found_.looks += cost - std::min(cost, 2 * ends_.size());
    return found;
  }

  void explain_outside() {
    found_.releases.recorded += ends_.size();
    if (looks_no_more()) {
      found_.unseen_releases += ends_.size();
      found_.outside.push_back({.before = ends_.front(), .what = Release::unexplained});
      return;
    }
    const auto ranges = ended();
    if (ranges == ranges_of(all_idle())) {
      found_.releases.as_recorded += ends_.size();
      found_.outside.push_back({.before = ends_.front(), .what = Release::empty_cache});
      return;
    }
    // The program dropped private pools if all their idle memory was released, alone or together
    // with all other idle memory.
    std::set<PoolId> ids;
    for (const auto at : ends_) {
      if (const auto* const segment = heap_.segment_of(recording_.steps()[at].address))
        ids.insert(segment->pool->id);
    }
    ids.erase(PoolId{});
    for (const auto id : ids) {
      for (const auto small : {false, true}) heap_.pool(id, small).unused = true;
      found_.outside.push_back(
          {.before = ends_.front(), .what = Release::pool_dropped, .pool = id});
    }
    std::vector<Idle> alone;
    for (const auto id : ids) {
      for (const auto small : {true, false}) add_idle(settings_, heap_.pool(id, small), alone);
    }
    if (ranges == ranges_of(all_idle())) {
      found_.releases.as_recorded += ends_.size();
      found_.outside.push_back({.before = ends_.front(), .what = Release::empty_cache});
    } else if (ranges == ranges_of(alone)) {
      found_.releases.as_recorded += ends_.size();
      for (auto at = found_.outside.end() - static_cast<std::ptrdiff_t>(ids.size());
           at != found_.outside.end(); ++at)
        at->at_once = true;
    } else {
      for (const auto at : ends_) miss(recording_.steps()[at], "no rule releases it");
      found_.gave_up = ++unexplained_ > unexplained_most_;
      // An empty_cache() would also have released the segments that stay idle, so the released ones
      // belong to another pool.
      const auto beside = all_idle();
      for (const auto at : ends_) {
        const auto* const segment = heap_.segment_of(recording_.steps()[at].address);
        if (segment == nullptr || !segment->pool->id.is_default() || looks_no_more()) continue;
        found_.looks += beside.size();
        for (const auto& each : beside) {
          if (each.block->pool->id.is_default() && !covers(ranges, each.address))
            set_apart(number_of_.at(segment->address), number_of_.at(each.block->segment->address));
        }
      }
      found_.outside.push_back({.before = ends_.front(), .what = Release::unexplained});
    }
  }

  Wanted wanted(const Step& step, Pool& pool, bool rounded) const {
    Wanted wanted{.pool = &pool, .stream = step.stream};
    wanted.size = rounded ? step.size : round_size(settings_, step.size);
    wanted.segment = segment_size(settings_, wanted.size);
    return wanted;
  }

  Pool* recorded_pool(const Step& step) {
    for (const auto at : begins_) {
      const auto& segment = recording_.steps()[at];
      if (step.address - segment.address < segment.size) return &pool_of(segment);
    }
    // The request may begin in a free block that was there before the rows mapped more behind it.
    if (!begins_.empty()) return &pool_of(recording_.steps()[begins_.front()]);
    auto* const segment = heap_.segment_of(step.address);
    return segment == nullptr ? nullptr : segment->pool;
  }

  bool counts_lookups() const {
    return settings_.garbage_collection_threshold > 0 && settings_.limit() != kNoLimit;
  }

  /// Follows the allocator until it has memory, and removes the releases that it makes itself from
  /// ends_. Returns the free block that then serves, or null.
  Block* search(const Wanted& wanted, bool is_refused) {
    if (counts_lookups()) ++wanted.pool->lookups;
    // Rows do not tell the completions of a retry's synchronisation from other completions.
    const auto had_block = find_free(settings_, wanted) != nullptr;
    const auto completes = completes_;
    apply_completes();
    // If only a completed free gives a block, either a retry waited for it, or the program made the
    // releases before it.
    auto* block = find_free(settings_, wanted);
    if (ends_.empty()) return block;
    if (block != nullptr && !had_block && retries(wanted, is_refused)) {
      for (const auto at : completes) found_.synchronised.insert(at);
      return nullptr;
    }
    if (block != nullptr) {
      explain_outside();
      apply_ends();
      return find_free(settings_, wanted);
    }
    if (looks_no_more()) {
      explain_outside();
      apply_ends();
      return find_free(settings_, wanted);
    }
    const auto ranges = ended();
    Ranges expected;
    const auto garbage_blocks = garbage(settings_, heap_);
    for (const auto* each : garbage_blocks) add_range(expected, each->address, each->size);
    std::uint64_t collected = 0;
    for (const auto* each : garbage_blocks) collected += each->size;
    const auto explained = [&](Release what) {
      found_.releases.recorded += ends_.size();
      found_.releases.as_recorded += ends_.size();
      if (what == Release::retry) note_retry(is_refused);
      apply_ends();
      return nullptr;
    };
    const auto limit = settings_.limit();
    const auto over = [&](std::uint64_t released) {
      return limit != kNoLimit && heap_.reserved() - released + wanted.segment > limit;
    };
    if (!garbage_blocks.empty() && merged(expected) == ranges && !over(collected))
      return explained(Release::collection);
    // A retry releases the garbage, then the oversize blocks, then all idle memory.
    auto all = expected;
    for (const auto& each : all_idle()) add_range(all, each.address, each.size);
    const auto big = oversize(settings_, wanted);
    auto with_big = expected;
    for (const auto* each : big.blocks) add_range(with_big, each->address, each->size);
    const auto must = over(collected) || is_refused;
    if (must && big.suffices && merged(with_big) == ranges) return explained(Release::oversize);
    if (must && merged(all) == ranges) return explained(Release::retry);
    if (!must && limit == kNoLimit && merged(with_big) == ranges && !big.blocks.empty())
      return explained(Release::oversize);
    explain_outside();
    apply_ends();
    return find_free(settings_, wanted);
  }

  /// If all idle memory was released and the limit demanded a retry, records that retry and applies
  /// the releases. Returns whether it did.
  bool retries(const Wanted& wanted, bool is_refused) {
    const auto limit = settings_.limit();
    if (!is_refused && (limit == kNoLimit || heap_.reserved() + wanted.segment <= limit))
      return false;
    if (looks_no_more() || ended() != ranges_of(all_idle())) return false;
    found_.releases.recorded += ends_.size();
    found_.releases.as_recorded += ends_.size();
    note_retry(is_refused);
    apply_ends();
    return true;
  }
  void note_retry(bool is_refused) {
    ++found_.retries;
    if (!is_refused) found_.retried.insert(at_);
  }

  void alloc(const Step& step) {
    if (step.preexisting) return place_preexisting(step);
    ++found_.placements.recorded;
    found_.segments.recorded += begins_.size();
    auto* const pool = recorded_pool(step);
    if (pool == nullptr) {
      miss(step, "it lies in no segment");
      flush();
      return;
    }
    found_.pools[step.allocation] = last_pool_ = pool->id;
    const auto asked = wanted(step, *pool, false);
    auto* block = search(asked, false);
    look_at(step, asked);
    if (block != nullptr && (!begins_.empty() || block->address != step.address))
      set_apart(step, *block->segment);
    auto placed = false;
    if (begins_.empty()) {
      if (block == nullptr && settings_.expandable_segments) {
        const auto found = find_room(settings_, asked);
        if (found && found->mappings.empty()) block = found->first;
      }
      placed = block != nullptr && block->address == step.address;
      if (!placed)
        miss(step, block == nullptr ? "the model finds no free block"
                                    : text::format("the model takes {} bytes at {}", block->size,
                                                   text::hex(block->address)));
    } else {
      placed = new_memory(step, asked, block);
    }
    found_.placements.as_recorded += placed ? 1 : 0;
    for (const auto at : begins_) begin_segment(recording_.steps()[at]);
    begins_.clear();
    take(step, asked);
  }

  /// Answers whether the model asks for the recorded segments and places the request as recorded.
  bool new_memory(const Step& step, const Wanted& asked, const Block* block) {
    const auto& steps = recording_.steps();
    if (block != nullptr) {
      miss(step, text::format("the model takes {} bytes at {}, and asks for no segment",
                              block->size, text::hex(block->address)));
      return false;
    }
    if (!settings_.expandable_segments) {
      const auto& segment = steps[begins_.front()];
      const auto same = begins_.size() == 1 && segment.size == asked.segment && !segment.mapped;
      found_.segments.as_recorded += same ? 1 : 0;
      if (!same)
        miss(step, text::format("the model asks for a segment of {} bytes, not {}", asked.segment,
                                segment.size));
      return same && segment.address == step.address;
    }
    const auto found = find_room(settings_, asked);
    if (!found) {
      const auto unit = granule(settings_, *asked.pool);
      const auto bytes = (asked.size + unit - 1) / unit * unit;
      const auto& segment = steps[begins_.front()];
      const auto same = begins_.size() == 1 && segment.size == bytes;
      found_.segments.as_recorded += same ? 1 : 0;
      if (!same) miss(step, text::format("the model maps {} bytes of a new range", bytes));
      return same && segment.address == step.address;
    }
    const auto& mappings = found->mappings;
    if (mappings.empty()) {
      miss(step, text::format("the model takes {} bytes at {}, and maps nothing",
                              found->first->size, text::hex(found->first->address)));
      return false;
    }
    auto same = mappings.size() == begins_.size();
    std::uint64_t agree = 0;
    for (std::size_t i = 0; i < std::min(mappings.size(), begins_.size()); ++i) {
      const auto& segment = steps[begins_[i]];
      const auto equal = mappings[i].address == segment.address && mappings[i].size == segment.size;
      agree += equal ? 1 : 0;
      same = same && equal;
      if (!equal)
        miss(segment, text::format("the model maps {} bytes at {}", mappings[i].size,
                                   text::hex(mappings[i].address)));
    }
    if (mappings.size() != begins_.size()) miss(step, "the model maps another number of pieces");
    found_.segments.as_recorded += agree;
    return same && found->first->address == step.address;
  }

  void take(const Step& step, const Wanted& asked) {
    auto* block = heap_.block_at(step.address);
    if (block == nullptr || !block->is_free()) return miss(step, "the model holds it as in use");
    const auto front = step.address - block->address;
    if (block->size - front < asked.size) return miss(step, "the block is too small");
    if (front != 0) block = heap_.cut_front(block, front);
    block = heap_.take(block, asked.size, splits(settings_, *block, asked.size));
    block->owner = step.allocation;
    live_[step.allocation] = block;
    found_.blocks[step.allocation] = block->size;
  }

  /// Places an allocation from before the first row. Its block may be larger than its request
  /// needs.
  void place_preexisting(const Step& step) {
    flush();
    auto* block = heap_.block_at(step.address);
    if (block == nullptr || !block->is_free()) return;
    if (block->address < step.address)
      block = heap_.cut_front(block, step.address - block->address);
    const auto size =
        std::min(block->size, step.granted != 0 ? step.granted : round_size(settings_, step.size));
    block = heap_.take(block, size, block->size > size);
    block->owner = step.allocation;
    live_[step.allocation] = block;
    found_.blocks[step.allocation] = block->size;
  }

  /// Answers whether a free is still pending after the completions that the rows show so far.
  bool any_stays_pending() const {
    std::set<std::uint32_t> completed;
    for (const auto at : completes_) completed.insert(recording_.steps()[at].allocation);
    return std::any_of(live_.begin(), live_.end(), [&](const auto& each) {
      return each.second->state == Block::State::pending && completed.count(each.first) == 0;
    });
  }

  void refuse(const Step& step) {
    ++found_.refusals.recorded;
    // No row names the pool of a refused request. In the default pool the allocator waits for all
    // events before it refuses, so a pending free shows that a capture or a use_mem_pool() is open.
    PoolId id{};
    if (any_stays_pending()) id = last_pool_.is_default() ? kOpenPool : last_pool_;
    if (!id.is_default()) found_.refused_pools[at_] = id;
    auto& pool = heap_.pool(id, is_small(step.size));
    const auto asked = wanted(step, pool, true);
    auto* const block = search(asked, true);
    look_at(step, asked);
    const auto limit = settings_.limit();
    const auto fits = limit != kNoLimit && heap_.reserved() + asked.segment <= limit &&
                      step.device_free > asked.segment;
    if (block == nullptr && !fits) {
      ++found_.refusals.as_recorded;
    } else {
      miss(step,
           block != nullptr ? "the model has a free block for it" : "the model is below its limit");
    }
  }

  void look_at(const Step& step, const Wanted& asked) const {
    if (look_ != nullptr && look_->event.value_or(step.event) == step.event)
      look_->at(step, heap_, asked);
  }

  /// Notes that the request's segment and `other` belong to two pools: otherwise `other` would have
  /// served the request.
  void set_apart(const Step& step, const Segment& other) {
    std::optional<std::uint32_t> own;
    if (!begins_.empty()) {
      own = recording_.steps()[begins_.front()].allocation;
    } else if (const auto* const segment = heap_.segment_of(step.address)) {
      own = number_of_.at(segment->address);
    }
    if (own) set_apart(*own, number_of_.at(other.address));
  }
  void set_apart(std::uint32_t segment, std::uint32_t other) {
    const auto a = pools_.group(segment), b = pools_.group(other);
    if (a != b) apart_.insert({std::min(a, b), std::max(a, b)});
  }

  const Recording& recording_;
  const Settings settings_;
  const SegmentPools& pools_;
  const HeapProbe* look_;
  const std::uint64_t unexplained_most_;
  std::uint64_t unexplained_ = 0;
  Heap heap_;
  OneStep found_;
  std::size_t at_ = 0;
  PoolId last_pool_{};  ///< The pool of the last served request.
  std::vector<std::size_t> begins_, ends_, completes_;
  std::unordered_map<std::uint32_t, Block*> live_;
  std::map<std::uint64_t, std::uint32_t> number_of_;
  SegmentPools::Pairs apart_;
};

}  // namespace

OneStep check_one_step(const Recording& recording, const Settings& settings, const HeapProbe* look,
                       std::uint64_t unexplained_most) {
  constexpr int kRounds = 30;  // each round may learn a segment's pool; recordings need a few
  SegmentPools pools(recording, settings);
  OneStep found;
  std::uint64_t looks = 0;
  for (int round = 0; round < kRounds; ++round) {
    Walk walk(recording, settings, pools, look, unexplained_most);
    found = walk.run();
    looks += found.looks;
    if (found.gave_up || looks >= looks_most(recording.steps().size())) break;
    if (!pools.set_apart(walk.apart())) break;
  }
  found.inferred_pools = pools.inferred();
  for (const auto& step : recording.steps()) {
    if (step.kind != Kind::segment_begin) continue;
    if (found.segment_pools.size() <= step.allocation)
      found.segment_pools.resize(step.allocation + 1);
    found.segment_pools[step.allocation] = {.id = pools.pool(step.allocation),
                                            .small = pools.is_small(step.allocation)};
  }
  return found;
}

std::optional<std::uint64_t> limit_of_collections(const Recording& recording,
                                                  const Settings& settings) {
  const auto part = settings.garbage_collection_threshold;
  if (!(part > 0) || settings.limit() != kNoLimit) return std::nullopt;
  constexpr auto kMost = std::uint64_t{1} << 60;  // No device has more.
  const auto bytes_of = [](double bytes) {
    return bytes < static_cast<double>(kMost) ? static_cast<std::uint64_t>(bytes) : kMost;
  };
  // `collected` holds the reserved bytes before each release that a new segment followed. Served
  // requests show that the limit is at least `least`; refused ones, that it is less than `most`.
  std::set<std::uint64_t> collected;
  std::uint64_t reserved = 0, least = 0, most = kNoLimit;
  std::uint64_t before_ends = 0;  // 0: nothing was released since the last request.
  for (const auto& step : recording.steps()) {
    switch (step.kind) {
      case Kind::segment_end:
        if (before_ends == 0) before_ends = reserved;
        reserved -= std::min(reserved, step.size);
        break;
      case Kind::segment_begin:
        if (before_ends != 0) collected.insert(before_ends);
        before_ends = 0;
        reserved += step.size;
        least = std::max(least, reserved);
        break;
      case Kind::refused:
        most = std::min(most, reserved + segment_size(settings, step.size));
        before_ends = 0;
        break;
      case Kind::alloc:
        before_ends = 0;
        break;
      case Kind::free:
      case Kind::complete:
        break;
    }
  }
  constexpr std::size_t kTries = 8;  // limits that are tried; each costs a walk of the recording
  std::size_t tries = 0;
  const auto from = bytes_of(part * static_cast<double>(least));
  for (auto at = collected.upper_bound(from); at != collected.end() && tries < kTries; ++at) {
    const auto limit = std::min(bytes_of(static_cast<double>(*at - 1) / part), most - 1);
    if (limit < least || limit >= kMost) continue;
    ++tries;
    auto limited = settings;
    limited.known_limit = limit;
    // One row that is not explained refutes the limit.
    constexpr std::uint64_t kUnexplainedMost = 1;
    const auto found = check_one_step(recording, limited, nullptr, kUnexplainedMost);
    if (!found.gave_up && found.misses.empty()) return limit;
  }
  return std::nullopt;
}

namespace {

/// Bounds the limit from below by served requests. Bounds it from above by refused requests or, if
/// `by_releases`, by releases that came before new memory.
LimitRange limit_within(const Recording& recording, const Settings& settings, bool by_releases) {
  LimitRange range{.least = 0, .below = kNoLimit};
  std::uint64_t reserved = 0;
  std::optional<std::uint64_t> before_release;  // Since the last request.
  // Reserved bytes before the new memory of the next request. The mapped bytes may pass the limit,
  // because the allocator checks the limit with the size of a whole segment.
  std::optional<std::uint64_t> before;
  for (const auto& step : recording.steps()) {
    switch (step.kind) {
      case Kind::segment_begin:
        if (!before && !step.preexisting) before = reserved;
        reserved += step.size;
        break;
      case Kind::segment_end:
        if (!before_release) before_release = reserved;
        reserved -= std::min(reserved, step.size);
        before.reset();
        break;
      case Kind::alloc:
        if (before) {
          const auto segment = segment_size(settings, round_size(settings, step.size));
          range.least = std::max(range.least, *before + segment);
          if (by_releases && before_release)
            range.below = std::min(range.below, *before_release + segment);
        }
        before.reset();
        before_release.reset();
        break;
      case Kind::refused: {
        const auto segment = segment_size(settings, step.size);
        if (!by_releases && step.device_free >= segment)
          range.below = std::min(range.below, reserved + segment);
        before.reset();
        before_release.reset();
        break;
      }
      case Kind::free:
      case Kind::complete:
        break;
    }
  }
  return range;
}
bool is_bound(const LimitRange& range) noexcept {
  return range.below != kNoLimit && range.below > range.least;
}

}  // namespace

std::optional<LimitRange> limit_of_refusals(const Recording& recording, const Settings& settings) {
  const auto range = limit_within(recording, settings, false);
  return is_bound(range) ? std::optional(range) : std::nullopt;
}

std::optional<LimitRange> limit_of_releases(const Recording& recording, const Settings& settings) {
  const auto range = limit_within(recording, settings, true);
  if (!is_bound(range)) return std::nullopt;
  auto limited = settings;
  limited.known_limit = range.below - 1;
  constexpr std::uint64_t kUnexplainedMost = 1;  // one row that is not explained refutes the limit
  const auto found = check_one_step(recording, limited, nullptr, kUnexplainedMost);
  if (found.gave_up || !found.misses.empty()) return std::nullopt;
  return range;
}

std::string_view name(LimitBy by) noexcept {
  switch (by) {
    case LimitBy::collections:
      return "collections";
    case LimitBy::refusals:
      return "refusals";
    case LimitBy::releases:
      break;
  }
  return "releases";
}

std::optional<InferredLimit> inferred_limit(const Recording& recording) {
  const auto& settings = recording.settings();
  if (recording.limit_is_inferred()) {
    auto range = limit_within(recording, settings, false);
    range.below = std::min(range.below, settings.limit() + 1);
    return InferredLimit{.range = range, .by = LimitBy::collections};
  }
  if (settings.fraction || settings.limit() != kNoLimit) return std::nullopt;
  const auto range = limit_of_refusals(recording, settings);
  if (!range) return std::nullopt;
  return InferredLimit{.range = *range, .by = LimitBy::refusals};
}

}  // namespace emm::allocators::pytorch
