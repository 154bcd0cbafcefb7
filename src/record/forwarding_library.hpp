#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace emm::record {

/// The functions that the shared library at `path` offers, as the loader sees them. Errors:
/// io_error where it cannot be read, parse_error where it is no library of this machine.
Result<std::vector<std::string>> functions_of(const std::string& path);

/// A shared library named `soname` that offers `functions`. Each is one jump through a slot of its
/// own. When the loader begins the library, it calls emm_record_open of `recorder` (a path), which
/// fills the slots. So a program gets exactly the symbols that the library before which it stands
/// has, whatever version that is. For x86-64; empty on other machines.
///
/// `settings`, names and values, stand in it as "NAME=VALUE" texts, each ended by a 0, from the
/// second byte of its names on; an empty one ends them. The recorder takes from there what the
/// environment does not tell it: a program may have been started with LD_LIBRARY_PATH and nothing
/// else of ours.
std::string forwarding_library(const std::string& soname, const std::string& recorder,
                               const std::vector<std::string>& functions,
                               const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace emm::record
