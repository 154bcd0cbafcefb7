#pragma once

#include <string_view>

namespace emm::report {

/// Returns a file of src/analysis/report/page, "dygraph.js", or the "version" of emmctl.
std::string_view page_file(std::string_view name);

}  // namespace emm::report
