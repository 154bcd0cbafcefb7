#pragma once

#include <cstdint>

namespace emm::pool {

/// What an arena counts. emm/memory_statistics.hpp defines each figure, under the same name. These
/// are plain numbers, since the warm path adds to them; the manager shows them as MemoryStatistics.
struct Statistics {
  struct Count {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t total = 0;  ///< The sum of all that was added.
    void add(std::uint64_t n) noexcept {
      current += n;
      total += n;
      if (current > peak) peak = current;
    }
    void subtract(std::uint64_t n) noexcept { current -= n; }
    void set(std::uint64_t n) noexcept {
      if (n > current) add(n - current);
      current = n;
    }
    /// Adds the peaks, too: their sum is an upper bound of the true peak.
    Count& operator+=(const Count& other) noexcept;
  };
  Count requested_bytes;
  Count allocated_bytes;
  Count allocation;
  Count active_bytes;
  Count active;
  std::uint64_t reserved_bytes = 0;
  // Peaks and totals of these two are known only with the option inactive_split=peak.
  Count inactive_split_bytes;
  Count inactive_split;
  Count segment;
  std::uint64_t largest_free_bytes = 0;
  std::uint64_t spans = 0;  ///< How many spans the driver gave.
  std::uint64_t times_aliased = 0;
  std::uint64_t metadata_bytes = 0;        ///< Metadata that grows with blocks and spans.
  std::uint64_t metadata_fixed_bytes = 0;  ///< Metadata that does not grow.
  std::uint64_t arenas_with_a_peak = 0;  ///< If there is more than one, the peaks are upper bounds.
  std::uint64_t planned = 0;             ///< Requests that got the place that a plan had.
  std::uint64_t plan_left = 0;           ///< How often a request deviated from the plan.
  Statistics& operator+=(const Statistics& other) noexcept;
};

/// The counts that an arena keeps, and the peaks of what is active.
///
/// A warm request counts as little as possible, so Statistics::active_bytes has no counter. Between
/// two changes of the deferred frees, active is allocated plus a constant, so its peak follows from
/// the peak of allocated. Therefore before_deferred_changes() and after_deferred_changed() must
/// enclose each change of the deferred frees.
class UsageCounts {
 public:
  void allocate(std::uint64_t requested, std::uint64_t allocated) noexcept {
    now_.requested_bytes.add(requested);
    now_.allocated_bytes.add(allocated);
    now_.allocation.add(1);
  }
  void free(std::uint64_t requested, std::uint64_t allocated) noexcept {
    now_.requested_bytes.subtract(requested);
    now_.allocated_bytes.subtract(allocated);
    now_.allocation.subtract(1);
  }
  /// All allocations have ended.
  void free_all() noexcept {
    now_.requested_bytes.current = 0;
    now_.allocated_bytes.current = 0;
    now_.allocation.current = 0;
  }
  std::uint64_t allocated() const noexcept { return now_.allocated_bytes.current; }
  std::uint64_t allocations() const noexcept { return now_.allocation.current; }
  std::uint64_t allocations_ever() const noexcept { return now_.allocation.total; }

  void before_deferred_changes(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept;
  void after_deferred_changed() noexcept {
    now_.allocated_bytes.peak = now_.allocated_bytes.current;
    now_.allocation.peak = now_.allocation.current;
  }
  void set_split(std::uint64_t bytes, std::uint64_t blocks) noexcept {
    now_.inactive_split_bytes.set(bytes);
    now_.inactive_split.set(blocks);
  }
  /// From here on each peak is the highest since now.
  void reset_peaks() noexcept;
  void set_segments(std::uint64_t count) noexcept { now_.segment.set(count); }

  /// Every figure that is counted here; the others are 0.
  Statistics total(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept;

 private:
  Statistics now_;    ///< Its peaks of allocated count from the last change of the deferred frees.
  Statistics peaks_;  ///< The peaks from before that change.
};

}  // namespace emm::pool
