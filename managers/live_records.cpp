#include "managers/live_records.hpp"

#include "base/assert.hpp"

namespace emm {
namespace {

// Sets the top bit of host addresses, which user addresses leave unused on every platform of CUDA.
std::uint64_t key_of(const LiveRecord& record) noexcept {
  constexpr auto kHost = std::uint64_t{1} << 63;
  return is_on_device(record.kind) ? record.address : record.address ^ kHost;
}

}  // namespace

std::optional<std::uint64_t> LiveRecords::add(const LiveRecord& record) {
  if (!addresses_.insert(key_of(record)).second) return std::nullopt;
  auto at = idle_;
  if (at == kNone) {
    EMM_ASSERT(slots_.size() < kNone);
    at = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    idle_ = slots_[at].after;
  }
  auto& slot = slots_[at];
  slot.record = record;
  slot.number = ++added_;
  ++slot.generation;
  slot.before = last_;
  slot.after = kNone;
  (last_ == kNone ? first_ : slots_[last_].after) = at;
  last_ = at;
  ++size_;
  if (is_on_device(record.kind)) device_bytes_ += record.size;
  return (std::uint64_t{slot.generation} << 32) | at;
}

std::optional<LiveRecord> LiveRecords::take(std::uint64_t cookie) noexcept {
  const auto at = static_cast<std::uint32_t>(cookie);
  if (at >= slots_.size() || slots_[at].generation != cookie >> 32) return std::nullopt;
  return remove(at);
}

std::optional<LiveRecord> LiveRecords::take_first(std::uint64_t mark) noexcept {
  if (first_ == kNone || slots_[first_].number > mark) return std::nullopt;
  return remove(first_);
}

LiveRecord LiveRecords::remove(std::uint32_t at) noexcept {
  auto& slot = slots_[at];
  (slot.before == kNone ? first_ : slots_[slot.before].after) = slot.after;
  (slot.after == kNone ? last_ : slots_[slot.after].before) = slot.before;
  ++slot.generation;
  slot.after = idle_;
  idle_ = at;
  addresses_.erase(key_of(slot.record));
  --size_;
  if (is_on_device(slot.record.kind)) device_bytes_ -= slot.record.size;
  return slot.record;
}

}  // namespace emm
