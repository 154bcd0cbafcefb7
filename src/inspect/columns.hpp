#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emm::inspect {

/// Rows as columns that line up. `sides` says of each column 'l' or 'r'; the last is not padded.
std::string columns(std::string_view sides, const std::vector<std::vector<std::string>>& rows,
                    std::string_view indent = "  ");

/// `words` in lines of at most `width` characters, broken at spaces.
std::string wrapped(std::string_view words, std::size_t width);

}  // namespace emm::inspect
