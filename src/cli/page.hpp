#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"

namespace emm::cli {

/// All text about one command. `--help`, `emmctl help`, the manual pages and the completions are
/// made from it.
struct Page {
  std::string_view name;
  std::string_view summary;
  bool hidden = false;
  std::vector<Argument> positionals, options;
  std::string footer;
  Heading heading = Heading::about;
  std::vector<CommandExample> examples;
};

/// Collects the arguments of the command, and adds --help and what offer_capacity() adds.
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

/// --device sim:capacity=SIZE and --capacity SIZE mean the same. If the command declares only one
/// of them, this declares the other one, whose value goes to `into`.
void offer_capacity(Arguments& arguments, std::string& into);

}  // namespace emm::cli
