#include <memory>
#include <vector>

#include "cli/page.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Help final : public CommandRun {
 public:
  explicit Help(Arguments& arguments) {
    arguments.positional("COMMAND", command_, "The command. Without it, all of them", false);
  }

  Result<ExitCode> run(Console& console) override {
    if (command_.empty()) {
      console.result(overview(console.width()));
      return ExitCode::fine;
    }
    for (const auto* command : bundled_commands()) {
      if (command->name == command_) {
        console.result(help_text(page_of(*command), console.width()));
        return ExitCode::fine;
      }
    }
    return fail(Errc::usage, "{}", no_such_command(command_));
  }

 private:
  std::string command_;
};

}  // namespace

extern constinit const Command help_command{
    "help",
    "Show the page of a command: its options by purpose, and two examples",
    false,
    make_run<Help>,
    Heading::about,
    {{{"emmctl help", "Lists the commands."},
      {"emmctl help replay", "Shows what emmctl replay --help shows."}}}};

}  // namespace emm
