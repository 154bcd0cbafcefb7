#pragma once

#include <cstdint>

namespace emm::pool {

/// What arenas count. Bytes unless said. The names are PyTorch's (memory_stats) and RMM's
/// (statistics adaptor).
struct Statistics {
  struct Count {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t total = 0;  ///< Ever.
    void add(std::uint64_t n) noexcept {
      current += n;
      total += n;
      if (current > peak) peak = current;
    }
    void subtract(std::uint64_t n) noexcept { current -= n; }
    void become(std::uint64_t n) noexcept {
      if (n > current) add(n - current);
      current = n;
    }
    /// The peak of a sum is the sum of the peaks: no less than the true one.
    Count& operator+=(const Count& other) noexcept;
  };
  Count requested;              ///< As asked for.
  Count allocated;              ///< The blocks handed out.
  Count allocation;             ///< How many.
  Count active;                 ///< Allocated, or freed and waiting for an event.
  Count active_allocation;      ///< How many.
  std::uint64_t reserved = 0;   ///< Held from the device.
  Count inactive_split;         ///< Free, in spans that a block in use reaches into,
  Count inactive_split_blocks;  ///< and how many free blocks reach into such spans. Peaks and
                                ///< totals only with inactive_split=peak.
  Count segments;               ///< Runs of addresses that spans make.
  std::uint64_t largest_free = 0;
  std::uint64_t spans = 0;          ///< How many spans the driver gave.
  std::uint64_t times_aliased = 0;  ///< How often spans are mapped besides, in alias mappings.
  std::uint64_t metadata = 0;       ///< Bytes of the host's memory that grow with blocks and spans,
  std::uint64_t metadata_fixed = 0;  ///< and those that do not.
  Statistics& operator+=(const Statistics& other) noexcept;
};

/// The counts that an arena keeps, and the peaks of what is active.
///
/// A warm request may count only what it must, so Statistics::active is not counted by itself.
/// While nothing is deferred or comes back, active is allocated plus a constant: its peak follows
/// from that of allocated since then. So whoever changes what is deferred brackets that with
/// before_deferred_changes() and after_deferred_changed().
class UsageCounts {
 public:
  void allocate(std::uint64_t requested, std::uint64_t allocated) noexcept {
    now_.requested.add(requested);
    now_.allocated.add(allocated);
    now_.allocation.add(1);
  }
  void free(std::uint64_t requested, std::uint64_t allocated) noexcept {
    now_.requested.subtract(requested);
    now_.allocated.subtract(allocated);
    now_.allocation.subtract(1);
  }
  /// All allocations have ended.
  void free_all() noexcept {
    now_.requested.current = 0;
    now_.allocated.current = 0;
    now_.allocation.current = 0;
  }
  std::uint64_t allocated() const noexcept { return now_.allocated.current; }
  std::uint64_t allocations() const noexcept { return now_.allocation.current; }
  std::uint64_t allocations_ever() const noexcept { return now_.allocation.total; }

  void before_deferred_changes(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept;
  void after_deferred_changed() noexcept {
    now_.allocated.peak = now_.allocated.current;
    now_.allocation.peak = now_.allocation.current;
  }
  void split_is(std::uint64_t bytes, std::uint64_t blocks) noexcept {
    now_.inactive_split.become(bytes);
    now_.inactive_split_blocks.become(blocks);
  }
  void segments_are(std::uint64_t count) noexcept { now_.segments.become(count); }

  /// All that is counted here; the rest of Statistics is 0.
  Statistics total(std::uint64_t deferred_bytes, std::uint64_t deferred_count) noexcept;

 private:
  Statistics now_;    ///< The peaks of allocated since what is deferred last changed,
  Statistics peaks_;  ///< and up to then.
};

}  // namespace emm::pool
