#include <memory>

#include "base/text.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "emm/manager_entry.hpp"
#include "trial/compare_text.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Compare final : public CommandRun {
 public:
  explicit Compare(Arguments& arguments) {
    arguments.input("TRACE", trace_,
                    "The trace: any format of `emmctl list formats`; - is standard input");
    arguments.list("--manager", managers_, "NAME|FILE[:key=value,...]",
                   "A manager, as replay takes it; repeatable, the first is what the others are "
                   "measured by (all bundled ones, where not given)");
    deadline_.offer(arguments);
    arguments.text("--device", device_, "DEVICE",
                   "auto, sim[:capacity=..,devices=..,seed=..,costs=h200] or cuda[:N]");
    arguments.choice(
        "--clock", clock_, {"device", "host"},
        "The device's, which is a model where it is simulated; or the host's: what the managers "
        "themselves take");
    arguments.count("--rounds", rounds_, "N",
                    "How often each manager has its turn (7; 1 on a simulated clock)");
    arguments.count("--passes", passes_, "Passes in a turn after the first; their median counts");
    arguments.text("--from", from_, "FORMAT",
                   "The trace's format, where its content does not tell");
    arguments.flag("--partial", partial_, "Replay a damaged trace up to where the damage begins");
    arguments.flag("--all-frames", all_frames_,
                   "Shows call stacks whole, with the allocator's and the framework's frames");
    arguments.output("--json", json_, "Writes the comparison as JSON (emmctl.compare/2)");
    arguments.footer(
        "Bytes and failures are those of a pass with all checks; times are of passes without them. "
        "/live is over the\npeak of what is live, requests that the recording refused included: "
        "nobody goes below. /no-wait, shown where\nthere are streams, is over what a manager needs "
        "that never waits: a claim about such managers alone. A sign\nbeside a ratio below 1 says "
        "why. Exit codes: 0 fine; 1 a manager failed the trace; 3 nothing could be judged;\n128+n "
        "ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    constexpr std::uint64_t kMost = 100'000;
    if (rounds_.value_or(1) == 0 || rounds_.value_or(1) > kMost || passes_ == 0 ||
        passes_ > kMost) {
      return fail(Errc::usage,
                  "--rounds {} --passes {}: expected at least 1 of each, and at most {}",
                  rounds_.value_or(1), passes_, kMost);
    }
    std::vector<ManagerFactory> managers;
    if (managers_.empty()) {
      for (const auto* entry : bundled_managers()) {
        if (entry->device_memory) managers_.emplace_back(entry->name);
      }
    }
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    for (const auto& spec : managers_) {
      auto manager = choose_manager(spec, {}, *deadline);
      if (!manager) return std::move(manager).error();
      managers.push_back(std::move(*manager));
    }
    handle_interrupts();
    auto loaded = load_trace(console, trace_, {.format = from_, .partial = partial_});
    if (!loaded) return std::move(loaded).error();

    auto comparison = trial::compare(loaded->trace, managers,
                                     {.device = device_,
                                      .host_clock = clock_ == "host",
                                      .rounds = rounds_,
                                      .passes = passes_,
                                      .peer_program = console.program(),
                                      .interrupted = &interrupted(),
                                      .progress = [&](std::uint64_t done, std::uint64_t total) {
                                        console.progress("runs", done, total);
                                      }});
    console.end_progress();
    if (!comparison) return std::move(comparison).error();
    for (const auto& note : comparison->notes) console.say(note);
    if (comparison->interrupted) {
      return fail(Errc::interrupted, "interrupted while {}", "comparing");
    }
    for (const auto& words : comparison->cut_off) console.say(words);
    if (comparison->contestants.empty() || comparison->unmeasured) return ExitCode::failure;
    if (!json_.empty()) {
      if (auto written = console.write(json_, trial::to_json(*comparison, loaded->trace));
          !written) {
        return written.error();
      }
    }
    if (json_ != "-") {
      console.result(trial::to_text(*comparison, loaded->trace, console.width(), all_frames_));
    }
    bool failed = !comparison->cut_off.empty(), judged = false;
    for (const auto& each : comparison->contestants) {
      failed = failed || each.exit_code == 1;
      judged = judged || each.exit_code != 3;
    }
    if (!judged) {
      console.say(
          "nothing was judged: the trace has no operations, or every manager declined every "
          "allocation");
      return ExitCode::inconclusive;
    }
    return failed ? ExitCode::failure : ExitCode::fine;
  }

 private:
  std::string clock_ = "device";
  std::string trace_, device_ = "auto", from_, json_;
  std::vector<std::string> managers_;
  CallDeadline deadline_;
  std::optional<std::uint64_t> rounds_;
  std::uint64_t passes_ = 5;
  bool partial_ = false, all_frames_ = false;
};

}  // namespace

extern constinit const Command compare_command{
    "compare", "Replay a trace on several managers by turns: what each takes, reserves and fails",
    false, [](Arguments& arguments) -> std::unique_ptr<CommandRun> {
      return std::make_unique<Compare>(arguments);
    }};

}  // namespace emm
