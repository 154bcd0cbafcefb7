#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/page.hpp"

namespace emm::cli {

/// The configuration file: defaults of options.
///
///     {"schema": "emmctl.config/1", "all": {"manager": "pool"}, "compare": {"device": "sim"}}
///
/// "all" holds options by their long names, for each command that has them and takes one value; a
/// command's own member goes before it. A value is a string, a number, true for a flag, or a list
/// for a repeatable option. What the command line gives goes before both; $EMM_MEMORY_MANAGER goes
/// before "manager".
struct Defaults {
  std::string path;  ///< Empty: there is no configuration file.
  std::string why;   ///< Where none is read: what was looked at.
  /// Options and values of the command, in the file's order; a flag has no value.
  std::vector<std::pair<std::string, std::string>> options;
};

/// The defaults of a command, out of $EMM_CONFIG, ./emmctl.json, or emmctl/emmctl.json in
/// $XDG_CONFIG_HOME (~/.config); the first that is there. A file of another schema is not one.
/// usage where the file names a command or an option that is not known; parse_error where it is
/// damaged.
Result<Defaults> defaults_of(const Page& page);

}  // namespace emm::cli
