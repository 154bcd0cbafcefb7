#pragma once

#include <array>
#include <cstdint>
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

/// The headings of --help, in its order. Commands stand under them in the order of their table.
enum class Heading : std::uint8_t { ask, traces, look, judge, about };
inline constexpr std::string_view kHeadings[] = {"Ask about a run", "Make, change and check traces",
                                                 "Look at them", "Judge a manager", "About emmctl"};

struct CommandExample {
  std::string_view command;  ///< A line for a shell. Empty if there is none.
  std::string_view what;     ///< A sentence.
};

struct Command {
  std::string_view name;
  std::string_view summary;
  bool hidden;  ///< Only for emmctl's own use. --help does not list it.
  std::unique_ptr<CommandRun> (*make)(Arguments& arguments);
  Heading heading;
  std::array<CommandExample, 2> examples{};  ///< A test runs them.
};

/// A command of a wing that EMM_WINGS left out when emmctl was built.
struct AbsentCommand {
  std::string_view name;
  std::string_view wing;
};

}  // namespace emm::cli

namespace emm {
using cli::Command;
using cli::Heading;
/// They come in the order of --help.
std::span<const Command* const> bundled_commands();
std::span<const cli::AbsentCommand> absent_commands();
}  // namespace emm
