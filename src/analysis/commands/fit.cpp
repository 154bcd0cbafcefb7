#include <algorithm>
#include <memory>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "cli/recorded_manager.hpp"
#include "cli/recorded_settings.hpp"
#include "commands/held_state.hpp"
#include "emm/manager_entry.hpp"
#include "trace/lifetimes.hpp"
#include "trial/fit_text.hpp"
#include "trial/together.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class FitRun final : public CommandRun {
 public:
  explicit FitRun(Arguments& arguments) {
    arguments.inputs("TRACE", paths_, "",
                     "The trace, in any format of `emmctl list formats`; - is standard input; with "
                     "--together one of each process");
    arguments.text("--from", trace_.format, "FORMAT",
                   "The trace's format, if its content does not tell");
    arguments.flag("--partial", trace_.partial,
                   "Read a cut or damaged trace up to where the damage begins");
    arguments.flag("--together", together_,
                   "Answer for several processes that share one device: what serves them all "
                   "whatever their offset in time");
    arguments.list("--against", against_, "NAME|FILE[:key=value,...]",
                   "--together: a further manager to compare; repeatable (all bundled ones, if no "
                   "manager is named)");
    manager_.offer(arguments);
    deadline_.offer(arguments);
    arguments.flag("--as-recorded", as_recorded_,
                   "Answer for what the recording served, without the requests that it refused");
    arguments.flag("--limit", limit_,
                   "Also search for a layout: what is enough if all requests are known beforehand "
                   "(slow where much is live)");
    arguments.text("--search-time", search_time_, "TIME", "How long to search for a better layout");
    arguments.count("--jobs", jobs_,
                    "Replays at once; 0: as many as there are processors (one, of a manager in a "
                    "shared object and with --together)");
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_,
                     "Writes the answer as JSON (emmctl.fit/2; with --together "
                     "emmctl.fit-together/1)");
    arguments.footer(
        "fit replays the trace on fresh simulated devices of one capacity, a multiple of 2 MiB. A "
        "capacity passes if the replay would exit with 0 and every request is served that the "
        "recording refused. A manager may fail with more memory where less is enough, so fit also "
        "tries capacities above the answer: every 2 MiB for 64 MiB, then every 1 % up to twice the "
        "answer. The answer is the smallest capacity from which no tried capacity failed; one that "
        "was not tried may fail. An interrupt ends the search, and fit then answers with what it "
        "knows. Exit codes: 0 found; 1 the trace passes at no capacity; 3 nothing could be judged; "
        "128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    auto search_ns = units::parse_ns(search_time_);
    if (!search_ns) return std::move(search_ns).error();
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    const bool as_recorded = manager_.name() == "recorded";
    if (as_recorded && together_)
      return fail(Errc::usage, "--together: expected another manager than recorded");
    if (!paths_.empty()) trace_.path = paths_.front();
    auto manager = as_recorded ? recorded_manager(trace_) : manager_.find(*deadline);
    if (!manager) return std::move(manager).error();
    handle_interrupts();
    if (together_) return fit_together(console, *deadline);
    if (paths_.size() != 1 || !against_.empty())
      return fail(Errc::usage, "fit of {} traces: expected one, or --together", paths_.size());
    const auto named = manager_.spec();
    ModelRecording recording(named.value_or(""));
    const auto models = static_cast<bool>(recording);
    auto loaded = load_trace(console, trace_, models ? &recording : nullptr);
    if (!loaded) return std::move(loaded).error();
    if (is_state_alone(console, loaded->trace)) return ExitCode::inconclusive;
    say_what_was_before(console, loaded->trace);
    if (models) {
      const auto spec = recording.with_settings(console, *named, InferredLimitUse::is_the_capacity);
      manager = manager_.find_as(spec, *deadline);
      if (!manager) return std::move(manager).error();
      loaded->trace.set_pool_steps(recording.pool_steps(spec));
    }
    const auto& trace = loaded->trace;

    trial::FitShown shown{.trace = trace,
                          .manager = manager->name,
                          .needs = {},
                          .width = console.width(),
                          .all_frames = all_frames_};
    const trace::Lifetimes lifetimes(trace);
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    using trace::Asked;
    const auto asked = as_recorded_ ? Asked::served : Asked::all;
    shown.needs = limit_ ? inspect::needs(lifetimes, SteadyClock(), *search_ns, asked)
                         : inspect::bounds(lifetimes, asked);
    const auto other = inspect::bounds(lifetimes, as_recorded_ ? Asked::all : Asked::served);
    if (const auto words = trial::renumbered(trace); !words.empty()) console.say(words);
    const trial::Setting setting{.manager = std::move(*manager),
                                 .profile = manager_.profile(),
                                 .peer_program = console.program(),
                                 .interrupted = &interrupted()};
    auto fit = trial::fit(trace, setting,
                          {.asked = asked,
                           .start = trial::need_of(shown.needs),
                           .other_start = trial::need_of(other),
                           .hint = trace.least_capacity(),
                           .jobs = jobs_,
                           .progress = [&](std::uint64_t trials, std::uint64_t expected) {
                             console.progress("trials", trials, expected);
                           }});
    console.end_progress();
    if (!fit) return std::move(fit).error();
    if (models && !as_recorded_ && !fit->interrupted) shown.range = fit_range(recording, *named);

    if (!json_.empty()) {
      if (auto written = console.write(json_, trial::to_json(*fit, shown)); !written)
        return written.error();
    }
    if (fit->judged_nothing) {
      console.say(
          "nothing was judged: the trace has no operations, or the manager declined every "
          "allocation");
      return ExitCode::inconclusive;
    }
    if (json_ != "-") console.result(trial::to_text(*fit, shown));
    if (fit->hung) {
      console.say(fit->hung->words + "; what is known so far is in the answer");
      return ExitCode::failure;
    }
    if (fit->interrupted) console.say("interrupted; what is known so far is in the answer");
    return fit->answer.capacity ? ExitCode::fine : ExitCode::failure;
  }

 private:
  /// The smallest capacity for PyTorch's allocator with the settings of `spec`, as a range over
  /// what the driver's addresses leave open. Nothing for other models and recordings.
  static std::optional<trial::FitRange> fit_range(const ModelRecording& recording,
                                                  const std::string& spec) {
    const auto* of_pytorch = recording.pytorch();
    if (!of_pytorch) return std::nullopt;
    const auto settings = settings_of(spec, *of_pytorch);
    const bool limited = settings.fraction || settings.limit() != allocators::pytorch::kNoLimit;
    return trial::fit_of(program_of(*of_pytorch, of_pytorch->settings()), settings,
                         limited ? trial::Limit::fraction : trial::Limit::device,
                         trial::Look::closely, &interrupted());
  }

  /// The recordings of one trace, one for each manager's model.
  class Models final : public trace::OperationSink {
   public:
    explicit Models(const std::vector<std::string>& specs) {
      for (const auto& spec : specs) models.emplace_back(spec);
    }
    Status on_header(const trace::Header& header) override {
      return each([&](ModelRecording& model) { return model.on_header(header); });
    }
    Status on_operation(const trace::Operation& operation) override {
      return each([&](ModelRecording& model) { return model.on_operation(operation); });
    }
    Status finish() override {
      return each([](ModelRecording& model) { return model.finish(); });
    }

    std::vector<ModelRecording> models;

   private:
    template <class Do>
    Status each(const Do& work) {
      for (auto& model : models) {
        if (auto done = work(model); !done) return done;
      }
      return {};
    }
  };

  Result<ExitCode> fit_together(Console& console, std::chrono::milliseconds deadline) {
    if (limit_ || as_recorded_)
      return fail(Errc::usage, "--together with --limit or --as-recorded: expected one of them");
    auto specs = against_;
    if (!manager_.name().empty()) specs.insert(specs.begin(), manager_.name());
    if (specs.empty()) {
      for (const auto* entry : bundled_managers()) {
        if (entry->device_memory && entry->fills_device) specs.emplace_back(entry->name);
      }
    }
    std::vector<trial::TogetherManager> managers;
    for (const auto& spec : specs) managers.push_back({.name = spec, .settings = {}});
    std::vector<LoadedTrace> loaded;
    for (const auto& path : paths_) {
      Models recordings(specs);
      auto trace = load_trace(
          console, {.path = path, .format = trace_.format, .partial = trace_.partial}, &recordings);
      if (!trace) return std::move(trace).error();
      if (is_state_alone(console, trace->trace)) return ExitCode::inconclusive;
      say_what_was_before(console, trace->trace);
      if (auto summed = trace::Lifetimes(trace->trace).can_be_summed(); !summed)
        return summed.error();
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const auto& model = recordings.models[i];
        if (is_pytorch(specs[i])) trace->trace.set_pool_steps(model.pool_steps(specs[i]));
        auto manager =
            manager_.find_as(model ? model.with_settings(console, specs[i]) : specs[i], deadline);
        if (!manager) return std::move(manager).error();
        managers[i].settings.push_back({.manager = std::move(*manager),
                                        .profile = manager_.profile(),
                                        .peer_program = console.program(),
                                        .interrupted = &interrupted()});
      }
      loaded.push_back(std::move(*trace));
    }
    std::vector<const trace::Trace*> traces;
    for (const auto& each : loaded) traces.push_back(&each.trace);
    const auto found =
        trial::together(traces, managers, [&](std::uint64_t done, std::uint64_t total) {
          console.progress("processes", done, total);
        });
    console.end_progress();
    if (!found) return found.error();
    if (!json_.empty()) {
      if (auto written = console.write(json_, trial::to_json(*found)); !written)
        return written.error();
    }
    if (json_ != "-") console.result(trial::to_text(*found));
    if (found->interrupted) console.say("interrupted; what is known so far is in the answer");
    const bool any = std::any_of(found->rows.begin(), found->rows.end(),
                                 [](const auto& row) { return row.failure.empty(); });
    return any ? ExitCode::fine : ExitCode::failure;
  }

  TraceArgument trace_;
  std::vector<std::string> paths_, against_;
  bool together_ = false;
  std::string json_, search_time_ = "10s";
  ManagerChoice manager_;
  CallDeadline deadline_;
  std::uint64_t jobs_ = 0;
  bool limit_ = false, as_recorded_ = false, all_frames_ = false;
};

}  // namespace

extern constinit const Command fit_command{
    "fit",
    "Find the smallest capacity at which a trace passes: "
    "the program's need, and the manager's waste",
    false,
    make_run<FitRun>,
    Heading::ask,
    {{{"emmctl fit run.jsonl --manager pool", "Finds the smallest capacity for the pool."},
      {"emmctl fit oom.pickle --manager pool --as-recorded",
       "Leaves out what the recording was refused."}}}};

}  // namespace emm
