#include <algorithm>
#include <memory>

#include "base/clock.hpp"
#include "base/shell_word.hpp"
#include "base/text_format.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "cli/recorded_manager.hpp"
#include "cli/recorded_settings.hpp"
#include "commands/held_state.hpp"
#include "emm/manager_entry.hpp"
#include "trace/header.hpp"
#include "trace/lifetimes.hpp"
#include "trace/operation.hpp"
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
    arguments.under(OptionHeading::input)
        .text("--from", trace_.format, "FORMAT",
              "The trace's format, if its content does not tell");
    arguments.under(OptionHeading::input)
        .flag("--partial", trace_.partial,
              "Read a cut or damaged trace up to where the damage begins");
    arguments.flag("--together", together_,
                   "Answer for several processes that share one device: what serves them all "
                   "whatever their offset in time");
    arguments.under(OptionHeading::manager)
        .list("--against", against_, "NAME|FILE[:key=value,...]",
              "--together: a further manager to compare; repeatable (all bundled ones, if no "
              "manager is named)");
    manager_.offer(arguments, managers_);
    deadline_.offer(arguments);
    arguments.under(OptionHeading::input)
        .flag("--as-recorded", as_recorded_,
              "Answer for what the recording served, without the requests that it refused");
    arguments.flag("--limit", limit_,
                   "Also search for a layout: what is enough if all requests are known beforehand "
                   "(slow where much is live)");
    arguments.text("--search-time", search_time_, "TIME", "How long to search for a better layout");
    arguments.count("--jobs", jobs_,
                    "Replays at once; 0: as many as there are processors (one, of a manager in a "
                    "shared object and with --together)");
    more_.offer(arguments);
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_,
                     "Writes the answer as JSON (emmctl.fit/2; of several managers "
                     "emmctl.fit-set/1; with --together emmctl.fit-together/1)");
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
    const bool more = more_.apply();
    const bool is_named = !managers_.empty();
    managers_ = named_managers(console, managers_);
    if (!is_named) managers_.emplace_back();  // what EMM_MEMORY_MANAGER names, or default
    const bool as_recorded =
        std::find(managers_.begin(), managers_.end(), "recorded") != managers_.end();
    if (as_recorded && together_)
      return fail(Errc::usage, "--together: expected another manager than recorded");
    if (!paths_.empty()) trace_.path = paths_.front();
    std::vector<std::string> specs;
    for (const auto& name : managers_) {
      manager_.choose(name);
      const auto manager = name == "recorded" ? recorded_manager(trace_) : manager_.find(*deadline);
      if (!manager) return manager.error();
      specs.push_back(*manager_.spec());
    }
    handle_interrupts();
    if (together_) {
      if (!is_named) managers_.clear();
      return fit_together(console, *deadline);
    }
    if (paths_.size() != 1 || !against_.empty())
      return fail(Errc::usage, "fit of {} traces: expected one, or --together", paths_.size());
    Models recordings(specs);
    auto loaded = load_trace(console, trace_, recordings.are_any() ? &recordings : nullptr);
    if (!loaded) return std::move(loaded).error();
    if (is_state_alone(console, loaded->trace)) return ExitCode::inconclusive;
    say_what_was_before(console, loaded->trace);
    const trace::Lifetimes lifetimes(loaded->trace);
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    const auto asked = as_recorded_ ? trace::CountedRequests::served : trace::CountedRequests::all;
    const auto needs = limit_ ? inspect::needs(lifetimes, SteadyClock(), *search_ns, asked)
                              : inspect::bounds(lifetimes, asked);
    const auto other = inspect::bounds(
        lifetimes, as_recorded_ ? trace::CountedRequests::all : trace::CountedRequests::served);
    if (const auto words = trial::renumbered(loaded->trace); !words.empty()) console.say(words);
    std::vector<trial::Fitted> all;
    std::string text;
    for (std::size_t i = 0; i < managers_.size(); ++i) {
      trial::FitShown shown{.trace = loaded->trace,
                            .manager = managers_[i],
                            .needs = needs,
                            .width = console.width(),
                            .all_frames = all_frames_};
      auto fit = fit_one(console, *loaded, managers_[i], recordings.models[i],
                         {.asked = asked,
                          .start = trial::need_of(needs),
                          .other_start = trial::need_of(other),
                          .hint = loaded->trace.least_capacity(),
                          .jobs = jobs_,
                          .progress = console.progress_of("trials")},
                         *deadline, shown);
      console.end_progress();
      if (!fit) return std::move(fit).error();
      if (!text.empty()) text += '\n';
      if (!fit->judged_nothing) text += trial::to_text(*fit, shown);
      all.push_back({.fit = *std::move(fit), .shown = std::move(shown)});
    }
    if (auto written = console.write_if(json_, [&] { return trial::to_json(all); }); !written)
      return written.error();
    return answer(console, all, more ? text : std::string());
  }

 private:
  /// Searches for the manager `spec`, and writes into `shown` what only its search tells.
  Result<trial::Fit> fit_one(Console& console, LoadedTrace& loaded, const std::string& spec,
                             const ModelRecording& recording, const trial::FitOptions& options,
                             std::chrono::milliseconds deadline, trial::FitShown& shown) {
    manager_.choose(spec);
    auto manager = spec == "recorded" ? recorded_manager(trace_) : manager_.find(deadline);
    const auto named = manager_.spec();
    if (!named) return named.error();
    loaded.trace.set_pool_steps({});
    if (recording) {
      const auto own = recording.with_settings(console, *named, InferredLimitUse::is_the_capacity);
      manager = manager_.find_as(own, deadline);
      if (manager) loaded.trace.set_pool_steps(recording.pool_steps(own));
    }
    if (!manager) return std::move(manager).error();
    shown.manager = manager->name;
    for (const auto& [option, value] : manager_.words())
      shown.chosen_by += text::format(" {} {}", option, text::shell_word(value));
    auto fit = trial::fit(loaded.trace,
                          {.manager = *std::move(manager),
                           .profile = manager_.profile(),
                           .peer_program = console.program(),
                           .interrupted = &interrupted()},
                          options);
    if (fit && recording && !as_recorded_ && !fit->interrupted)
      shown.range = fit_range(recording, *named);
    return fit;
  }

  /// Says what was found; `text` is all of it, or empty for the brief answer.
  ExitCode answer(Console& console, const std::vector<trial::Fitted>& all,
                  const std::string& text) const {
    std::vector<trial::Fitted> judged;
    for (const auto& each : all) {
      if (!each.fit.judged_nothing) {
        judged.push_back(each);
        continue;
      }
      console.say(text::format(
          "{}nothing was judged: the trace has no operations, or the manager declined every "
          "allocation",
          all.size() == 1 ? std::string() : each.shown.manager + ": "));
    }
    if (judged.empty()) return ExitCode::inconclusive;
    if (json_ != "-") console.result(text.empty() ? format::to_text(trial::brief(judged)) : text);
    bool fine = true, interrupted = false;
    for (const auto& each : judged) {
      if (each.fit.hung)
        console.say(each.fit.hung->words + "; what is known so far is in the answer");
      interrupted = interrupted || (each.fit.interrupted && !each.fit.hung);
      fine = fine && !each.fit.hung && each.fit.answer.capacity;
    }
    if (interrupted) console.say("interrupted; what is known so far is in the answer");
    return fine ? ExitCode::fine : ExitCode::failure;
  }

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
                         trial::SearchDepth::closely, &interrupted());
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
    bool are_any() const {
      return std::any_of(models.begin(), models.end(),
                         [](const auto& model) { return static_cast<bool>(model); });
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
    auto specs = managers_;
    specs.insert(specs.end(), against_.begin(), against_.end());
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
    const auto found = trial::together(traces, managers, console.progress_of("processes"));
    console.end_progress();
    if (!found) return found.error();
    if (auto written = console.write_if(json_, [&] { return trial::to_json(*found); }); !written)
      return written.error();
    if (json_ != "-") console.result(trial::to_text(*found));
    if (found->interrupted) console.say("interrupted; what is known so far is in the answer");
    const bool any = std::any_of(found->rows.begin(), found->rows.end(),
                                 [](const auto& row) { return row.failure.empty(); });
    return any ? ExitCode::fine : ExitCode::failure;
  }

  TraceArgument trace_;
  std::vector<std::string> paths_, managers_, against_;
  BriefOptions more_;
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
