#include <memory>

#include "cli/page.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Completion final : public CommandRun {
 public:
  explicit Completion(Arguments& arguments) {
    arguments.positional("SHELL", shell_, "bash, zsh or fish");
  }

  Result<ExitCode> run(Console& console) override {
    if (shell_ != "bash" && shell_ != "zsh" && shell_ != "fish")
      return fail(Errc::usage, "completion {}: expected bash, zsh or fish", shell_);
    console.result(completion(shell_));
    return ExitCode::fine;
  }

 private:
  std::string shell_;
};

}  // namespace

extern constinit const Command completion_command{
    "completion",
    "Write a shell's completion of commands, options and their values",
    false,
    make_run<Completion>,
    Heading::about,
    {{{"source <(emmctl completion bash)", "Completes in this shell."},
      {"emmctl completion fish > emmctl.fish", "Writes it to a file."}}}};

}  // namespace emm
