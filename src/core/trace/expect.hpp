#pragma once

#include <cstdint>

#include "trace/id.hpp"
#include "trace/op.hpp"

namespace emm::trace {

/// What a trace says must come of an operation.
struct Expect {
  Outcome outcome = Outcome::none;
  std::uint64_t align = 0;          ///< 0: not asked.
  bool distinct = false;            ///< The address is not that of any live allocation.
  std::uint64_t free_at_least = 0;  ///< The result that get_memory_info must report.
  std::uint64_t free_at_most = ~std::uint64_t{0};
  Id same_as{};  ///< See has_same_as.
  bool has_same_as = false;
  bool operator==(const Expect&) const = default;
};

}  // namespace emm::trace
