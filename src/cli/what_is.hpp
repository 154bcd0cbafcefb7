#pragma once

#include <string>

#include "base/result.hpp"

namespace emm::cli {

/// What a file is, and the commands that answer something of it, for `emmctl FILE`. parse_error
/// where no format knows it.
Result<std::string> what_is(const std::string& path);

}  // namespace emm::cli
