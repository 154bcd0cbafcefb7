#include "managers/pool_blocks.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace emm {

Unfinished Unfinished::on(StreamHandle a, StreamHandle b) noexcept {
  if (a == b) return on(a);
  return {.count = 2, .first = std::min(a, b), .second = std::max(a, b)};
}

std::uint32_t PoolBlocks::make_block() {
  if (absent_blocks_ != kNone) {
    const auto block = absent_blocks_;
    absent_blocks_ = blocks_[block].after;
    return block;
  }
  EMM_ASSERT(blocks_.size() < kNone);
  blocks_.emplace_back();
  return static_cast<std::uint32_t>(blocks_.size() - 1);
}

PoolBlocks::FreeKey PoolBlocks::key_of(std::uint32_t block) const noexcept {
  const auto& at = blocks_[block];
  return {.streams = at.streams, .size = at.size, .address = at.address, .block = block};
}

PoolBlocks::FreeBlocks::iterator PoolBlocks::best(const Unfinished& streams, std::uint64_t size) noexcept {
  const auto found = free_.lower_bound({.streams = streams, .size = size, .address = 0, .block = 0});
  return found != free_.end() && found->streams == streams ? found : free_.end();
}

void PoolBlocks::set_aside(FreeBlocks::iterator at, State state) noexcept {
  const auto index = at->block;
  auto& block = blocks_[index];
  block.node = free_.extract(at);
  block.state = state;
  if (slabs_[block.slab].busy++ == 0) unlink_idle(block.slab);
}

std::optional<PoolBlocks::Taken> PoolBlocks::take(std::uint64_t size, StreamHandle stream) {
  const auto wanted = rounded(size);
  const auto own = best(Unfinished::on(stream), wanted);
  const auto any = best({}, wanted);
  if (own == free_.end() && any == free_.end()) return std::nullopt;
  const auto fits_own = any == free_.end() || (own != free_.end() && own->size <= any->size);
  const auto chosen = fits_own ? own : any;
  const auto index = chosen->block;
  if (chosen->size > wanted) {
    const auto rest = make_block();
    auto& block = blocks_[index];
    auto& upper = blocks_[rest];
    upper.address = block.address + wanted;
    upper.size = block.size - wanted;
    upper.streams = block.streams;
    upper.slab = block.slab;
    upper.before = index;
    upper.after = block.after;
    upper.state = State::free;
    free_.insert(key_of(rest));
    if (upper.after != kNone) blocks_[upper.after].before = rest;
    set_aside(chosen, State::used);
    block.after = rest;
    block.size = wanted;
  } else {
    set_aside(chosen, State::used);
  }
  auto& block = blocks_[index];
  block.requested = size;
  block.streams = Unfinished::on(stream);
  ++block.generation;
  live_bytes_ += size;
  return Taken{.ptr = {block.address}, .cookie = (std::uint64_t{block.generation} << 32) | index};
}

void PoolBlocks::release(std::uint64_t cookie, StreamHandle stream) noexcept {
  const auto index = static_cast<std::uint32_t>(cookie);
  if (index >= blocks_.size() || blocks_[index].generation != cookie >> 32) return;
  const auto asked_on = blocks_[index].streams.first;
  // Nobody says a stream where memory is merely dropped: the work on it is that of the stream it was asked for on.
  end_use(index, stream == StreamHandle{} ? Unfinished::on(asked_on) : Unfinished::on(asked_on, stream));
}

void PoolBlocks::end_use(std::uint32_t index, const Unfinished& streams) noexcept {
  auto& block = blocks_[index];
  ++block.generation;
  live_bytes_ -= block.requested;
  put_back(index, streams);
}

// Joins the block with its upper neighbour where that is free and waits for `streams`.
bool PoolBlocks::join_after(std::uint32_t index, const Unfinished& streams) noexcept {
  auto& block = blocks_[index];
  const auto upper_index = block.after;
  if (upper_index == kNone) return false;
  auto& upper = blocks_[upper_index];
  if (upper.state != State::free || upper.streams != streams) return false;
  free_.erase(key_of(upper_index));
  block.size += upper.size;
  block.after = upper.after;
  if (block.after != kNone) blocks_[block.after].before = index;
  upper.state = State::absent;
  upper.after = std::exchange(absent_blocks_, upper_index);
  return true;
}

void PoolBlocks::put_back(std::uint32_t index, const Unfinished& streams) noexcept {
  const auto slab = blocks_[index].slab;
  if (--slabs_[slab].busy == 0) link_idle(slab);
  auto node = std::move(blocks_[index].node);
  blocks_[index].node = {};
  join_after(index, streams);
  const auto lower = blocks_[index].before;
  if (lower != kNone && blocks_[lower].state == State::free && blocks_[lower].streams == streams) {
    free_.erase(key_of(lower));
    auto& at = blocks_[lower];
    at.size += blocks_[index].size;
    at.after = blocks_[index].after;
    if (at.after != kNone) blocks_[at.after].before = lower;
    blocks_[index].state = State::absent;
    blocks_[index].after = std::exchange(absent_blocks_, index);
    node.value() = key_of(lower);
  } else {
    blocks_[index].state = State::free;
    blocks_[index].streams = streams;
    node.value() = key_of(index);
  }
  free_.insert(std::move(node));
}

