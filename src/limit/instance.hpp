#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "limit/buffer.hpp"

namespace emm::limit {

/// A buffer in terms of sections: the stretches of time, numbered from 0, in which no buffer begins
/// after one has ended. Two buffers are live together if and only if they share a section.
struct Item {
  std::uint64_t size;
  std::uint64_t alignment;  ///< At least 1.
  std::uint32_t first;      ///< Its sections, [first, last).
  std::uint32_t last;

  friend auto operator<=>(const Item&, const Item&) = default;
};

/// Buffers as the solvers see them: without those that need no memory, with times made sections, in
/// an order, and in a direction of time, that depend only on what the buffers are. So permuting the
/// rows or reversing time changes no answer but the names of equal buffers.
struct Instance {
  std::vector<Item> items;             ///< By first, last, size, alignment.
  std::vector<std::size_t> positions;  ///< The index of each item among the buffers.
  std::uint32_t sections = 0;

  /// The live bytes of each section, saturating.
  std::vector<std::uint64_t> section_totals() const;
};

/// REQUIRES: fewer than 2^31 buffers.
Instance make_instance(std::span<const Buffer> buffers);

/// The parts of an instance that no item connects, each an instance of its own (positions are still
/// among the buffers).
std::vector<Instance> split(const Instance& instance);

}  // namespace emm::limit
