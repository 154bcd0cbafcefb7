#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace emm::trace {

/// What a recorded program said to its allocator between two events, beside requests and frees,
/// and when the streams that used freed memory were done.
struct PoolStep {
  enum class Kind : std::uint8_t {
    use,           ///< Requests from here on are of `pool`.
    release_idle,  ///< All that was idle was released: PyTorch's empty_cache().
    unused,        ///< No graph and no MemPool refers to `pool` any more.
    drop,          ///< The same, and what was idle in it was released at once.
    delay,         ///< The event is a free of memory that other streams still used.
    complete,      ///< Those streams were done with what `free` freed.
  };
  std::uint64_t before = 0;  ///< The event in front of which it was said.
  Kind kind = Kind::use;
  PrivatePool pool{};
  std::uint32_t free = 0;  ///< Of delay and complete: names the free.
};

/// The steps of one device, in their order.
struct PoolSteps {
  std::uint32_t device = 0;
  std::vector<PoolStep> steps{};
  std::uint64_t pools = 0;     ///< Private ones.
  std::uint64_t requests = 0;  ///< Of those.
  std::uint64_t delays = 0;    ///< Steps that are a delay.
};

}  // namespace emm::trace
