#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"

namespace emm::cli {

/// One option or positional of a command, as help, manual pages and completions show it.
struct PageOption {
  std::vector<std::string> names;  ///< "-o", "--output"; of a positional its one name, "TRACE".
  std::string value;               ///< "FILE|-"; empty: it takes none.
  std::string help;
  std::vector<std::string> choices;
  std::string_view purpose;  ///< The heading that it stands under; of a positional empty.
  bool positional = false;
  bool required = false;
  bool repeatable = false;
  bool file = false;  ///< Its value is a path.

  const std::string& longest() const noexcept { return names.back(); }
};

struct PageExample {
  std::string_view command;
  std::string_view what;  ///< A sentence.
};

/// All that emmctl says of one command: the one source of `--help`, `emmctl help`, the manual pages
/// and the completions.
struct Page {
  std::string_view name;
  std::string_view summary;
  bool hidden = false;
  std::vector<PageOption> positionals, options;
  std::string footer;
  std::vector<PageExample> examples;
};

/// Asks the command what it takes. Options that every command has (--help) are on the page too,
/// and --capacity or --device where main() adds the other.
Page page_of(const Command& command);

/// The text of `emmctl COMMAND --help`, in lines of at most `width` columns.
std::string help_text(const Page& page, int width);
/// The text of `emmctl --help`.
std::string overview(int width);
/// What is wrong with `given` in the place of a command, and what was expected: the command that
/// was meant, or all of them.
std::string no_such_command(std::string_view given);
/// The manual page, as troff. `command` empty: that of the program.
std::string manual(const Page& page, std::string_view version);
std::string manual_of_program(std::string_view version);
/// The script of "bash", "zsh" or "fish".
std::string completion(std::string_view shell);

/// Where the commands stand in --help: a heading, and their names.
struct CommandGroup {
  std::string_view heading;
  std::vector<std::string_view> commands;
};
const std::vector<CommandGroup>& command_groups();
std::vector<PageExample> examples_of(std::string_view command);
/// The heading of an option, the same in all commands.
std::string_view purpose_of(std::string_view option);
/// The headings of options, in their order on a page.
const std::vector<std::string_view>& purposes();

/// --device sim:capacity=SIZE and --capacity SIZE mean the same. Where a command has one of them,
/// main() offers the other with these words.
inline constexpr std::string_view kCapacityHelp =
    "What the simulated device has, short for --device sim:capacity=SIZE";
inline constexpr std::string_view kDeviceHelp = "The same as --capacity SIZE";

}  // namespace emm::cli
