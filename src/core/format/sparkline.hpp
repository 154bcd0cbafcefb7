#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::format {

/// Draws a curve in one line with a character for each value, in block elements or in ASCII. `full`
/// is the value of a full character; 0: the greatest of `values`.
std::string sparkline(const std::vector<std::uint64_t>& values, bool blocks,
                      std::uint64_t full = 0);

}  // namespace emm::format
