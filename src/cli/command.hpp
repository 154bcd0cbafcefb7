#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"

namespace emm::cli {

/// One command with the values of its arguments.
class CommandRun {
 public:
  virtual ~CommandRun() = default;
  /// An error becomes "emmctl: <words>" on stderr and the exit code exit_code_of() gives.
  virtual Result<ExitCode> run(Console& console) = 0;
};

template <class Run>
std::unique_ptr<CommandRun> make_run(Arguments& arguments) {
  return std::make_unique<Run>(arguments);
}

struct Command {
  std::string_view name;
  std::string_view summary;
  bool hidden;  ///< Only for emmctl's own use. --help does not list it.
  std::unique_ptr<CommandRun> (*make)(Arguments& arguments);
};

}  // namespace emm::cli

namespace emm {
using cli::Command;
std::span<const Command* const> bundled_commands();
}  // namespace emm
