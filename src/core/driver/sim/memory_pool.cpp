#include "driver/sim/memory_pool.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/units.hpp"
#include "driver/call.hpp"
#include "driver/sim/latency.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm::sim {
namespace {

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

constexpr std::uint64_t kRow = 1_TiB;  // more than a device's memory
constexpr std::uint64_t kUnit = 512;   // bytes: the alignment of cuMemAllocAsync on an H200

}  // namespace

/// What the driver calls for one more piece take.
std::uint64_t MemoryPool::piece_ns() {
  std::uint64_t sum = 0;
  for (const auto call : {Call::mem_create, Call::mem_map, Call::mem_set_access})
    sum += latency_ns(call, kPiece, kSuccess);
  return sum;
}

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
  if (range) take(range->at, bytes);
  used_ += size;
  used_high_ = std::max(used_high_, used_);
  answer.value = {range ? range->at : *grown};
  return answer;
}

std::optional<FreeRanges::FreeRange> MemoryPool::find(std::uint64_t size, Point point) {
  end_recent_before_work(point);
  if (const auto range = free_.recent_fit(point.stream, size)) return range;
  const bool opportunistic = policy(PoolAttribute::reuse_allow_opportunistic);
  if (opportunistic) share_finished(point.stream);
  auto range = free_.fit(point.stream, size, top());
  if (policy(PoolAttribute::reuse_follow_event_dependencies)) {
    const auto other = free_.fit_of_others(point.stream, size, [&](Point freed) {
      return platform_.scheduler().follows(point.stream, freed);
    });
    if (other && (!range || other->size < range->size)) range = other;
  }
  if (range) return range;
  end_recent(point.stream);
  return free_.fit(point.stream, size, top());
}

void MemoryPool::end_recent(std::uint64_t stream) {
  const bool opportunistic = policy(PoolAttribute::reuse_allow_opportunistic);
  for (auto& range : free_.take_recent(stream)) {
    range.recent = false;
    if (opportunistic && platform_.scheduler().is_over(range.free_after)) range.free_after = {};
    add(range);
  }
}

void MemoryPool::end_recent_before_work(Point point) {
  const auto last = last_free_.find(point.stream);
  if (last != last_free_.end() && point.number > last->second) end_recent(point.stream);
}

std::optional<MemoryPool::Growth> MemoryPool::place(std::uint64_t size,
                                                    std::uint64_t stream) const {
  const auto usable = [&](const std::optional<FreeRanges::FreeRange>& range) {
    return range && range->usable_on(stream);
  };
  std::uint64_t begin = row_,
                end = row_;  // the range in question: a gap with the free ranges on both sides
  std::uint64_t best = ~std::uint64_t{0};
  Growth growth;
  const auto look = [&] {
    if (end - begin < size || end - begin >= best) return;
    best = end - begin;
    growth.at = begin;
  };
  auto gap = row_;
  for (auto piece = pieces_.begin();; ++piece) {
    const bool is_last = piece == pieces_.end();
    const auto gap_end = is_last ? row_ + kRow : piece->first;
    if (gap < gap_end) {
      if (end < gap) {
        look();
        begin = gap;
        for (auto below = free_.ending_at(begin); usable(below); below = free_.ending_at(begin))
          begin = below->at;
      }
      end = gap_end;
      for (auto above = free_.beginning_at(end); usable(above); above = free_.beginning_at(end))
        end = above->end();
    }
    if (is_last) break;
    gap = piece->first + kPiece;
  }
  look();
  if (best == ~std::uint64_t{0}) return std::nullopt;
  for (auto piece = piece_of(growth.at); piece < growth.at + size; piece += kPiece) {
    if (pieces_.count(piece) == 0) growth.lacking.push_back(piece);
  }
  return growth;
}

bool MemoryPool::add_pieces(const Growth& growth, std::uint64_t size, std::uint64_t& spent_ns) {
  const auto inside =
      std::distance(idle_.lower_bound(piece_of(growth.at)), idle_.lower_bound(growth.at + size));
  const auto idle = idle_.size() - static_cast<std::size_t>(inside);
  const auto moved = std::min(growth.lacking.size(), idle);
  const auto limit = max_size_ == 0 ? kRow : round_up(std::min(max_size_, kRow), kPiece);
  const auto wanted = growth.lacking.size() - moved;
  if (reserved_ + wanted * kPiece > limit) return false;
  // The device would serve the first pieces and refuse the next one. Making them and dropping them
  // again takes seconds for a request of a terabyte.
  const auto free = platform_.device(owner_.device).mem_get_info(owner_.context);
  if (free.native == kSuccess && free.value.free / kPiece < wanted) {
    spent_ns += free.value.free / kPiece * piece_ns();
    return false;
  }
  for (auto next = moved; next < growth.lacking.size(); ++next) {
    if (add_piece(growth.lacking[next], spent_ns)) continue;
    while (next-- > moved) drop_piece(growth.lacking[next]);
    return false;
  }
  return true;
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
  if (!found || !add_pieces(*found, size, spent_ns)) {
    if (pieces_.empty()) memory.free({row_}, kRow);
    return std::nullopt;
  }
  take(found->at, size);
  for (const auto piece : found->lacking) {
    if (pieces_.count(piece) == 0) move_highest(piece, spent_ns);
  }
  reserved_high_ = std::max(reserved_high_, reserved_);
  const auto used = found->at + size;
  const auto end = found->lacking.empty() ? used : found->lacking.back() + kPiece;
  if (used < end) add({.at = used, .size = end - used});
  return found->at;
}

void MemoryPool::move_highest(std::uint64_t to, std::uint64_t& spent_ns) {
  auto& memory = platform_.virtual_memory();
  const auto from = *std::prev(idle_.end());
  idle_.erase(from);
  free_.remove(from, from + kPiece);
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
  spent_ns += piece_ns();
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

void MemoryPool::free(std::uint64_t at, std::uint64_t size, Point before, Point point) {
  used_ -= size;
  if (point.stream != 0) {
    end_recent_before_work(before);
    last_free_[point.stream] = point.number;
  }
  add({at, round_up(size, kUnit), point, point.stream != 0});
}

void MemoryPool::take(std::uint64_t at, std::uint64_t size) {
  free_.remove(at, at + size);
  idle_.erase(idle_.lower_bound(piece_of(at)), idle_.lower_bound(at + size));
}

void MemoryPool::add(const FreeRanges::FreeRange& range) {
  free_.add(range);
  for (auto piece = piece_of(range.at); piece < range.end(); piece += kPiece) {
    if (free_.is_free(piece, kPiece)) idle_.insert(piece);
  }
}

void MemoryPool::share_finished(std::uint64_t but) {
  const auto is_over = [&](Point point) { return platform_.scheduler().is_over(point); };
  while (const auto range = free_.take_finished(but, is_over)) {
    add({.at = range->at, .size = range->size});
  }
}

void MemoryPool::trim(std::uint64_t keep) {
  share_finished();
  while (!idle_.empty() && reserved_ >= keep && reserved_ - keep >= kPiece) release_highest();
}

void MemoryPool::synchronized() {
  if (reserved_ <= threshold_) return;
  share_finished();
  while (!idle_.empty() && reserved_ > threshold_) release_highest();
}

void MemoryPool::release_highest() {
  const auto highest = std::prev(idle_.end());
  const auto at = *highest;
  idle_.erase(highest);
  free_.remove(at, at + kPiece);
  drop_piece(at);
  if (pieces_.empty()) platform_.virtual_memory().free({row_}, kRow);
}

// Documented: high marks can only be set to 0, and current values not at all.
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
