#include "managers/pool/statistics.hpp"

#include <algorithm>

namespace emm::pool {

Statistics::Count& Statistics::Count::operator+=(const Count& other) noexcept {
  current += other.current;
  peak += other.peak;
  total += other.total;
  return *this;
}

Statistics& Statistics::operator+=(const Statistics& other) noexcept {
  requested_bytes += other.requested_bytes;
  allocated_bytes += other.allocated_bytes;
  allocation += other.allocation;
  active_bytes += other.active_bytes;
  active += other.active;
  reserved_bytes += other.reserved_bytes;
  inactive_split_bytes += other.inactive_split_bytes;
  inactive_split += other.inactive_split;
  segment += other.segment;
  largest_free_bytes = std::max(largest_free_bytes, other.largest_free_bytes);
  spans += other.spans;
  times_aliased += other.times_aliased;
  metadata_bytes += other.metadata_bytes;
  metadata_fixed_bytes += other.metadata_fixed_bytes;
  arenas_with_a_peak += other.arenas_with_a_peak;
  planned += other.planned;
  plan_left += other.plan_left;
  return *this;
}

void UsageCounts::before_deferred_changes(std::uint64_t deferred_bytes,
                                          std::uint64_t deferred_count) noexcept {
  // Takes over the peaks since the last change, during which `deferred` was constant.
  const auto fold = [](Statistics::Count& allocated, Statistics::Count& active,
                       const Statistics::Count& since, std::uint64_t deferred) {
    allocated.peak = std::max(allocated.peak, since.peak);
    active.peak = std::max(active.peak, since.peak + deferred);
  };
  fold(peaks_.allocated_bytes, peaks_.active_bytes, now_.allocated_bytes, deferred_bytes);
  fold(peaks_.allocation, peaks_.active, now_.allocation, deferred_count);
}

void UsageCounts::reset_peaks() noexcept {
  peaks_ = {};
  for (auto* count : {&now_.requested_bytes, &now_.allocated_bytes, &now_.allocation,
                      &now_.inactive_split_bytes, &now_.inactive_split, &now_.segment})
    count->peak = count->current;
}

Statistics UsageCounts::total(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept {
  before_deferred_changes(deferred_bytes, deferred_count);
  auto result = now_;
  result.allocated_bytes.peak = peaks_.allocated_bytes.peak;
  result.allocation.peak = peaks_.allocation.peak;
  result.active_bytes = {now_.allocated_bytes.current + deferred_bytes, peaks_.active_bytes.peak,
                         now_.allocated_bytes.total};
  result.active = {now_.allocation.current + deferred_count, peaks_.active.peak,
                   now_.allocation.total};
  return result;
}

}  // namespace emm::pool