void PoolBlocks::merge_for(StreamHandle stream) noexcept {
  const auto own = Unfinished::on(stream);
  const auto is_own = [&](std::uint32_t block) {
    return block != kNone && blocks_[block].state == State::free && blocks_[block].streams == own;
  };
  // Only blocks of the stream leave the set on the way, so the next unused one may be kept in hand.
  const auto unused = [&](FreeBlocks::iterator at) { return at != free_.end() && at->streams.count == 0; };
  auto at = free_.begin();
  for (auto more = unused(at); more;) {
    const auto next = std::next(at);
    more = unused(next);
    const auto block = at->block;
    if (is_own(blocks_[block].before) || is_own(blocks_[block].after)) {
      set_aside(at, State::parked);
      put_back(block, own);
    }
    at = next;
  }
}

std::optional<PoolBlocks::Parked> PoolBlocks::park_best(std::uint64_t size) noexcept {
  const auto wanted = rounded(size);
  auto chosen = free_.end();
  for (auto at = free_.begin(); at != free_.end();) {
    const auto streams = at->streams;
    const auto found = best(streams, wanted);
    if (found != free_.end() && (chosen == free_.end() || found->size < chosen->size)) chosen = found;
    at = free_.lower_bound({.streams = streams, .size = ~std::uint64_t{0}, .address = 0, .block = 0});
  }
  if (chosen == free_.end()) return std::nullopt;
  const Parked parked{.block = chosen->block, .streams = chosen->streams};
  set_aside(chosen, State::parked);
  return parked;
}

std::vector<PoolBlocks::Parked> PoolBlocks::park_all() {
  std::vector<Parked> parked;
  parked.reserve(free_.size());
  for (auto at = free_.begin(); at != free_.end();) {
    const auto next = std::next(at);
    if (at->streams.count > 0) {
      parked.push_back({.block = at->block, .streams = at->streams});
      set_aside(at, State::parked);
    }
    at = next;
  }
  return parked;
}

void PoolBlocks::unpark(const Parked& parked, bool finished) noexcept {
  EMM_ASSERT(blocks_[parked.block].state == State::parked);
  put_back(parked.block, finished ? Unfinished{} : parked.streams);
}

void PoolBlocks::add_slab(Slab slab) {
  const auto first = make_block();
  auto index = absent_slabs_;
  if (index == kNone) {
    index = static_cast<std::uint32_t>(slabs_.size());
    slabs_.emplace_back();
  } else {
    absent_slabs_ = slabs_[index].after;
  }
  auto& block = blocks_[first];
  block.address = slab.base.value;
  block.size = slab.size;
  block.streams = {};
  block.before = kNone;
  block.after = kNone;
  block.slab = index;
  block.state = State::free;
  slabs_[index] = {.slab = slab, .first = first};
  free_.insert(key_of(first));
  reserved_bytes_ += slab.size;
  link_idle(index);
}

std::optional<PoolBlocks::Slab> PoolBlocks::remove_idle_slab(std::uint64_t keep) noexcept {
  if (first_idle_ == kNone || reserved_bytes_ <= keep) return std::nullopt;
  const auto index = first_idle_;
  unlink_idle(index);
  for (auto block = slabs_[index].first; block != kNone;) {
    free_.erase(key_of(block));
    const auto next = blocks_[block].after;
    blocks_[block].state = State::absent;
    blocks_[block].after = std::exchange(absent_blocks_, block);
    block = next;
  }
  const auto slab = slabs_[index].slab;
  slabs_[index].after = std::exchange(absent_slabs_, index);
  reserved_bytes_ -= slab.size;
  return slab;
}

void PoolBlocks::release_all() noexcept {
  for (std::uint32_t index = 0; index < blocks_.size(); ++index) {
    if (blocks_[index].state == State::used) end_use(index, blocks_[index].streams);
  }
}

std::uint64_t PoolBlocks::largest_free_bytes() const noexcept {
  std::uint64_t largest = 0;
  for (auto at = free_.begin(); at != free_.end();) {
    at = free_.lower_bound({.streams = at->streams, .size = ~std::uint64_t{0}, .address = 0, .block = 0});
    largest = std::max(largest, std::prev(at)->size);
  }
  return largest;
}

void PoolBlocks::link_idle(std::uint32_t slab) noexcept {
  slabs_[slab].before = last_idle_;
  slabs_[slab].after = kNone;
  (last_idle_ == kNone ? first_idle_ : slabs_[last_idle_].after) = slab;
  last_idle_ = slab;
}

void PoolBlocks::unlink_idle(std::uint32_t slab) noexcept {
  const auto before = slabs_[slab].before;
  const auto after = slabs_[slab].after;
  (before == kNone ? first_idle_ : slabs_[before].after) = after;
  (after == kNone ? last_idle_ : slabs_[after].before) = before;
}

}  // namespace emm
