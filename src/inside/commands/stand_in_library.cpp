#include <string>

#include "cli/command.hpp"
#include "commands/simulated_program.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Serves a program on simulated devices, whose loader has found one of CUDA's libraries.
class StandInLibrary final : public CommandRun {
 public:
  explicit StandInLibrary(Arguments& arguments) {
    arguments.positional("REAL", real_, "The library whose functions it gets", true);
    arguments.positional("MADE", made_, "The library that is made", true);
  }

  Result<ExitCode> run(Console& console) override {
    if (auto made = make_stand_in(real_, made_, console.program()); !made) return made.error();
    return ExitCode::fine;
  }

 private:
  std::string real_, made_;
};

}  // namespace

extern constinit const Command stand_in_library_command{
    "stand-in-library", "Makes a library that stands in for one of CUDA's", true,
    make_run<StandInLibrary>, Heading::about};

}  // namespace emm
