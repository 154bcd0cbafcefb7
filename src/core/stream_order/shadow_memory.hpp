#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stream_order/vector_clock.hpp"

namespace emm::stream_order {

/// What a report says about an allocation besides its numbers. It is kept because the allocation
/// may no longer be known when a hazard is found. The engine writes it.
struct AllocationDescription {
  std::string name;
  std::uint32_t made_line = 0, ended_line = 0;
  std::uint8_t made_by = 0, ended_by = 0;  ///< Codes of operations.
};

/// An allocation of a trace, and the work that may touch its memory.
struct TracedAllocation {
  std::uint32_t id = 0;
  bool live = true;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  bool reached_by(std::uint64_t begin, std::uint64_t end) const noexcept {
    return address < end && begin < address + size;
  }
  std::uint64_t born = 0;   ///< The event of the trace that made it.
  std::uint64_t ended = 0;  ///< The event of the trace that ended it.
  Point birth{};            ///< The mark on its own stream when it was handed out.
  /// The last use on each stream. While live, only the uses that the trace names.
  std::vector<Point> uses{};
  /// cuMemFreeAsync frees its memory there. The driver orders the stream that gets the memory next
  /// after this point.
  std::optional<Point> freed_at{};
  std::uint64_t number = 0;  ///< Counts the allocations of its device, from 1.
  AllocationDescription description{};
};

/// A contiguous range of an allocation's memory. An allocation has several ranges if it is mapped
/// to several extents.
struct ShadowRange {
  std::uint64_t end = 0;  ///< The place after its last byte.
  std::shared_ptr<TracedAllocation> allocation;
};

/// Maps each place of one device's memory (physical_extents.hpp) to the allocation that last had
/// it. It remembers an allocation that has ended until its memory is handed out again. One thread
/// at a time.
class ShadowMemory {
 public:
  using Which = std::function<bool(const ShadowRange&)>;

  /// Returns the live allocation `id` if one of its ranges begins at `begin`, else null.
  TracedAllocation* live(std::uint64_t begin, std::uint32_t id) noexcept;
  /// Calls `each` with every range that has a place in [begin, end).
  void overlapping(std::uint64_t begin, std::uint64_t end,
                   const std::function<void(const ShadowRange&)>& each) const;
  /// Erases [begin, end) from the ranges for which `which` is true.
  void erase(std::uint64_t begin, std::uint64_t end, const Which& which);
  /// Makes the parts in [begin, end) of the allocations for which `which` is true allocations of
  /// their own, so that what becomes of them says nothing of the rest.
  void set_apart(std::uint64_t begin, std::uint64_t end, const Which& which);
  /// REQUIRES: no other range begins at `begin`.
  void add(std::uint64_t begin, ShadowRange range);
  /// Forgets the allocations that have ended and for which `over` is true.
  void sweep(const std::function<bool(const TracedAllocation&)>& over);
  std::size_t size() const noexcept { return ranges_.size(); }

 private:
  using Ranges = std::map<std::uint64_t, ShadowRange>;
  Ranges::const_iterator first(std::uint64_t begin) const;

  Ranges ranges_;
};

}  // namespace emm::stream_order
