#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace emm::inspect {

/// The percentiles of numbers, by nearest rank.
struct Percentiles {
  std::uint64_t count = 0;
  std::uint64_t min = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
  bool operator==(const Percentiles&) const = default;
};
/// Sorts `values`.
Percentiles percentiles_of(std::vector<std::uint64_t>& values);

}  // namespace emm::inspect
