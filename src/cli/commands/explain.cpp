#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load_recording.hpp"
#include "inspect/oom_text.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Explain final : public CommandRun {
 public:
  explicit Explain(Arguments& arguments) {
    arguments.input("TRACE", trace_,
                    "The trace, in any format that emmctl reads; - is standard input");
    arguments.text("--from", from_, "FORMAT", "Its format, where the content does not tell");
    arguments.flag("--partial", partial_, "Take a torn tail as the end");
    arguments.count("--event", event_, "N", "The failure to explain, by its event; else the first");
    arguments.text("--capacity", capacity_, "SIZE",
                   "What each device has, where the trace does not say, or says it wrongly; of a "
                   "trace in which no "
                   "request failed: would one fail with it?");
    arguments.count("--top", top_, "How many call sites to list");
    arguments.count("--frames", frames_, "How many frames to show of each");
    arguments.flag("--all-frames", all_frames_,
                   "Shows call stacks whole, with the allocator's and the framework's frames");
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.explain/2)");
    arguments.footer(
        "Exit codes: 0 explained; 3 no request of the trace failed for want of memory, it has a "
        "history, and no\n"
        "--capacity is asked about.");
  }

  Result<ExitCode> run(Console& console) override {
    std::optional<std::uint64_t> capacity;
    if (!capacity_.empty()) {
      auto size = units::parse_bytes(capacity_);
      if (!size) return std::move(size).error();
      capacity = *size;
    }
    auto recording = load_recording(console, trace_, {.format = from_, .partial = partial_});
    if (!recording) return std::move(recording).error();
    if (const auto cut = recording->stacks_cut(); cut > 0) {
      console.say(text::format(
          "of {} call stacks only the frames that tell most are kept: there are too many",
          text::grouped(cut)));
    }
    const inspect::Lifetimes lifetimes(recording->trace());
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    const auto report = inspect::find_ooms(*recording, lifetimes, capacity);
    std::size_t which = 0;
    if (event_) {
      while (which < report.all.size() && report.all[which].event != *event_) ++which;
      if (which == report.all.size()) {
        return fail(Errc::usage,
                    "{}: event {} did not fail for want of memory: expected one of the {} that did",
                    trace_, *event_, report.all.size());
      }
    }
    const inspect::Shown shown{.top = static_cast<std::size_t>(top_),
                               .frames = static_cast<std::size_t>(frames_),
                               .all_frames = all_frames_};
    const auto fit_checks = inspect::fit_checks(*recording, lifetimes, capacity);
    if (!json_.empty()) {
      const auto text = inspect::to_json(*recording, lifetimes, report, which, fit_checks, shown.top);
      if (auto written = console.write(json_, text); !written) return written.error();
    }
    if (report.all.empty()) {
      const bool state =
          !fit_checks.empty() && std::none_of(fit_checks.begin(), fit_checks.end(),
                                            [](const auto& each) { return each.has_history; });
      if (!fit_checks.empty() && (capacity || state)) {
        if (json_ != "-")
          console.result(inspect::to_text(*recording, lifetimes, fit_checks, trace_, shown));
        return ExitCode::fine;
      }
      std::vector<std::string> most;
      for (const auto& each : fit_checks) {
        most.push_back(units::bytes(each.live.bytes) + " live at most");
        if (fit_checks.size() > 1 || each.device != 0)
          most.back() += text::format(" on device {}", each.device);
      }
      if (most.empty()) most.emplace_back("no device memory is live");
      console.say(
          text::format("{}: no request is recorded to have failed for want of memory; {}. "
                       "--capacity SIZE asks whether one "
                       "would on another device",
                       recording->trace().source(), text::join(most)));
      return ExitCode::inconclusive;
    }
    if (json_ != "-") {
      console.result(inspect::to_text(*recording, lifetimes, report, which, shown));
    }
    return ExitCode::fine;
  }

 private:
  std::string trace_, from_, capacity_, json_;
  std::optional<std::uint64_t> event_;
  std::uint64_t top_ = 10, frames_ = 3;
  bool partial_ = false, all_frames_ = false;
};

}  // namespace

extern constinit const Command explain_command{
    "explain", "Say why a run was out of memory, and what would have been enough", false,
    [](Arguments& arguments) -> std::unique_ptr<CommandRun> {
      return std::make_unique<Explain>(arguments);
    }};

}  // namespace emm
