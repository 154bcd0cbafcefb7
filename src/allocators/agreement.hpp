#pragma once

#include <cstdint>

namespace emm::allocators {

/// How many there were, and how many the model would have made the same way.
struct Agreement {
  std::uint64_t recorded = 0, as_recorded = 0;
};

}  // namespace emm::allocators
