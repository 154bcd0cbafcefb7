#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/file_kind.hpp"

namespace emm::cli {

/// For `emmctl FILE`: says what a file is, and which commands work on it or what to record in its
/// place.
using WhatIs = Result<FileAnswer> (*)(const std::string& path);
/// Null where emmctl is built without the analysis.
WhatIs what_is_or_null() noexcept;

Result<FileAnswer> what_is(const std::string& path);

}  // namespace emm::cli
