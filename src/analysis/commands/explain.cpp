#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "allocators/pytorch/survivors.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/passes.hpp"
#include "cli/recorded_settings.hpp"
#include "commands/explain_log.hpp"
#include "commands/held_state.hpp"
#include "commands/load_recording.hpp"
#include "commands/statistics_answer.hpp"
#include "inspect/explanation.hpp"
#include "inspect/oom_text.hpp"
#include "trace/curve.hpp"
#include "trial/remedies.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Explain final : public CommandRun {
 public:
  explicit Explain(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.under(OptionHeading::input)
        .count("--event", event_, "N",
               "The failure to explain: its event, or the line of its message in a log. Without "
               "--event, the first failure");
    arguments.under(OptionHeading::device)
        .text("--capacity", capacity_, "SIZE",
              "The memory of each device, if the trace does not state it or states it wrongly. For "
              "a trace without a failed request: ask whether a request would fail with this much");
    choice_.offer(arguments);
    arguments.under(OptionHeading::shown).count("--top", top_, "How many call sites to list");
    arguments.under(OptionHeading::shown)
        .count("--frames", frames_, "How many frames to show of each");
    offer_all_frames(arguments, all_frames_);
    arguments.flag("--no-remedies", no_remedies_,
                   "Do not try, by replays of a PyTorch recording, what would have served the "
                   "request");
    arguments.under(OptionHeading::input)
        .flag("--in-passes", in_passes_,
              "Read the file several times and hold only what is live, for long traces; no "
              "remedies are tried");
    arguments.output("--json", json_,
                     "Writes the answer as JSON (emmctl.explain/2; of a log "
                     "emmctl.explain-message/1)");
    arguments.footer(
        "A log, a terminal's text or a pipe may be given in place of a trace: the out-of-memory "
        "messages of PyTorch, TensorFlow, JAX, CuPy, RMM and others are found in it. Exit codes: 0 "
        "explained; 3 nothing to explain: no recorded request failed for want of memory, no "
        "--capacity is asked about, and what the manager held is not recorded. If what the manager "
        "held is recorded, as in a snapshot of PyTorch, explain describes the state at the end: "
        "what is active, what PyTorch would give back before a request fails, and what is stuck. "
        "With --capacity and a state without history, explain also names the largest request that "
        "would be served.");
  }

  Result<ExitCode> run(Console& console) override {
    more_ = choice_.apply();
    std::optional<std::uint64_t> capacity;
    if (!capacity_.empty()) {
      auto size = units::parse_capacity(capacity_);
      if (!size) return std::move(size).error();
      capacity = *size;
    }
    // What failed comes before what was held.
    const auto is_failure = tells_of_failure(trace_);
    if (!is_failure) return is_failure.error();
    if (*is_failure) {
      console.say(text::format("{}: the log has figures, too: emmctl inspect {} shows them",
                               trace_.path, text::shell_word(trace_.path)));
    } else {
      auto stated = answer_statistics(console, trace_, json_, top_, more_);
      if (!stated) return std::move(stated).error();
      if (*stated) return **stated;
    }
    if (in_passes_ && !has_name(trace_.path)) {
      return fail(Errc::usage, "{}: --in-passes reads a file again: expected the name of one",
                  trace_.path);
    }
    if (in_passes_ || is_for_passes(trace_)) {
      const auto read = passes(console, trace_);
      auto found = inspect::explain_in_passes(trace_.path, read, capacity, event_);
      if (!found) return std::move(found).error();
      if (*found != nullptr) {
        auto& all = **found;
        if (auto done = describe(console, read, all); !done) return done.error();
        if (!no_remedies_ && !all.report.all.empty() &&
            all.trace().header().framework.starts_with("torch")) {
          console.say(text::format("{}: it is read in passes: no remedies are tried", trace_.path));
        }
        return answer(console, {.trace = all.trace(),
                                .moments = all,
                                .report = all.report,
                                .fit_checks = all.fit_checks,
                                .capacity = capacity});
      }
      say_in_memory(console, trace_,
                    "its operations are not in the order of their seq, a free completes later than "
                    "it is asked for, or it has several streams");
    }
    auto source = format::ByteSource::open(trace_.path, &interrupted());
    if (!source) return std::move(source).error();
    if (is_log(**source, trace_.format)) {
      return explain_log(console, **source,
                         {.path = trace_.path, .json = json_, .line = event_, .more = more_});
    }
    allocators::pytorch::Recording pytorch;
    auto recording = load_recording(console, trace_, &pytorch, *std::move(source));
    if (!recording) return std::move(recording).error();
    say_cut_stacks(console, *recording);
    const trace::Lifetimes lifetimes(recording->trace());
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    auto [report, fit_checks] = inspect::explain(*recording, lifetimes, capacity);
    auto which = chosen(report);
    if (!which) return std::move(which).error();
    if (report.all.empty()) describe_states(fit_checks, pytorch);
    std::optional<trial::Advice> advice;
    const auto* const oom = *which < report.all.size() ? &report.all[*which] : nullptr;
    const auto is_asked = oom != nullptr || (capacity && !recording->trace().is_state());
    const auto is_tried = pytorch.is_recording() && is_asked && !no_remedies_;
    if (is_tried) {
      handle_interrupts();
      if (oom != nullptr && oom->device != pytorch.device())
        pytorch = pytorch.on_device(oom->device);
      say_inferred_limit(console, pytorch);
      std::optional<std::uint64_t> event;
      if (oom != nullptr) event = oom->event;
      auto advised = trial::advise(
          pytorch, recording->trace(), event,
          trial::question_of(pytorch, pytorch.settings(), capacity, trial::Limit::device, event),
          {.peer_program = console.program(),
           .interrupted = &interrupted(),
           .progress = console.progress_of("trying remedies")});
      console.end_progress();
      if (!advised) return std::move(advised).error();
      advice = *std::move(advised);
    }
    const inspect::MomentsInMemory moments(lifetimes);
    return answer(console, {.trace = recording->trace(),
                            .moments = moments,
                            .report = report,
                            .fit_checks = fit_checks,
                            .capacity = capacity,
                            .advice = advice ? &*advice : nullptr});
  }

 private:
  struct Found {
    const trace::Trace& trace;
    const inspect::Moments& moments;
    const inspect::OomReport& report;
    const std::vector<inspect::FitCheck>& fit_checks;
    std::optional<std::uint64_t> capacity;
    const trial::Advice* advice = nullptr;
  };

  /// Reads the file once more for what of the inactive memory is returnable, as the model of
  /// PyTorch's allocator tells it of all requests.
  Status describe(Console& console, const inspect::ReadAgain& read,
                  inspect::OomsInPasses& all) const {
    if (!all.report.all.empty() || !all.trace().header().framework.starts_with("torch")) return {};
    // Some 500 MiB.
    constexpr std::uint64_t kRequestsMost = 2'000'000;
    ShortRecording of_pytorch(kRequestsMost);
    if (auto done = read(of_pytorch); !done) return done;
    if (of_pytorch.get() != nullptr) {
      describe_states(all.fit_checks, *of_pytorch.get());
      return {};
    }
    allocators::pytorch::Recording at_end;
    allocators::pytorch::Survivors survivors;
    if (auto done = read(survivors); !done) return done;
    survivors.pass_to(at_end);
    if (auto done = read(survivors); !done) return done;
    if (survivors.are_sized()) {
      describe_states(all.fit_checks, at_end);
    } else {
      console.say(text::format(
          "{}: more than {} requests, whose blocks have no sizes: how much of the inactive "
          "memory is returnable is not worked out in passes",
          trace_.path, text::grouped(kRequestsMost)));
    }
    return {};
  }

  /// The index of the failure to explain: the first one, or the one at --event.
  Result<std::size_t> chosen(const inspect::OomReport& report) const {
    std::size_t which = 0;
    if (!event_) return which;
    while (which < report.all.size() && report.all[which].event != *event_) ++which;
    if (which < report.all.size()) return which;
    return fail(Errc::usage,
                "{}: event {} did not fail for want of memory: expected one of the {} that did",
                trace_.path, *event_, report.all.size());
  }

  Result<ExitCode> answer(Console& console, const Found& found) const {
    const auto& [trace, moments, report, fit_checks, capacity, advice] = found;
    auto chosen_one = chosen(report);
    if (!chosen_one) return std::move(chosen_one).error();
    const auto which = *chosen_one;
    const inspect::Shown shown{.top = static_cast<std::size_t>(top_),
                               .frames = static_cast<std::size_t>(frames_),
                               .all_frames = all_frames_};
    if (!json_.empty()) {
      auto text = inspect::to_json(trace, moments, report, which, fit_checks, shown.top);
      if (advice != nullptr) {
        const auto end = text.rfind('}');
        text.insert(end, "," + to_json_members(*advice, trace));
      }
      if (auto written = console.write(json_, text); !written) return written.error();
    }
    if (report.all.empty()) {
      const bool state = std::any_of(fit_checks.begin(), fit_checks.end(),
                                     [](const auto& each) { return each.says_state(); });
      if (!fit_checks.empty() && (capacity || state)) {
        if (json_ == "-") return ExitCode::fine;
        if (more_) {
          console.result(inspect::to_text(trace, moments, fit_checks, trace_.path, shown));
          if (advice != nullptr)
            console.result(to_text(*advice, trace, shown.top, console.width()));
        } else {
          auto brief = inspect::brief(trace, moments, fit_checks, shown);
          brief.command = next_of(trace, state, false);
          if (advice != nullptr) add_advice(brief, *advice);
          console.result(format::to_text(brief));
        }
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
          "{}: the recording has no request that failed for want of memory; {}{}", trace.source(),
          text::join(most),
          fit_checks.empty() ? "" : ". --capacity SIZE asks whether one would on another device"));
      return ExitCode::inconclusive;
    }
    if (json_ != "-" && !more_) {
      const auto growth = moments.growth(report.all[which].device);
      const bool leaks = inspect::grew_until(growth, report.all[which]);
      auto brief = inspect::brief(trace, moments, report, which, leaks ? &growth : nullptr, shown);
      brief.command = next_of(trace, false, leaks);
      if (advice != nullptr) add_advice(brief, *advice);
      console.result(format::to_text(brief));
    } else if (json_ != "-") {
      console.result(inspect::to_text(trace, moments, report, which, shown));
      if (advice != nullptr) console.result(to_text(*advice, trace, shown.top, console.width()));
    }
    if (advice != nullptr && advice->tuning.interrupted)
      console.say("interrupted: not every remedy was tried");
    return ExitCode::fine;
  }

  /// The command that answers the question after this one.
  std::string next_of(const trace::Trace& trace, bool is_state, bool leaks) const {
    if (!has_name(trace_.path)) return {};
    const auto path = text::shell_word(trace_.path);
    if (is_state) return text::format("emmctl inspect {} --map {}", path, trace.size() - 1);
    if (trace::curve_of(trace.header()) != trace::Curve::none)  // which no command replays
      return text::format("emmctl inspect {}", path);
    if (leaks) return text::format("emmctl inspect {} --more", path);
    return text::format("emmctl fit {} --manager pool", path);
  }

  TraceArgument trace_;
  BriefOptions choice_;
  bool more_ = false;
  std::string capacity_, json_;
  std::optional<std::uint64_t> event_;
  std::uint64_t top_ = 10, frames_ = 3;
  bool all_frames_ = false, no_remedies_ = false, in_passes_ = false;
};

}  // namespace

extern constinit const Command explain_command{
    "explain",
    "Say why a run was out of memory, and what would have been enough",
    false,
    make_run<Explain>,
    Heading::ask,
    {{{"emmctl explain oom.pickle", "Says why a PyTorch run ran out of memory."},
      {"emmctl explain train.log", "Says what an out-of-memory message in a log comes to."}}}};

}  // namespace emm
