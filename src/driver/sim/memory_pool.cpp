#include "driver/sim/memory_pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/units.hpp"
#include "driver/sim/latency.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm::sim {
namespace {

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

constexpr std::uint64_t kRow = 1_TiB;  // more than a device has memory for
constexpr std::uint64_t kUnit = 512;

}  // namespace

Answer<DevicePtr> MemoryPool::allocate(std::uint64_t size, Point point) {
  if (size > kRow) return {.native = kOutOfMemory};
  const auto bytes = round_up(size, kUnit);
  Answer<DevicePtr> answer;
  auto range = find(bytes, point);
  const auto grown = range ? std::nullopt : grow(bytes, point.stream, answer.extra_ns);
  if (!range && !grown && policy(PoolAttribute::reuse_allow_internal_dependencies)) {
    range = free_.fit_of_others(point.stream, bytes, [](Point) { return true; });
    if (range) platform_.scheduler().order(point.stream, range->free_after);
  }
  if (!range && !grown) return {.native = kOutOfMemory};
  if (range) take(*range, bytes);
  used_ += size;
  used_high_ = std::max(used_high_, used_);
  answer.value = {range ? range->at : *grown};
  return answer;
}

std::optional<FreeRanges::Range> MemoryPool::find(std::uint64_t size, Point point) {
  auto range = free_.fit(point.stream, size);
  if (range && range->size == size) return range;
  if (policy(PoolAttribute::reuse_allow_opportunistic)) {
    give_to_everyone();
    range = free_.fit(point.stream, size);
  }
  if (policy(PoolAttribute::reuse_follow_event_dependencies)) {
    const auto other = free_.fit_of_others(point.stream, size, [&](Point freed) {
      return platform_.scheduler().follows(point.stream, freed);
    });
    if (other && (!range || other->size < range->size)) range = other;
  }
  return range;
}

std::optional<MemoryPool::Growth> MemoryPool::place(std::uint64_t size,
                                                    std::uint64_t stream) const {
  auto gap = row_;
  for (auto piece = pieces_.begin();; ++piece) {
    const auto end = piece == pieces_.end() ? row_ + kRow : piece->first;
    if (gap < end) {
      auto before = free_.ending_at(gap);
      if (before && before->free_after.stream != 0 && before->free_after.stream != stream)
        before.reset();
      const auto at = before ? before->at : gap;
      if (size <= end - at)
        return Growth{.free_before = before,
                      .at = at,
                      .first = gap,
                      .end = row_ + round_up(at + size - row_, kPiece)};
    }
    if (piece == pieces_.end()) return std::nullopt;
    gap = piece->first + kPiece;
  }
}

std::optional<std::uint64_t> MemoryPool::grow(std::uint64_t size, std::uint64_t stream,
                                              std::uint64_t& spent_ns) {
  auto& memory = platform_.virtual_memory();
  if (pieces_.empty()) {
    const auto row = memory.reserve(owner_, kRow, 0, {});
    if (row.native != kSuccess) return std::nullopt;
    row_ = row.value.value;
  }
  const auto found = place(size, stream);
  if (found && found->free_before) take(*found->free_before, found->free_before->size);
  if (!found || !fill(*found, spent_ns)) {
    if (found && found->free_before) add(*found->free_before);
    if (pieces_.empty()) memory.free({row_}, kRow);
    return std::nullopt;
  }
  const auto used = found->at + size;
  if (used < found->end) add({used, found->end - used, {}});
  return found->at;
}

bool MemoryPool::fill(const Growth& growth, std::uint64_t& spent_ns) {
  const auto lacking = (growth.end - growth.first) / kPiece;
  const auto middle = growth.first + std::min<std::uint64_t>(lacking, idle_.size()) * kPiece;
  const auto limit = max_size_ == 0 ? kRow : round_up(std::min(max_size_, kRow), kPiece);
  bool grows = reserved_ + (growth.end - middle) <= limit;
  for (auto at = middle; grows && at < growth.end; at += kPiece) {
    grows = add_piece(at, spent_ns);
    for (auto made = at; !grows && made > middle;) drop_piece(made -= kPiece);
  }
  if (!grows) return false;
  for (auto at = growth.first; at < middle; at += kPiece) move_highest(at, spent_ns);
  reserved_high_ = std::max(reserved_high_, reserved_);
  return true;
}

void MemoryPool::move_highest(std::uint64_t to, std::uint64_t& spent_ns) {
  auto& memory = platform_.virtual_memory();
  const auto from = *std::prev(idle_.end());
  idle_.erase(from);
  free_.cut(from, kPiece);
  auto piece = pieces_.extract(from);
  memory.unmap({from}, kPiece);
  memory.map({to}, kPiece, 0, piece.mapped());
  memory.set_access(owner_.device, {to}, kPiece, AccessFlags::read_write);
  for (const auto call : {Call::mem_unmap, Call::mem_map, Call::mem_set_access})
    spent_ns += latency_ns(call, kPiece, kSuccess);
  piece.key() = to;
  pieces_.insert(std::move(piece));
}

