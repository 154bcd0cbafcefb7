#pragma once

#include <cstdint>
#include <vector>

namespace emm::limit {

/// A choice of things where some need others.
struct Choice {
  __extension__ using Wide = __int128;
  Wide gain = 0;                     ///< What choosing it gains; may be a loss.
  std::vector<std::uint32_t> needs;  ///< Others by their place, all of which are chosen with it.
};

/// The greatest sum of gains of any choices together with all that they need; 0 is that of none. A
/// minimal cut finds it (J.-C. Picard, Maximal closure of a graph, 1976), in up to the cube of the
/// choices, mostly in little more than their number.
Choice::Wide greatest_gain(const std::vector<Choice>& choices);

}  // namespace emm::limit
