#include <algorithm>
#include <memory>

#include "base/launcher.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/locale.hpp"
#include "cli/manager_choice.hpp"
#include "cli/memory_maps.hpp"
#include "cli/rank_names.hpp"
#include "cli/recorded_manager.hpp"
#include "cli/recorded_settings.hpp"
#include "emm/manager_entry.hpp"
#include "log/replay_picture.hpp"
#include "log/writer.hpp"
#include "replay/apart.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"
#include "replay/gathering.hpp"
#include "replay/measured_stack.hpp"
#include "replay/null_manager.hpp"
#include "trace/lifetimes.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Replay final : public CommandRun {
 public:
  explicit Replay(Arguments& arguments) {
    trace_.offer(arguments);
    manager_.offer(arguments);
    deadline_.offer(arguments);
    arguments.under(OptionHeading::device)
        .text("--device", device_, "DEVICE",
              "auto, sim[:capacity=..,devices=..,seed=..,costs=h200], cuda[:N] or cuda:local, the "
              "launcher's rank on this machine");
    arguments.under(OptionHeading::device)
        .list("--fault", faults_, "CALL:N|rate=..,seed=..",
              "Make the N-th call of a driver function fail, or calls at random at a rate; "
              "CALL is any, or a name such as mem_alloc (cuMemAlloc); repeatable");
    arguments.output("--log", log_, "Write a row for each operation; - is standard output");
    arguments.under(OptionHeading::output)
        .text("--log-format", log_format_, "FORMAT", "The log's format: rmm, rmm-legacy or emm");
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_, "Writes the summary as JSON (emmctl.replay/1)");
    arguments.output("--memory-map", memory_map_,
                     "Write what lies where in the manager's memory at the end of the run, or "
                     "where it stops, as JSON (emmctl.memory-map/1)");
    arguments.output("--svg", svg_,
                     "Draw what was live and what the manager reserved, over the events, as SVG");
    arguments.output("--map-svg", map_svg_, "Draw what --memory-map writes, as SVG");
    arguments.choice("--on-oom", on_oom_, {"record", "stop"},
                     "Record an out-of-memory and go on, or stop there");
    arguments.count("--repeat", repeat_, "Replay the trace N times, without a reset in between");
    arguments.flag("--verify", verify_, "Fill each allocation, and compare its content at its end");
    arguments.flag("--latency", latency_, "Time each operation, and report percentiles");
    arguments.choice("--clock", clock_, {"device", "host"},
                     "The device's clock, which is a model on a simulated device; or the host's, "
                     "which also measures what the manager itself takes, as --latency does");
    arguments.under(OptionHeading::input)
        .count("--stop-at", stop_at_, "EVENT",
               "Stop before this event, counted from 0, and show the state");
    arguments.choice("--threads", threads_, {"trace", "recorded", "free"},
                     "trace: one thread, in the trace's order; recorded: each recorded thread on "
                     "its own, waiting for the ids and event records that it needs; free: the "
                     "same, waiting for the ids alone");
    arguments.text("--pace", pace_, "none|recorded|xF",
                   "Keep the recorded times, or run F times as fast, and report the lateness");
    arguments.under(OptionHeading::run)
        .output_folder(
            "--ranks", ranks_, "DIR|none",
            "Where the ranks of one launch meet: they begin together, and one of them tells "
            "of all (.emmctl-ranks, with --device cuda:local or {rank} in a path)");
    arguments.text("--ranks-wait", ranks_wait_, "TIME",
                   "How long a rank waits for the others to begin");
    arguments.list("--fail-on", fail_on_, "leak",
                   "Exit with 1 for memory that is never freed, too; repeatable");
    arguments.footer(
        "Exit codes: 0 fine; 1 an operation failed that should not, or memory was damaged; 2 "
        "usage; 3 inconclusive; 4 damaged input; 5 no device; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    const auto rank = launched();
    const bool asked = !ranks_.empty() || rank_was_named() || device_ == "cuda:local";
    if (!rank || rank->world < 2 || !asked || ranks_ == "none") return run_alone(console);
    handle_interrupts();
    const auto wait_ns = units::parse_ns(ranks_wait_);
    if (!wait_ns) return wait_ns.error();
    const Gathering gathering(ranks_.empty() ? ".emmctl-ranks" : ranks_, *rank);
    console.step("waiting for the other ranks");
    const auto come = gathering.wait(*wait_ns, interrupted());
    console.end_progress();
    if (!come) return come.error();
    gathers_ = true;
    const auto code = run_alone(console);
    const auto table = gathering.leave(answer_, code ? "" : describe(code.error()));
    if (!table) return table.error();
    if (*table) {
      console.result(**table);
      if (ranks_.empty()) gathering.remove();
    }
    return code;
  }

 private:
  Result<ExitCode> run_alone(Console& console) {
    for (const auto& what : fail_on_) {
      if (what != "leak") return fail(Errc::usage, "--fail-on {}: expected leak", what);
    }
    if (repeat_ == 0 || repeat_ > 1'000'000) {
      return fail(Errc::usage, "--repeat {}: expected a count of passes from 1 to 1,000,000",
                  repeat_);
    }
    std::unique_ptr<log::LogWriter> writer;
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    const auto pace = speed();
    if (!pace) return pace.error();
    const bool as_recorded = manager_.name() == "recorded";
    auto manager = manager_.name() == "null" ? Result<ManagerFactory>(replay::null_manager())
                   : as_recorded             ? recorded_manager(trace_)
                                             : manager_.find(*deadline);
    if (as_recorded && manager && threads_ != "trace")
      return fail(Errc::usage, "--manager recorded: expected --threads trace, the recorded order");
    if (!manager) return std::move(manager).error();

    handle_interrupts();
    const auto named = manager_.spec();
    ModelRecording recording(named.value_or(""));
    const auto models = static_cast<bool>(recording);
    // These options need the whole trace in memory, because they go through it more than once.
    const bool walks_once = !as_recorded && repeat_ == 1 && log_.empty() && svg_.empty() &&
                            threads_ == "trace" && *pace == 0;
    auto walked = walk_trace(console, trace_, walks_once, models ? &recording : nullptr);
    if (!walked) return std::move(walked).error();
    const auto& trace = walked->trace();
    std::string spec;
    if (models) {
      spec = recording.with_settings(console, *named);
      manager = manager_.find_as(spec, *deadline);
      if (!manager) return std::move(manager).error();
      walked->loaded.trace.set_pool_steps(recording.pool_steps(spec));
    }
    if (*pace > 0 && !has_times(trace)) {
      return fail(Errc::usage, "--pace {}: {} has no times: expected \"time_ns\" of its events",
                  pace_, trace.source());
    }

    const auto work = [&](const RunEnvironment& at) {
      return execute(console, *walked, *manager, *pace, at);
    };
    const OpenLog open_log = [&](const log::LogOptions& options) -> Result<log::RecordSink*> {
      auto opened = log::open_log(log_, log_format_, trace, options);
      if (!opened) return std::move(opened).error();
      writer = std::move(*opened);
      return writer.get();
    };
    std::vector<std::string> words;
    auto summary = run_apart({.trace = trace,
                              .manager = *manager,
                              .interrupted = &interrupted(),
                              .progress = console.progress_of("replay"),
                              .open_log = log_.empty() ? OpenLog() : open_log,
                              .work = work},
                             words);
    console.end_progress();
    if (writer) {
      if (auto finished = writer->finish(); !finished) {
        if (!summary) console.say(describe(summary.error()));
        return std::move(finished).error();
      }
    }
    if (!summary) return std::move(summary).error();
    if (models) {
      summary->model_agreement = recording.agreement(spec);
      for (auto& note : recording.not_followed()) summary->notes.push_back(std::move(note));
    }
    for (const auto* path : {&memory_map_, &map_svg_}) {
      if (path->empty() || !words.empty()) continue;
      summary->notes.push_back(
          text::format("{} was not written: what is where is asked at the end of a run", *path));
    }
    for (auto& note : walked->loaded.notes) summary->notes.push_back(std::move(note));

    if (auto written = write_results(console, *summary, words, trace); !written)
      return std::move(written).error();
    return tell(console, *summary);
  }

  /// The options of the engine that the command line tells.
  replay::ReplayOptions options_at(double pace) const {
    replay::ReplayOptions options;
    options.on_oom = on_oom_ == "stop" ? replay::ReplayOptions::OnOom::stop
                                       : replay::ReplayOptions::OnOom::record;
    options.threads = threads_ == "recorded" ? replay::ReplayOptions::Threads::recorded
                      : threads_ == "free"   ? replay::ReplayOptions::Threads::free
                                             : replay::ReplayOptions::Threads::trace;
    options.pace = pace;
    options.repeat = static_cast<unsigned>(repeat_);
    // The time of each operation is the manager's own time.
    options.latency = latency_ || clock_ == "host";
    options.verify = verify_;
    options.stop_at = stop_at_;
    return options;
  }

  /// Builds the device and the manager, and replays the trace on them. It may be in a process of
  /// its own: what is to be written afterwards goes into `at.words`.
  Result<log::Summary> execute(Console& console, const WalkedTrace& walked,
                               const ManagerFactory& manager, double pace,
                               const RunEnvironment& at) {
    const auto& trace = walked.trace();
    std::vector<std::string> said;
    auto stack = DeviceStack::create({.device = device_,
                                      .trace = &trace,
                                      .manager = manager,
                                      .faults = faults_,
                                      .profile = manager_.profile(),
                                      .peer_program = console.program()},
                                     &said);
    if (!stack) return std::move(stack).error();
    for (const auto& line : said) console.say(line);
    MeasuredStack measured(**stack);
    const bool by_host = clock_ == "host";
    auto& timed = by_host ? static_cast<replay::Stack&>(measured) : **stack;
    log::RecordSink* log = nullptr;
    if (at.open_log) {
      auto opened = at.open_log(log::LogOptions::of(timed.clock()));
      if (!opened) return std::move(opened).error();
      log = *opened;
    }

    auto options = options_at(pace);
    options.interrupted = at.interrupted;
    options.progress = at.progress;
    options.kept = at.kept;
    if (walked.streamed != nullptr) {
      options.need = [&](std::size_t begin, std::size_t end) {
        return walked.streamed->need(begin, end);
      };
    }
    MemoryMaps maps;
    const bool wants_maps = !memory_map_.empty() || !map_svg_.empty();
    if (wants_maps) {
      options.look = [&](const log::ContextStatistics& statistics, std::uint32_t device,
                         const std::optional<MemoryMap>& map) {
        maps.add(statistics, device, map);
      };
    }
    replay::Engine engine(trace, timed, options, log);
    auto summary = engine.run();
    if (!summary) return summary;
    for (const auto& fault : (*stack)->unused_faults()) {
      summary->notes.push_back(
          text::format("--fault {} failed no call: the run made too few", fault));
    }
    if (wants_maps) {
      at.words.push_back(maps.to_json(*summary));
      at.words.push_back(maps.to_svg(*summary));
    }
    return summary;
  }

  /// Writes the files that the command line asks for, but for the log. `words` has the memory map
  /// as JSON and as SVG, if the run came to its end.
  Status write_results(Console& console, log::Summary& summary,
                       const std::vector<std::string>& words, const trace::Trace& trace) const {
    if (auto written = console.write_if(json_, [&] { return log::to_json(summary); }); !written)
      return written;
    if (!svg_.empty() && summary.course.empty()) {
      summary.notes.push_back(
          text::format("{} was not written: it is drawn of a run to its end on one thread", svg_));
    }
    const auto write = [&](const std::string& path, std::string_view written) -> Status {
      return path.empty() ? Status() : console.write(path, written);
    };
    if (!words.empty()) {
      if (auto written = write(memory_map_, words[0]); !written) return written;
      if (auto written = write(map_svg_, words[1]); !written) return written;
    }
    if (!svg_.empty() && !summary.course.empty()) {
      const auto picture = log::replay_picture(
          summary, trace, capacity_of(summary),
          trace::Lifetimes(trace).peak_of(trace::Lifetime::MemoryKind::backing));
      if (auto written = write(svg_, picture); !written) return written;
    }
    return {};
  }

  /// Says how it went, and answers with the exit code.
  ExitCode tell(Console& console, const log::Summary& summary) {
    // stdout gets one result: the JSON, the map or the log if one was sent there, else the summary.
    const auto text = log::to_text(summary, console.width(), all_frames_, speaks_utf8());
    if (json_ == "-" || log_ == "-" || memory_map_ == "-" || svg_ == "-" || map_svg_ == "-") {
      if (replay::found_failure(summary, !fail_on_.empty()))
        console.say("failures were found; see the result");
    } else {
      if (!gathers_) console.result(text);
    }
    if (gathers_) answer_ = log::to_json(summary);
    console.aside(summary.reports);
    if (summary.abnormal) console.say(summary.abnormal->words);
    if (summary.interrupted)
      console.say("interrupted; the log and the summary hold what was done until then");
    const auto code = static_cast<ExitCode>(replay::exit_code(summary, !fail_on_.empty()));
    if (code != ExitCode::inconclusive) return code;
    console.say(summary.pass.events == 0
                    ? "nothing was judged: the trace has no operations"
                    : "nothing was judged: the manager declined every allocation");
    return code;
  }

  /// The speed from --pace; 0 for none.
  Result<double> speed() const {
    if (pace_ == "none") return 0.0;
    if (pace_ == "recorded") return 1.0;
    const auto times =
        pace_.starts_with("x") ? text::to_double(std::string_view(pace_).substr(1)) : std::nullopt;
    if (!times || !(*times >= 0.001 && *times <= 1e6)) {
      return fail(Errc::usage,
                  "--pace {}: expected none, recorded or x and a number from 0.001 to 1,000,000",
                  pace_);
    }
    return *times;
  }
  /// The capacity in a simulated device's description; 0 for other devices.
  static std::uint64_t capacity_of(const log::Summary& summary) {
    constexpr std::string_view kBefore = "capacity=";
    const auto at = summary.device.find(kBefore);
    if (!summary.device.starts_with("sim") || at == std::string::npos) return 0;
    const auto digits = std::string_view(summary.device).substr(at + kBefore.size());
    return text::to_u64(digits.substr(0, digits.find(','))).value_or(0);
  }
  static bool has_times(const trace::Trace& trace) {
    for (std::size_t at = 0; at < trace.size(); ++at) {
      if (trace[at].time_ns != 0) return true;
    }
    return false;
  }

  TraceArgument trace_;
  std::string threads_ = "trace", pace_ = "none", clock_ = "device";
  std::string device_ = "auto", log_, log_format_ = "rmm", json_, memory_map_, svg_, map_svg_,
              on_oom_ = "record";
  ManagerChoice manager_;
  CallDeadline deadline_;
  std::vector<std::string> faults_, fail_on_;
  std::uint64_t repeat_ = 1;
  std::optional<std::uint64_t> stop_at_;
  std::string ranks_, ranks_wait_ = "300s", answer_;  // answer_: for the table of all ranks
  bool gathers_ = false;                              // one rank reports for all
  bool verify_ = false, latency_ = false, all_frames_ = false;
};

}  // namespace

extern constinit const Command replay_command{
    "replay",
    "Replay a trace on a manager: a log, a summary, and what went wrong",
    false,
    make_run<Replay>,
    Heading::ask,
    {{{"emmctl replay run.jsonl --manager pool --device sim",
       "Says whether the pool serves the program, and what it reserves."},
      {"emmctl replay run.jsonl --manager pool --capacity 5GiB --log run.csv",
       "Does it with 5 GiB, and writes a row for each operation."}}}};

}  // namespace emm
