#include "managers/pool/blocks.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace emm::pool {

inline std::uint32_t Blocks::make() {
  if (absent_ != kNone) {
    const auto block = absent_;
    absent_ = above(blocks_[block]);
    return block;
  }
  EMM_ASSERT(blocks_.size() < kNone);
  blocks_.emplace_back();
  return static_cast<std::uint32_t>(blocks_.size() - 1);
}

inline void Blocks::drop(std::uint32_t block) noexcept {
  set_state(blocks_[block], State::absent);
  link(blocks_[block], kNone, std::exchange(absent_, block));
}

inline void Blocks::insert(std::uint32_t block) noexcept {
  auto& at = blocks_[block];
  const auto bin = class_of(at.size);
  const auto head = heads_[bin];
  set_state(at, State::free);
  link(at, kNone, head);
  if (head == kNone) {
    filled_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  } else {
    link(blocks_[head], block, above(blocks_[head]));
  }
  heads_[bin] = block;
}

inline void Blocks::erase(std::uint32_t block) noexcept {
  const auto& at = blocks_[block];
  const auto down = below(at);
  const auto up = above(at);
  if (up != kNone) link(blocks_[up], down, above(blocks_[up]));
  if (down != kNone) {
    link(blocks_[down], below(blocks_[down]), up);
    return;
  }
  const auto bin = class_of(at.size);
  heads_[bin] = up;
  if (up == kNone) filled_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
}

inline void Blocks::use(std::uint32_t block) noexcept {
  auto& at = blocks_[block];
  at.tag = ((at.tag & ~3u) + 4) | static_cast<std::uint32_t>(State::used);
}

// The upper part of a block that is in no list: a new block, in no list either.
std::uint32_t Blocks::split(std::uint32_t block, std::uint32_t granules) {
  const auto rest = make();
  auto& lower = blocks_[block];
  auto& upper = blocks_[rest];
  upper.address = lower.address + bytes(granules);
  upper.size = lower.size - granules;
  upper.before = block;
  upper.after = lower.after;
  if (upper.after != kNone) blocks_[upper.after].before = rest;
  if (last_ == block) last_ = rest;
  lower.after = rest;
  lower.size = granules;
  return rest;
}

// Large blocks are few and worth a longer look than small ones.
inline std::uint32_t Blocks::best_of(std::uint32_t bin, std::uint32_t granules) const noexcept {
  auto look = granules >= 2048 ? 32 : 4;
  auto best = kNone;
  for (auto at = heads_[bin]; at != kNone && look > 0; at = above(blocks_[at]), --look) {
    const auto& block = blocks_[at];
    if (block.size < granules) continue;
    if (best == kNone || block.size < blocks_[best].size ||
        (block.size == blocks_[best].size && block.address < blocks_[best].address)) {
      best = at;
    }
  }
  return best;
}

std::uint32_t Blocks::next_bin(std::uint32_t bin) const noexcept {
  auto word = bin / 64;
  auto bits = filled_[word] & (~std::uint64_t{0} << (bin % 64));
  while (bits == 0) {
    if (++word == filled_.size()) return kNone;
    bits = filled_[word];
  }
  return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
}

// What is left of the hole, or has been joined to one, stays where it is in the lists unless its
// class changes.
inline void Blocks::resize(std::uint32_t block, std::uint32_t granules) noexcept {
  auto& at = blocks_[block];
  if (class_of(at.size) == class_of(granules)) {
    at.size = granules;
    return;
  }
  erase(block);
  at.size = granules;
  insert(block);
}

std::uint32_t Blocks::take(std::uint32_t granules) {
  const auto own = class_of(granules);
  auto hole = best_of(own, granules);
  if (hole == kNone) {
    const auto bin = next_bin(own + 1);
    if (bin == kNone) return kNone;
    hole = best_of(bin, granules);
  }
  if (blocks_[hole].size == granules) {
    erase(hole);
    use(hole);
    return hole;
  }
  const auto block = make();
  auto& lower = blocks_[block];
  auto& upper = blocks_[hole];
  lower.address = upper.address;
  lower.size = granules;
  lower.before = upper.before;
  lower.after = hole;
  if (lower.before != kNone) blocks_[lower.before].after = block;
  upper.before = block;
  upper.address += bytes(granules);
  resize(hole, upper.size - granules);
  use(block);
  return block;
}

std::uint32_t Blocks::cut(std::uint32_t block, std::uint64_t address) {
  if (blocks_[block].address == address) return block;
  erase(block);
  const auto upper = split(block, granules(address - blocks_[block].address));
  insert(block);
  insert(upper);
  return upper;
}

std::uint32_t Blocks::carve(std::uint32_t block, std::uint64_t address, std::uint32_t granules) {
  const auto part = cut(block, address);
  erase(part);
  EMM_ASSERT(blocks_[part].size >= granules);
  if (blocks_[part].size > granules) insert(split(part, granules));
  use(part);
  return part;
}

void Blocks::release(std::uint32_t block) noexcept {
  auto& at = blocks_[block];
  const auto lower = at.before;
  const auto upper = at.after;
  if (is_free(lower)) {
    auto size = blocks_[lower].size + at.size;
    auto after = upper;
    if (last_ == block) last_ = lower;
    if (is_free(upper)) {
      erase(upper);
      size += blocks_[upper].size;
      after = blocks_[upper].after;
      if (last_ == upper) last_ = lower;
      drop(upper);
    }
    blocks_[lower].after = after;
    if (after != kNone) blocks_[after].before = lower;
    resize(lower, size);
    drop(block);
  } else if (is_free(upper)) {
    auto& hole = blocks_[upper];
    hole.address = at.address;
    hole.before = lower;
    if (lower != kNone) blocks_[lower].after = upper;
    resize(upper, hole.size + at.size);
    drop(block);
  } else {
    insert(block);
  }
}

void Blocks::extend(bool joined, std::uint64_t address, std::uint32_t granules) {
  EMM_ASSERT(!joined || last_ != kNone);
  if (joined && is_free(last_)) {
    erase(last_);
    blocks_[last_].size += granules;
    insert(last_);
    return;
  }
  const auto block = make();
  auto& at = blocks_[block];
  at.address = address;
  at.size = granules;
  at.before = joined ? last_ : kNone;
  at.after = kNone;
  if (joined) blocks_[last_].after = block;
  last_ = block;
  insert(block);
}

void Blocks::remove(std::uint32_t block) noexcept {
  erase(block);
  const auto& at = blocks_[block];
  if (at.before != kNone) blocks_[at.before].after = kNone;
  if (at.after != kNone) blocks_[at.after].before = kNone;
  if (last_ == block) last_ = kNone;
  drop(block);
}

void Blocks::remove_all_free() noexcept {
  for (auto bin = next_bin(0); bin != kNone; bin = next_bin(bin)) remove(heads_[bin]);
}

void Blocks::clear() noexcept {
  heads_.fill(kNone);
  filled_.fill(0);
  absent_ = kNone;
  last_ = kNone;
  for (auto block = slots(); block-- > 0;) drop(block);
}

std::uint32_t Blocks::largest_free() const noexcept {
  for (auto word = filled_.size(); word-- > 0;) {
    if (filled_[word] == 0) continue;
    const auto bin = word * 64 + 63 - static_cast<std::size_t>(std::countl_zero(filled_[word]));
    std::uint32_t largest = 0;
    for (auto at = heads_[bin]; at != kNone; at = above(blocks_[at]))
      largest = std::max(largest, blocks_[at].size);
    return largest;
  }
  return 0;
}

}  // namespace emm::pool
