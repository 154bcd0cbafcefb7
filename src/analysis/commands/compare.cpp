#include <algorithm>
#include <memory>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "cli/recorded_manager.hpp"
#include "cli/recorded_settings.hpp"
#include "commands/held_state.hpp"
#include "emm/manager_entry.hpp"
#include "format/file_bytes.hpp"
#include "format/json_value.hpp"
#include "trial/compare_rows.hpp"
#include "trial/compare_text.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Names the facts of a PyTorch recording that only the model of its allocator uses.
void say_what_others_do(Console& console, const trace::PoolSteps& steps,
                        const std::vector<std::string>& managers) {
  if (std::all_of(managers.begin(), managers.end(), is_pytorch)) return;
  if (steps.requests != 0) {
    console.say(text::format(
        "{} requests are of {} private pools: pytorch serves them from these, other managers like "
        "all requests",
        text::grouped(steps.requests), steps.pools));
  }
  if (steps.delays != 0) {
    console.say(text::format(
        "{} frees waited for other streams: with pytorch as long as recorded, with other managers "
        "not at all",
        text::grouped(steps.delays)));
  }
}

class Compare final : public CommandRun {
 public:
  explicit Compare(Arguments& arguments) {
    arguments.inputs("TRACE", paths_, "",
                     "The traces, in any format of `emmctl list formats`; - is standard input");
    arguments.under(OptionHeading::manager)
        .list("--manager", managers_, "NAME|FILE[:key=value,...]",
              "A manager, as replay takes it; all for all bundled ones; repeatable. The times "
              "of the others are divided by those of the first. Without it, all bundled ones "
              "that serve requests while the device has room");
    deadline_.offer(arguments);
    arguments.under(OptionHeading::device)
        .text("--device", device_, "DEVICE",
              "auto, sim[:capacity=..,devices=..,seed=..,costs=h200] or cuda[:N]");
    arguments.choice("--clock", clock_, {"device", "host"},
                     "The device's clock, which is a model on a simulated device; or the host's, "
                     "which measures what the managers themselves take");
    arguments.text("--threshold", threshold_, "PERCENT",
                   "Two managers are the same if the whole interval of their ratio is within this");
    arguments.text(
        "--time", time_, "TIME",
        "With --clock host: how long to go on until each ratio of times is known to half "
        "of --threshold");
    arguments.count(
        "--rounds", rounds_, "N",
        "How many turns each manager takes (as many as --time allows; 1 on a simulated clock)");
    arguments.count("--passes", passes_, "N",
                    "Timed passes in each turn, after a first one; their median counts (5; more of "
                    "a short trace)");
    arguments.under(OptionHeading::device)
        .list("--capacity", capacities_, "SIZE",
              "Compare on simulated devices of this capacity; repeatable, one comparison each");
    arguments.under(OptionHeading::input)
        .input("--baseline", baseline_, "A JSON that compare wrote before", false);
    arguments.list("--fail-if", gates_, "CONDITION",
                   "Exit with 1 if the condition holds for a manager: 'reserved > 1.02x' (of the "
                   "baseline), 'ns_per_event > 1.05x', 'failures > 0'; or beside the first "
                   "manager: 'reserved is worse'; repeatable");
    arguments.under(OptionHeading::input)
        .text("--from", from_, "FORMAT", "The traces' format, if their content does not tell");
    arguments.under(OptionHeading::input)
        .flag("--partial", partial_, "Read a cut or damaged trace up to where the damage begins");
    offer_all_frames(arguments, all_frames_);
    choice_.offer(arguments);
    arguments.output("--markdown", markdown_, "Writes a row of each manager as a Markdown table");
    arguments.output("--csv", csv_, "Writes the same as CSV, with exact bytes");
    arguments.output("--svg", svg_, "Draws the rows as bars, as SVG");
    arguments.output("--junit", junit_, "Writes managers, verdicts and conditions as JUnit XML");
    arguments.output("--json", json_,
                     "Writes the comparison as JSON (emmctl.compare/2; of several traces or "
                     "capacities emmctl.compare-set/1)");
    arguments.footer(
        "Bytes and failures come from one pass with all checks, times from passes without them. A "
        "verdict is better, worse or same where the interval of a ratio says so, else "
        "inconclusive. /live divides the reserved bytes by the peak of the live bytes, with the "
        "requests that the recording refused; no manager needs less. /no-wait, shown for traces "
        "with streams, divides the reserved bytes by the least that a manager needs if it never "
        "waits for another stream. A sign beside a ratio below 1 says how the manager came below "
        "1. A time fails a condition only if its whole interval does; bytes are exact. Exit codes: "
        "0 fine; 1 a manager failed the trace, or a condition holds; 3 nothing could be judged; "
        "128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    const bool more = choice_.apply();
    managers_ = named_managers(console, managers_);
    const auto limits = read_limits();
    if (!limits) return limits.error();
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    auto managers = managers_asked(*deadline);
    if (!managers) return std::move(managers).error();
    const auto gates = gates_asked();
    if (!gates) return gates.error();
    const auto baseline = read_baseline();
    if (!baseline) return baseline.error();
    const auto devices = devices_asked();
    if (!devices) return devices.error();

    handle_interrupts();
    All all;
    for (const auto& path : paths_) {
      const TraceArgument trace{.path = path, .format = from_, .partial = partial_};
      auto loaded = load_for(console, trace, *deadline, *managers);
      if (!loaded) return std::move(loaded).error();
      if (!*loaded) return ExitCode::inconclusive;
      for (const auto& device : *devices) {
        if (auto compared = compare_one(console, **loaded, *managers, device, limits->percent,
                                        limits->time_ns, all);
            !compared)
          return compared.error();
      }
    }
    if (more && !not_compared_.empty())
      console.say(text::format(
          "not compared: {}, which take memory before the first request; --manager all does",
          text::join(not_compared_)));
    if (!more) all.text = format::to_text(trial::brief(all.rows, not_compared_));
    if (auto written = write(console, all); !written) return written.error();
    if (auto judged = judge_gates(console, *gates, *baseline, all); !judged) return judged.error();
    if (all.failed) return ExitCode::failure;
    if (!all.judged) {
      console.say(
          "nothing was judged: the trace has no operations, or every manager declined every "
          "allocation");
      return ExitCode::inconclusive;
    }
    return ExitCode::fine;
  }

 private:
  /// What all comparisons of this call add up to.
  struct All {
    std::string text;
    std::vector<std::string> json;
    std::vector<trial::ComparedRow> rows;
    bool failed = false, judged = false;
  };

  /// When two managers are the same, and how long to go on to find out.
  struct Limits {
    double percent = 0;
    std::uint64_t time_ns = 0;
  };
  Result<Limits> read_limits() const {
    constexpr std::uint64_t kMost = 100'000;  // of either: catches a slip of the hand
    if (rounds_.value_or(1) == 0 || rounds_.value_or(1) > kMost || passes_.value_or(1) == 0 ||
        passes_.value_or(1) > kMost) {
      return fail(Errc::usage,
                  "--rounds {} --passes {}: expected at least 1 of each, and at most {}",
                  rounds_.value_or(1), passes_.value_or(5), kMost);
    }
    const auto time_ns = units::parse_ns(time_);
    if (!time_ns) return time_ns.error();
    const auto percent = text::to_double(
        std::string_view(threshold_).substr(0, threshold_.size() - threshold_.ends_with('%')));
    if (!percent || !(*percent > 0 && *percent <= 100)) {
      return fail(Errc::usage, "--threshold {}: expected a percentage above 0 and up to 100%",
                  threshold_);
    }
    return Limits{.percent = *percent, .time_ns = *time_ns};
  }

  /// The managers of managers_, in order; without any, those of the bundled ones that can be
  /// compared. That of `recorded` depends on the trace, and is empty until load_for() makes it.
  Result<std::vector<ManagerFactory>> managers_asked(std::chrono::milliseconds deadline) {
    if (managers_.empty()) {
      for (const auto* entry : bundled_managers()) {
        if (!entry->device_memory) continue;
        (entry->fills_device ? managers_ : not_compared_).emplace_back(entry->name);
      }
    }
    std::vector<ManagerFactory> managers;
    for (const auto& spec : managers_) {
      if (spec == "recorded") {
        managers.emplace_back();
        continue;
      }
      auto manager = choose_manager(spec, {}, deadline);
      if (!manager) return std::move(manager).error();
      managers.push_back(std::move(*manager));
    }
    return managers;
  }

  Result<std::vector<trial::Gate>> gates_asked() const {
    std::vector<trial::Gate> gates;
    for (const auto& words : gates_) {
      auto gate = trial::Gate::parse(words);
      if (!gate) return std::move(gate).error();
      if (gate->needs_baseline() && baseline_.empty())
        return fail(Errc::usage,
                    "--fail-if {}: expected --baseline, whose figure the condition multiplies",
                    words);
      gates.push_back(std::move(*gate));
    }
    return gates;
  }

  /// The rows of --baseline; none without it.
  Result<std::vector<trial::ComparedRow>> read_baseline() const {
    if (baseline_.empty()) return std::vector<trial::ComparedRow>();
    auto text = format::file_bytes(baseline_, &interrupted());
    if (!text) return std::move(text).error();
    auto json = format::parse_json(*text, baseline_);
    if (!json) return std::move(json).error();
    return trial::rows_of(*json, baseline_);
  }

  /// Reads a trace, and makes those of `managers` that depend on it. Nothing if the trace is a
  /// state without requests, which is said.
  Result<std::optional<LoadedTrace>> load_for(Console& console, const TraceArgument& trace,
                                              std::chrono::milliseconds deadline,
                                              std::vector<ManagerFactory>& managers) const {
    const auto model = std::find_if(managers_.begin(), managers_.end(), is_pytorch);
    ModelRecording recording(model == managers_.end() ? "" : *model);
    auto loaded = load_trace(console, trace, recording ? &recording : nullptr);
    if (!loaded) return std::move(loaded).error();
    if (is_state_alone(console, loaded->trace)) return std::optional<LoadedTrace>();
    say_what_was_before(console, loaded->trace);
    if (recording) {
      loaded->trace.set_pool_steps(recording.pool_steps(*model));
      say_what_others_do(console, loaded->trace.pool_steps(), managers_);
    }
    for (std::size_t i = 0; i < managers_.size(); ++i) {
      if (is_pytorch(managers_[i])) {
        auto own = choose_manager(recording.with_settings(console, managers_[i]), {}, deadline);
        if (!own) return std::move(own).error();
        managers[i] = std::move(*own);
      }
      if (managers_[i] != "recorded") continue;
      auto recorded = recorded_manager(trace);
      if (!recorded) return std::move(recorded).error();
      managers[i] = std::move(*recorded);
    }
    return std::optional(std::move(*loaded));
  }

  /// Judges the conditions of --fail-if, says which hold, and writes --junit.
  Status judge_gates(Console& console, const std::vector<trial::Gate>& gates,
                     const std::vector<trial::ComparedRow>& baseline, All& all) const {
    std::vector<std::vector<trial::GateFailure>> failures;
    for (const auto& gate : gates) {
      std::vector<std::string> passed;
      auto found = gate.failures(all.rows, baseline, baseline_, passed);
      if (!found) return std::move(found).error();
      for (const auto& each : *found) console.say(each.words);
      for (const auto& words : passed) console.say(words);
      all.failed = all.failed || !found->empty();
      failures.push_back(std::move(*found));
    }
    if (junit_.empty() || all.json.empty()) return {};
    return console.write(junit_, trial::to_junit(all.rows, gates, failures));
  }

  /// The devices to compare on, in order.
  Result<std::vector<std::string>> devices_asked() const {
    if (capacities_.empty()) return std::vector{device_};
    const bool given = device_.starts_with("sim:");
    if (!given && device_ != "sim" && device_ != "auto")
      return fail(Errc::usage, "--capacity with --device {}: expected a simulated device", device_);
    std::vector<std::string> devices;
    for (const auto& capacity : capacities_) {
      const auto bytes = units::parse_capacity(capacity);
      if (!bytes) return bytes.error();
      devices.push_back(text::format("sim:capacity={}{}{}", *bytes, given ? "," : "",
                                     given ? std::string_view(device_).substr(4) : ""));
    }
    return devices;
  }

  Status compare_one(Console& console, const LoadedTrace& loaded,
                     const std::vector<ManagerFactory>& managers, const std::string& device,
                     double percent, std::uint64_t time_ns, All& all) {
    auto comparison = trial::compare(loaded.trace, managers,
                                     {.device = device,
                                      .host_clock = clock_ == "host",
                                      .rounds = rounds_,
                                      .passes = passes_,
                                      .threshold = percent / 100,
                                      .time_ns = time_ns,
                                      .peer_program = console.program(),
                                      .interrupted = &interrupted(),
                                      .progress = console.progress_of("runs")});
    console.end_progress();
    if (!comparison) return std::move(comparison).error();
    for (const auto& note : comparison->notes) console.say(note);
    if (comparison->interrupted) {
      return fail(Errc::interrupted, "interrupted while {}", "comparing");
    }
    for (const auto& each : comparison->cut_off) console.say(each.words);
    all.failed = all.failed || !comparison->cut_off.empty();
    if (comparison->contestants.empty() || comparison->unmeasured) return {};
    all.json.push_back(trial::to_json(*comparison, loaded.trace));
    if (!all.text.empty()) all.text += '\n';
    all.text += trial::to_text(*comparison, loaded.trace, console.width(), all_frames_);
    for (auto& row : trial::rows_of(*comparison, loaded.trace)) all.rows.push_back(std::move(row));
    for (const auto& each : comparison->contestants) {
      all.failed = all.failed || each.exit_code == 1;
      all.judged = all.judged || each.exit_code != 3;
    }
    return {};
  }

  Status write(Console& console, const All& all) const {
    if (all.json.empty()) return {};
    if (!json_.empty()) {
      auto text = all.json.front();
      if (all.json.size() > 1) {
        text = "{\n\"schema\": \"emmctl.compare-set/1\",\n\"comparisons\": [\n" +
               text::join(all.json, ",\n") + "]\n}\n";
      }
      if (auto written = console.write(json_, text); !written) return written;
    }
    if (auto written = console.write_if(markdown_, [&] { return trial::to_markdown(all.rows); });
        !written)
      return written;
    if (auto written = console.write_if(csv_, [&] { return trial::to_csv(all.rows); }); !written)
      return written;
    if (auto written = console.write_if(svg_, [&] { return trial::to_svg(all.rows); }); !written)
      return written;
    const auto outputs = {&json_, &markdown_, &csv_, &svg_, &junit_};
    if (std::none_of(outputs.begin(), outputs.end(), [](const auto* path) { return *path == "-"; }))
      console.result(all.text);
    return {};
  }

  std::string clock_ = "device", threshold_ = "2%", time_ = "30s";
  std::string device_ = "auto", json_, markdown_, csv_, svg_, junit_, baseline_, from_;
  std::vector<std::string> paths_, managers_, capacities_, gates_;
  std::vector<std::string> not_compared_;
  BriefOptions choice_;
  CallDeadline deadline_;
  std::optional<std::uint64_t> rounds_;
  std::optional<std::uint64_t> passes_;
  bool all_frames_ = false, partial_ = false;
};

}  // namespace

extern constinit const Command compare_command{
    "compare",
    "Replay a trace on several managers by turns: what each takes, reserves and fails",
    false,
    make_run<Compare>,
    Heading::ask,
    {{{"emmctl compare run.jsonl --manager pool --manager pytorch --device sim",
       "Shows what each reserves and fails."},
      {"emmctl compare run.jsonl --manager pool --baseline saved.json --fail-if 'reserved > 1.02x'",
       "Exits with 1 where the pool reserves more than it did."}}}};

}  // namespace emm
