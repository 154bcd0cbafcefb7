#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emm::format {

/// Lays rows out as columns that line up. `sides` has 'l' or 'r' for each column.
std::string columns(std::string_view sides, const std::vector<std::vector<std::string>>& rows,
                    std::string_view indent = "  ");

/// Like columns(), without the columns that no row below the first fills: "" and "-" fill none.
std::string filled_columns(std::string sides, std::vector<std::vector<std::string>> rows);

/// Breaks `words` at spaces into lines of at most `width` characters.
std::string wrapped(std::string_view words, std::size_t width);

}  // namespace emm::format
