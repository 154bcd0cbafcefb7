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
    trace_.offer(arguments);
    arguments.list("--manager", managers_, "NAME|FILE[:key=value,...]",
                   "A manager, as replay takes it; repeatable. The times of the others are divided "
                   "by those of the first (all bundled ones, if none is given)");
    deadline_.offer(arguments);
    arguments.text("--device", device_, "DEVICE",
                   "auto, sim[:capacity=..,devices=..,seed=..,costs=h200] or cuda[:N]");
    arguments.choice("--clock", clock_, {"device", "host"},
                     "The device's clock, which is a model on a simulated device; or the host's, "
                     "which measures what the managers themselves take");
    arguments.count("--rounds", rounds_, "N", "Turns of each manager (7; 1 on a simulated clock)");
    arguments.count("--passes", passes_,
                    "Timed passes in each turn, after a first one; their median counts");
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_, "Writes the comparison as JSON (emmctl.compare/2)");
    arguments.footer(
        "Bytes and failures come from one pass with all checks, times from passes without them. "
        "/live divides the reserved bytes by the peak of the live bytes, with the requests that "
        "the recording refused; no manager needs less. /no-wait, shown for traces with streams, "
        "divides them by what a manager needs that never waits for another stream. A sign beside a "
        "ratio below 1 says how the manager came below it. Exit codes: 0 fine; 1 a manager failed "
        "the trace; 3 nothing could be judged; 128+n ended by signal n.");
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
    auto loaded = load_trace(console, trace_);
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
    for (const auto& each : comparison->cut_off) console.say(each.words);
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
  TraceArgument trace_;
  std::string clock_ = "device";
  std::string device_ = "auto", json_;
  std::vector<std::string> managers_;
  CallDeadline deadline_;
  std::optional<std::uint64_t> rounds_;
  std::uint64_t passes_ = 5;
  bool all_frames_ = false;
};

}  // namespace

extern constinit const Command compare_command{
    "compare", "Replay a trace on several managers by turns: what each takes, reserves and fails",
    false, make_run<Compare>};

}  // namespace emm
