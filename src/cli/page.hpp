#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"

namespace emm::cli {

/// One option or positional of a command, for help, manual pages and completions.
struct PageOption {
  std::vector<std::string> names;  ///< "-o", "--output". A positional has one name, "TRACE".
  std::string value;               ///< "FILE|-". Empty if it takes no value.
  std::string help;
  std::vector<std::string> choices;
  std::string_view purpose;  ///< Its heading. Empty for a positional.
  bool positional = false;
  bool required = false;
  bool repeatable = false;
  bool file = false;  ///< Its value is a path.

  const std::string& longest() const noexcept { return names.back(); }
};

/// All text about one command. `--help`, `emmctl help`, the manual pages and the completions are
/// made from it.
struct Page {
  std::string_view name;
  std::string_view summary;
  bool hidden = false;
  std::vector<PageOption> positionals, options;
  std::string footer;
  Heading heading = Heading::about;
  std::vector<CommandExample> examples;
};

/// Collects the arguments of the command. Adds --help, and --capacity or --device if main() offers
/// the other one.
Page page_of(const Command& command);

/// The text of `emmctl COMMAND --help`, in lines of at most `width` columns.
std::string help_text(const Page& page, int width);
/// The text of `emmctl --help`.
std::string overview(int width);
/// Says why `given` is no command and what was expected: the nearest command, or all of them.
std::string no_such_command(std::string_view given);
/// Manual pages in troff: of a command, and of the program.
std::string manual(const Page& page, std::string_view version);
std::string manual_of_program(std::string_view version);
/// The completion script for "bash", "zsh" or "fish".
std::string completion(std::string_view shell);

/// The heading of an option. It is the same in all commands.
std::string_view purpose_of(std::string_view option);
/// The headings of options, in the order of a page.
const std::vector<std::string_view>& purposes();

/// --device sim:capacity=SIZE and --capacity SIZE mean the same. If a command has only one of them,
/// main() offers the other with this help.
inline constexpr std::string_view kCapacityHelp =
    "What the simulated device has, short for --device sim:capacity=SIZE";
inline constexpr std::string_view kDeviceHelp = "The same as --capacity SIZE";

}  // namespace emm::cli
