#pragma once

#include <cstdint>
#include <vector>

namespace emm::bounds {

/// An item that may be chosen. Choosing it forces the choice of the items that it needs.
struct Choice {
  __extension__ using Wide = __int128;
  Wide gain = 0;                     ///< What choosing it gains; negative for a loss.
  std::vector<std::uint32_t> needs;  ///< Indices of the items that must be chosen with it.
};

/// The greatest sum of gains over all sets of choices that contain whatever their members need. The
/// empty set gains 0. A minimum cut finds it (J.-C. Picard, Maximal closure of a graph, 1976). The
/// time is at most cubic in the number of choices, and mostly near linear.
Choice::Wide greatest_gain(const std::vector<Choice>& choices);

}  // namespace emm::bounds
