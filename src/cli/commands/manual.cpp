#include <memory>

#include "base/text_format.hpp"
#include "cli/page.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Writes the manual pages of all commands, for the build.
class Manual final : public CommandRun {
 public:
  explicit Manual(Arguments& arguments) {
    arguments.output_folder("FOLDER", folder_, {}, "Where the pages go");
    arguments.positional("VERSION", version_, "The version that they name");
  }

  Result<ExitCode> run(Console& console) override {
    if (auto written = console.write(folder_ + "/emmctl.1", manual_of_program(version_), "FOLDER");
        !written)
      return written.error();
    for (const auto* command : bundled_commands()) {
      if (command->hidden) continue;
      const auto path = text::format("{}/emmctl-{}.1", folder_, command->name);
      if (auto written = console.write(path, manual(page_of(*command), version_), "FOLDER");
          !written)
        return written.error();
    }
    return ExitCode::fine;
  }

 private:
  std::string folder_, version_;
};

}  // namespace

extern constinit const Command manual_command{"manual", "Write the manual pages", true,
                                              make_run<Manual>, Heading::about};

}  // namespace emm
