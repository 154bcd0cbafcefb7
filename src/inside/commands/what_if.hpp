#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"

namespace emm::cli {

/// What `run --sweep` is asked for.
struct WhatIf {
  std::string device;                ///< "sim" or "sim:OPTIONS": what all runs have in common.
  std::vector<std::string> sweeps;   ///< Each as it was given.
  std::vector<std::string> options;  ///< Further words of each `emmctl run`.
  std::vector<std::string> program;  ///< With {NAME} for what is swept.
  std::optional<std::uint64_t> jobs{};
  std::string json{};  ///< Where the answer goes as JSON (emmctl.what-if/1); empty: nowhere.
};

/// Runs the program with every combination of the swept values, and answers on which it fits.
/// Errors: usage, io_error.
Result<ExitCode> run_what_if(Console& console, const WhatIf& asked);

}  // namespace emm::cli
