#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emm::format {

/// A curve in one line, a character a value: in block elements, or in ASCII. `full` is the value of
/// a full character; 0: the most of all.
std::string sparkline(const std::vector<std::uint64_t>& values, bool blocks,
                      std::uint64_t full = 0);

}  // namespace emm::format
