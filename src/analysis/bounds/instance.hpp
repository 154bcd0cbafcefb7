#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bounds/buffer.hpp"

namespace emm::bounds {

/// A buffer in terms of sections. Sections are the stretches of time, numbered from 0, in which no
/// buffer begins after one has ended. Two buffers are live together if and only if they share a
/// section.
struct Item {
  std::uint64_t size;
  std::uint64_t alignment;  ///< At least 1.
  std::uint32_t first;      ///< The item is live in the sections [first, last).
  std::uint32_t last;

  friend auto operator<=>(const Item&, const Item&) = default;
};

/// Buffers as the solvers see them. Buffers that need no memory are left out, and times are
/// replaced by sections. The order of the items and the direction of time depend only on the set of
/// buffers, so permuting the rows or reversing time changes no answer, except that equal buffers
/// may trade places.
struct Instance {
  std::vector<Item> items;             ///< Sorted by first, last, size, alignment.
  std::vector<std::size_t> positions;  ///< The index of each item among the buffers.
  std::uint32_t sections = 0;

  /// The live bytes of each section. They saturate at kTooMany.
  std::vector<std::uint64_t> section_totals() const;
};

/// REQUIRES: fewer than 2^31 buffers.
Instance make_instance(std::span<const Buffer> buffers);

/// Splits an instance into parts that no item connects. Each part is an instance; its positions
/// still refer to the original buffers.
std::vector<Instance> split(const Instance& instance);

}  // namespace emm::bounds
