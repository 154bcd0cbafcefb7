#pragma once

#include <cstdint>

namespace emm::allocators {

/// Counts the events of one kind in a recording, and how many of them the model would have made the
/// same way.
struct Agreement {
  std::uint64_t recorded = 0, as_recorded = 0;
};

}  // namespace emm::allocators
