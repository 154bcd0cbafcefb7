#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::cli {

/// Makes a folder in TMPDIR, else in /tmp, with `purpose` in its name. Its path contains no
/// separator of path lists. The caller removes it.
Result<std::string> make_temporary_folder(std::string_view purpose);

}  // namespace emm::cli
