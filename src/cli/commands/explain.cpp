#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load_recording.hpp"
#include "inspect/oom_text.hpp"
#include "trial/remedies.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Explain final : public CommandRun {
 public:
  explicit Explain(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.count("--event", event_, "N",
                    "The event of the failure to explain; the first failure, if not given");
    arguments.text("--capacity", capacity_, "SIZE",
                   "What each device has, if the trace does not say it, or wrongly; for a trace "
                   "without a failed request, ask whether one would fail with this");
    arguments.count("--top", top_, "How many call sites to list");
    arguments.count("--frames", frames_, "How many frames to show of each");
    offer_all_frames(arguments, all_frames_);
    arguments.flag("--no-remedies", no_remedies_,
                   "Do not try, by replays of a PyTorch recording, what would have served the "
                   "request");
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.explain/2)");
    arguments.footer(
        "Exit codes: 0 explained; 3 nothing to explain: no recorded request failed for want of "
        "memory, and no --capacity is asked about. A snapshot without history is always "
        "described.");
  }

  Result<ExitCode> run(Console& console) override {
    std::optional<std::uint64_t> capacity;
    if (!capacity_.empty()) {
      auto size = units::parse_bytes(capacity_);
      if (!size) return std::move(size).error();
      capacity = *size;
    }
    allocators::pytorch::Recording pytorch;
    auto recording = load_recording(console, trace_, &pytorch);
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
                    trace_.path, *event_, report.all.size());
      }
    }
    const inspect::Shown shown{.top = static_cast<std::size_t>(top_),
                               .frames = static_cast<std::size_t>(frames_),
                               .all_frames = all_frames_};
    const auto fit_checks = inspect::fit_checks(*recording, lifetimes, capacity);
    std::optional<trial::Advice> advice;
    if (pytorch.is_recording() && which < report.all.size() &&
        report.all[which].device == pytorch.device() && !no_remedies_) {
      handle_interrupts();
      auto advised = trial::advise(pytorch, recording->trace(), report.all[which].event,
                                   trial::capacity_at(report.all[which], pytorch),
                                   {.peer_program = console.program(),
                                    .interrupted = &interrupted(),
                                    .progress = [&](std::uint64_t done, std::uint64_t total) {
                                      console.progress("remedies", done, total);
                                    }});
      console.end_progress();
      if (!advised) return std::move(advised).error();
      advice = *std::move(advised);
    }
    if (!json_.empty()) {
      auto text = inspect::to_json(*recording, lifetimes, report, which, fit_checks, shown.top);
      if (advice) {
        const auto end = text.rfind('}');
        text.insert(end, "," + to_json_members(*advice, recording->trace()));
      }
      if (auto written = console.write(json_, text); !written) return written.error();
    }
    if (report.all.empty()) {
      const bool state =
          !fit_checks.empty() && std::none_of(fit_checks.begin(), fit_checks.end(),
                                              [](const auto& each) { return each.has_history; });
      if (!fit_checks.empty() && (capacity || state)) {
        if (json_ != "-")
          console.result(inspect::to_text(*recording, lifetimes, fit_checks, trace_.path, shown));
        return ExitCode::fine;
      }
      std::vector<std::string> most;
      for (const auto& each : fit_checks) {
        most.push_back(units::bytes(each.live.bytes) + " live at most");
        if (fit_checks.size() > 1 || each.device != 0)
          most.back() += text::format(" on device {}", each.device);
      }
      if (most.empty()) most.emplace_back("no device memory is live");
      console.say(text::format(
          "{}: no request is recorded to have failed for want of memory; {}{}",
          recording->trace().source(), text::join(most),
          fit_checks.empty() ? "" : ". --capacity SIZE asks whether one would on another device"));
      return ExitCode::inconclusive;
    }
    if (json_ != "-") {
      console.result(inspect::to_text(*recording, lifetimes, report, which, shown));
      if (advice) console.result(to_text(*advice, recording->trace(), shown.top, console.width()));
    }
    if (advice && advice->interrupted) console.say("interrupted: not every remedy was tried");
    return ExitCode::fine;
  }

 private:
  TraceArgument trace_;
  std::string capacity_, json_;
  std::optional<std::uint64_t> event_;
  std::uint64_t top_ = 10, frames_ = 3;
  bool all_frames_ = false, no_remedies_ = false;
};

}  // namespace

extern constinit const Command explain_command{
    "explain", "Say why a run was out of memory, and what would have been enough", false,
    make_run<Explain>};

}  // namespace emm
