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
  requested += other.requested;
  allocated += other.allocated;
  allocation += other.allocation;
  active += other.active;
  active_allocation += other.active_allocation;
  reserved += other.reserved;
  inactive_split += other.inactive_split;
  inactive_split_blocks += other.inactive_split_blocks;
  segments += other.segments;
  largest_free = std::max(largest_free, other.largest_free);
  spans += other.spans;
  times_aliased += other.times_aliased;
  metadata += other.metadata;
  metadata_fixed += other.metadata_fixed;
  return *this;
}

void UsageCounts::before_deferred_changes(std::uint64_t deferred_bytes,
                                          std::uint64_t deferred_count) noexcept {
  const auto fold = [](Statistics::Count& allocated, Statistics::Count& active,
                       const Statistics::Count& since, std::uint64_t deferred) {
    allocated.peak = std::max(allocated.peak, since.peak);
    active.peak = std::max(active.peak, since.peak + deferred);
  };
  fold(peaks_.allocated, peaks_.active, now_.allocated, deferred_bytes);
  fold(peaks_.allocation, peaks_.active_allocation, now_.allocation, deferred_count);
}

Statistics UsageCounts::total(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept {
  before_deferred_changes(deferred_bytes, deferred_count);
  auto result = now_;
  result.allocated.peak = peaks_.allocated.peak;
  result.allocation.peak = peaks_.allocation.peak;
  result.active = {now_.allocated.current + deferred_bytes, peaks_.active.peak,
                   now_.allocated.total};
  result.active_allocation = {now_.allocation.current + deferred_count,
                              peaks_.active_allocation.peak, now_.allocation.total};
  return result;
}

}  // namespace emm::pool
