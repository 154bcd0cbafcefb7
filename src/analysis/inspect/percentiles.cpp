#include "inspect/percentiles.hpp"

#include <algorithm>

namespace emm::inspect {

Percentiles percentiles_of(std::vector<std::uint64_t>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](std::uint64_t percent) {
    return values[static_cast<std::size_t>((values.size() * percent + 99) / 100 - 1)];
  };
  return {.count = values.size(),
          .min = values.front(),
          .p50 = rank(50),
          .p90 = rank(90),
          .p99 = rank(99),
          .max = values.back()};
}

}  // namespace emm::inspect
