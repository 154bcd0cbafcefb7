#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace emm {

/// A figure of emm/memory_statistics.hpp, and its name in logs and JSON.
struct NamedStatistic {
  std::string_view name;  ///< A literal.
  std::uint64_t value = 0;
  bool operator==(const NamedStatistic&) const = default;
};
using NamedStatistics = std::vector<NamedStatistic>;

}  // namespace emm
