#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "inspect/statistics.hpp"

namespace emm::inspect {

/// What PyTorch's caching allocator states of one device. What is not stated is unknown.
struct TorchFigures {
  std::string device;  ///< "device 0"; empty if not stated.
  std::optional<Stated> allocated{}, allocated_peak{}, reserved{}, reserved_peak{};
  std::optional<Stated> active{};     ///< Allocated, or freed and kept for another stream.
  std::optional<Stated> requested{};  ///< Allocated, before rounding.
  std::optional<Stated> stuck{};      ///< Inactive in partly used segments: "non-releasable".
  std::optional<std::uint64_t> ooms{}, retries{}, segments{};
};

/// Adds the figures, and what the gap between reserved and allocated is made of.
void add_torch_figures(Statistics& to, const TorchFigures& figures);
/// Adds what no statistics of that allocator tell, and what to record.
void add_torch_limits(Statistics& to);

}  // namespace emm::inspect
