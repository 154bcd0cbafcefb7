#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emm::cli {

/// Rows of a table, the heading first.
using Rows = std::vector<std::vector<std::string>>;

/// What `emmctl list NAME` lists.
struct Listing {
  std::string_view name;
  Rows (*rows)();
  std::size_t shown;  ///< Columns that the table shows. JSON has all.
  Rows (*brief)();    ///< What is shown where --more is not given; null: the rows.
};

}  // namespace emm::cli

namespace emm {
/// Those that a wing adds: a file that defines `constinit const cli::Listing emm::NAME_listing`,
/// and its name in emm_listings() of its CMakeLists.txt.
std::span<const cli::Listing* const> listings_of_wings();
}  // namespace emm
