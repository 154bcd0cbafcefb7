#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/page.hpp"

namespace emm::cli {

/// The configuration file, which holds defaults of options.
///
/// {"schema": "emmctl.config/1", "all": {"manager": "pool"}, "compare": {"device": "sim"}}
///
/// "all" holds options by their long names. It applies to each command in which the option takes
/// one value. A command's own member overrides it. A value is a string, a number, true for a flag,
/// or a list for a repeatable option. The command line overrides both, and $EMM_MEMORY_MANAGER
/// overrides "manager".
struct Defaults {
  std::string path;  ///< Empty if there is no configuration file.
  std::string why;   ///< If no file is read: where it was looked for.
  /// Options and values of the command, in the file's order. A flag has no value.
  std::vector<std::pair<std::string, std::string>> options;
};

/// Reads the defaults of a command from the first file that exists: $EMM_CONFIG, ./emmctl.json, or
/// emmctl/emmctl.json in $XDG_CONFIG_HOME (~/.config). A file with another schema is skipped.
/// Errors: usage if the file names an unknown command or option; parse_error if it is damaged.
Result<Defaults> defaults_of(const Page& page);

}  // namespace emm::cli
