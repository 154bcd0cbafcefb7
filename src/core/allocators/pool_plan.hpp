#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace emm::allocators {

/// Where the memory of each request is to lie, as worked out beforehand for the requests of a
/// recording: what `emmctl plan` writes (emmctl.plan/1) and `pool:plan=FILE` follows.
struct PoolPlan {
  /// The requests of one stream of one device, in their order. A stream shares no memory with
  /// another, so each has offsets of its own, from 0.
  struct Stream {
    std::uint32_t device = 0;
    std::string name;         ///< As the recording names it.
    bool is_default = false;  ///< The legacy default stream.
    std::uint64_t bytes = 0;  ///< Holds all requests; whole pages of 2 MiB.
    std::uint64_t peak_live_bytes = 0;
    /// The program repeats the requests from this one on: after the last comes this one again. The
    /// number of requests if it does not.
    std::uint32_t period_begin = 0;
    std::vector<std::uint64_t> sizes{};    ///< As requested, in bytes.
    std::vector<std::uint64_t> offsets{};  ///< Multiples of `alignment`.
    /// The memory is freed before the request with this number is made: more than its own. In a
    /// period the count goes on behind the last request. kNever if it outlives the plan; in a
    /// period such a request lies_elsewhere().
    std::vector<std::uint32_t> ends{};

    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(sizes.size()); }
    bool repeats() const noexcept { return period_begin < count(); }
    /// Its memory would outlive its place, which comes again in the next period. So it has none.
    bool lies_elsewhere(std::uint32_t request) const noexcept {
      return request >= period_begin && ends[request] == kNever;
    }
  };
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};  // an end that does not come
  // Bytes of physical memory that a plan maps.
  static constexpr std::uint64_t kPage = std::uint64_t{2} << 20;
  static constexpr std::uint32_t kRequestsMost = std::uint32_t{1}
                                                 << 30;  ///< The most that a stream may have.

  std::string trace;
  std::uint64_t alignment = 512;  ///< A power of two. Sizes were rounded up to it.
  std::vector<Stream> streams;
};

/// Writes the plan as JSON, emmctl.plan/1.
std::string to_json(const PoolPlan& plan);

/// Reads a file that to_json() wrote. Errors: io_error; parse_error, which says where, if the file
/// is no plan, or if an offset or a count in it cannot be.
Result<PoolPlan> read_pool_plan(const std::string& path);

}  // namespace emm::allocators
