#pragma once

#include <string>

#include "base/result.hpp"

namespace emm::cli {

/// For `emmctl FILE`: says what a file is and which commands work on it. parse_error if no format
/// matches.
Result<std::string> what_is(const std::string& path);

}  // namespace emm::cli
