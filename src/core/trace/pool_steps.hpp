#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"

namespace emm::trace {

/// Something that a recorded program told its allocator between two events, besides requests and
/// frees, or the moment when the streams that used freed memory were done.
struct PoolStep {
  enum class Kind : std::uint8_t {
    use,           ///< Later requests are served from `pool`.
    release_idle,  ///< All idle memory was released: PyTorch's empty_cache().
    unused,        ///< No graph and no MemPool refers to `pool` any more.
    drop,          ///< As `unused`, and the idle memory of the pool was released at once.
    delay,         ///< The event is a free of memory that other streams still used.
    complete,      ///< The streams were done with the memory that `free` freed.
  };
  std::uint64_t before = 0;  ///< The event that follows the step.
  Kind kind = Kind::use;
  PrivatePool pool{};
  std::uint32_t free = 0;  ///< delay, complete: the number of the free.
};

/// The steps of one device, in the order of events.
struct PoolSteps {
  std::uint32_t device = 0;
  std::vector<PoolStep> steps{};
  std::uint64_t pools = 0;     ///< The number of private pools.
  std::uint64_t requests = 0;  ///< The number of requests that private pools served.
  std::uint64_t delays = 0;    ///< The number of steps that are a delay.
};

}  // namespace emm::trace
