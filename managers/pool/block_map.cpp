#include "managers/pool/block_map.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace emm::pool {

BlockMap::BlockMap(unsigned shift)
    : shift_(shift), mask_((std::uint64_t{1} << shift) - 1), blocks_(kFirst) {
  clear();
}

std::uint32_t BlockMap::add_record() {
  EMM_ASSERT(blocks_.size() < kNone);
  if (blocks_.size() == blocks_.capacity()) {  // doubles the blocks, but not the heads of the rings
    blocks_.reserve(kFirst + 2 * std::max<std::size_t>(blocks_.size() - kFirst, 16));
  }
  blocks_.emplace_back();
  return static_cast<std::uint32_t>(blocks_.size() - 1);
}

// Splits a block that is in no ring; the new upper part is in no ring either.
std::uint32_t BlockMap::split(std::uint32_t block, std::uint32_t granules) {
  const auto rest = new_record();
  auto& lower = blocks_[block];
  auto& upper = blocks_[rest];
  upper.address = lower.address + bytes(granules);
  upper.size = lower.size - granules;
  upper.before = block;
  upper.after = lower.after;
  blocks_[upper.after].before = rest;
  if (last_ == block) last_ = rest;
  lower.after = rest;
  lower.size = granules;
  return rest;
}

std::uint32_t BlockMap::split_at(std::uint32_t block, std::uint64_t address) {
  if (blocks_[block].address == address) return block;
  erase(block);
  const auto upper = split(block, granules(address - blocks_[block].address));
  insert(block);
  insert(upper);
  return upper;
}

std::uint32_t BlockMap::carve(std::uint32_t block, std::uint64_t address, std::uint32_t granules) {
  const auto part = split_at(block, address);
  erase(part);
  EMM_ASSERT(blocks_[part].size >= granules);
  if (blocks_[part].size > granules) insert(split(part, granules));
  use(part);
  return part;
}

std::uint32_t BlockMap::allocate_any(std::uint32_t granules) {
  // allocate() has found every larger class empty, so only this class is left.
  const auto bin = class_of(granules);
  for (auto at = blocks_[bin].next; at != bin; at = blocks_[at].next) {
    if (blocks_[at].size >= granules) return carve(at, blocks_[at].address, granules);
  }
  return kNone;
}

bool BlockMap::coalesce_kept() noexcept {
  bool any = false;
  for (; kept_sizes_ != 0; kept_sizes_ &= kept_sizes_ - 1) {
    for (auto& place : kept_[static_cast<std::size_t>(std::countr_zero(kept_sizes_))]) {
      const auto block = std::exchange(place, kNone);
      if (block == kNone) continue;
      coalesce(block);
      any = true;
    }
  }
  return any;
}

std::uint32_t BlockMap::largest_below(std::uint32_t granules) const noexcept {
  if (granules <= 1) return 0;
  const auto bin = class_of(granules - 1);
  auto word = bin / 64;
  auto bits = filled_[word] & (~std::uint64_t{0} >> (63 - bin % 64));
  if (bits == 0) {
    const auto words = words_ & ((std::uint64_t{1} << word) - 1);
    if (words == 0) return 0;
    word = static_cast<std::uint32_t>(std::bit_width(words)) - 1;
    bits = filled_[word];
  }
  const auto highest = word * 64 + static_cast<std::uint32_t>(std::bit_width(bits)) - 1;
  return std::min(most_of(highest), granules - 1);
}

void BlockMap::extend(bool joined, std::uint64_t address, std::uint32_t granules) {
  EMM_ASSERT(!joined || last_ != kNone);
  if (joined && is_free(last_)) {
    erase(last_);
    blocks_[last_].size += granules;
    insert(last_);
    return;
  }
  const auto block = new_record();
  auto& at = blocks_[block];
  at.address = address;
  at.size = granules;
  at.before = joined ? last_ : kEdge;
  at.after = kEdge;
  if (joined) blocks_[last_].after = block;
  last_ = block;
  insert(block);
}

void BlockMap::remove(std::uint32_t block) noexcept {
  erase(block);
  const auto& at = blocks_[block];
  blocks_[at.before].after = kEdge;
  blocks_[at.after].before = kEdge;
  if (last_ == block) last_ = kNone;
  retire(block);
}

void BlockMap::remove_all_free() noexcept {
  for (auto bin = next_bin(0); bin != kNone; bin = next_bin(bin)) remove(blocks_[bin].next);
}

void BlockMap::clear() noexcept {
  for (std::uint32_t bin = 0; bin < kClasses; ++bin)
    blocks_[bin].next = blocks_[bin].previous = bin;
  set_state(blocks_[kEdge], State::used);
  filled_.fill(0);
  words_ = 0;
  for (auto& kept : kept_) kept.fill(kNone);
  kept_sizes_ = 0;
  last_ = kNone;
  renumber();
}

void BlockMap::renumber() noexcept {
  unused_ = kNone;
  // Downwards, so that the first record heads the list of unused ones.
  for (auto block = static_cast<std::uint32_t>(blocks_.size()); block-- > kFirst;) retire(block);
}

}  // namespace emm::pool
