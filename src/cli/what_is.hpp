#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/file_kind.hpp"

namespace emm::cli {

/// For `emmctl FILE`: says what a file is, and which commands work on it or what to record in its
/// place.
Result<FileAnswer> what_is(const std::string& path);

}  // namespace emm::cli