bool MemoryPool::add_piece(std::uint64_t at, std::uint64_t& spent_ns) {
  auto& memory = platform_.virtual_memory();
  const auto handle = memory.create(owner_, kPiece);
  if (handle.native != kSuccess) return false;
  memory.map({at}, kPiece, 0, handle.value);
  memory.set_access(owner_.device, {at}, kPiece, AccessFlags::read_write);
  for (const auto call : {Call::mem_create, Call::mem_map, Call::mem_set_access})
    spent_ns += latency_ns(call, kPiece, kSuccess);
  pieces_.emplace(at, handle.value);
  reserved_ += kPiece;
  return true;
}

void MemoryPool::drop_piece(std::uint64_t at) {
  auto& memory = platform_.virtual_memory();
  const auto piece = pieces_.find(at);
  memory.unmap({at}, kPiece);
  memory.release(piece->second);
  pieces_.erase(piece);
  reserved_ -= kPiece;
}

void MemoryPool::free(std::uint64_t at, std::uint64_t size, Point point) {
  used_ -= size;
  add({at, round_up(size, kUnit), point});
}

void MemoryPool::take(const FreeRanges::Range& range, std::uint64_t size) {
  free_.take(range, size);
  const auto begin = row_ + (range.at - row_) / kPiece * kPiece;
  idle_.erase(idle_.lower_bound(begin), idle_.lower_bound(range.at + size));
}

void MemoryPool::add(const FreeRanges::Range& range) {
  free_.add(range);
  const auto begin = row_ + (range.at - row_) / kPiece * kPiece;
  for (auto piece = begin; piece < range.at + range.size; piece += kPiece) {
    if (free_.is_free(piece, kPiece)) idle_.insert(piece);
  }
}

// What was freed on a stream that has come so far since.
void MemoryPool::give_to_everyone() {
  std::uint64_t stream = 0;
  while (const auto range = free_.first_of_any_stream(stream)) {
    if (platform_.scheduler().is_over(range->free_after)) {
      take(*range, range->size);
      add({range->at, range->size, {}});
    } else {
      stream = range->free_after.stream;
    }
  }
}

void MemoryPool::trim(std::uint64_t keep) {
  give_to_everyone();
  while (!idle_.empty() && reserved_ >= keep && reserved_ - keep >= kPiece) give_back_highest();
}

void MemoryPool::synchronized() {
  if (reserved_ <= threshold_) return;
  give_to_everyone();
  while (!idle_.empty() && reserved_ > threshold_) give_back_highest();
}

void MemoryPool::give_back_highest() {
  const auto highest = std::prev(idle_.end());
  const auto at = *highest;
  idle_.erase(highest);
  free_.cut(at, kPiece);
  drop_piece(at);
  if (pieces_.empty()) platform_.virtual_memory().free({row_}, kRow);
}

// Documented: high marks are set to 0 only, current ones not at all.
std::int32_t MemoryPool::set(PoolAttribute attribute, std::uint64_t value) {
  switch (attribute) {
    case PoolAttribute::reuse_follow_event_dependencies:
    case PoolAttribute::reuse_allow_opportunistic:
    case PoolAttribute::reuse_allow_internal_dependencies:
      policies_[static_cast<std::size_t>(attribute)] = value != 0;
      return kSuccess;
    case PoolAttribute::release_threshold:
      threshold_ = value;
      return kSuccess;
    case PoolAttribute::reserved_high:
      if (value != 0) return kInvalidValue;
      reserved_high_ = reserved_;
      return kSuccess;
    case PoolAttribute::used_high:
      if (value != 0) return kInvalidValue;
      used_high_ = used_;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

Answer<std::uint64_t> MemoryPool::get(PoolAttribute attribute) const {
  switch (attribute) {
    case PoolAttribute::reuse_follow_event_dependencies:
    case PoolAttribute::reuse_allow_opportunistic:
    case PoolAttribute::reuse_allow_internal_dependencies:
      return {kSuccess, policy(attribute) ? 1u : 0u};
    case PoolAttribute::release_threshold:
      return {kSuccess, threshold_};
    case PoolAttribute::reserved_current:
      return {kSuccess, reserved_};
    case PoolAttribute::reserved_high:
      return {kSuccess, reserved_high_};
    case PoolAttribute::used_current:
      return {kSuccess, used_};
    case PoolAttribute::used_high:
      return {kSuccess, used_high_};
  }
  return {.native = kInvalidValue};
}

}  // namespace emm::sim
