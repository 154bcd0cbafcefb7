// The headings of options in --help.
#include "cli/page.hpp"

namespace emm::cli {
namespace {

constexpr std::string_view kInput = "Input", kManager = "Manager", kDevice = "Device",
                           kRun = "How it runs", kShown = "What is shown", kOutput = "Output",
                           kOther = "Other";

struct Purpose {
  std::string_view option, heading;
};
constexpr Purpose kPurposes[] = {
    {"--from", kInput},
    {"--partial", kInput},
    {"--in-passes", kInput},
    {"--with", kInput},
    {"--baseline", kInput},
    {"--stop-at", kInput},
    {"--event", kInput},
    {"--as-recorded", kInput},
    {"--manager", kManager},
    {"--adaptor", kManager},
    {"--profile", kManager},
    {"--deadline", kManager},
    {"--against", kManager},

    {"--as", kManager},
    {"--device", kDevice},
    {"--capacity", kDevice},
    {"--fault", kDevice},
    {"--total", kDevice},
    {"--fraction", kDevice},
    {"--top", kShown},
    {"--frames", kShown},
    {"--all-frames", kShown},
    {"--times", kShown},
    {"--more", kShown},
    {"--bytes", kShown},
    {"--map", kShown},
    {"--at", kShown},
    {"--gap", kShown},
    {"--beside", kShown},
    {"--output", kOutput},
    {"--log-format", kOutput},
    {"--traces", kOutput},
    {"--to", kOutput},
    {"--title", kOutput},
    {"--anonymize", kOutput},
    {"--duration", kRun},
    {"--on-signal", kRun},
    {"--stacks", kRun},
    {"--stack-depth", kRun},
    {"--through", kRun},
    {"--max-file-size", kOutput},
    {"--follow", kRun},
    {"--require-trace", kRun},
    {"--unknown-sizes", kDevice},
    {"--explain-stubs", kShown},
    {"--help", kOther},
};

}  // namespace

const std::vector<std::string_view>& purposes() {
  static const std::vector<std::string_view> all = {kInput, kManager, kDevice, kRun,
                                                    kShown, kOutput,  kOther};
  return all;
}

std::string_view purpose_of(std::string_view option) {
  for (const auto& [name, heading] : kPurposes) {
    if (name == option) return heading;
  }
  return kRun;
}

}  // namespace emm::cli
