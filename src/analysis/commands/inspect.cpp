#include <ctime>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/gates.hpp"
#include "cli/locale.hpp"
#include "cli/passes.hpp"
#include "cli/tee_sink.hpp"
#include "commands/held_state.hpp"
#include "commands/known_blocks.hpp"
#include "commands/load_recording.hpp"
#include "commands/statistics_answer.hpp"
#include "inspect/beside.hpp"
#include "inspect/description.hpp"
#include "inspect/oom_text.hpp"
#include "inspect/picture.hpp"
#include "inspect/profile_text.hpp"
#include "trace/curve.hpp"
#include "trial/gap_remedies.hpp"

namespace emm {
namespace {

using namespace emm::cli;

constexpr MeasureName kInspectMeasures[] = {{"leaked"},
                                            {"leaked_bytes", true},
                                            {"peak", true},
                                            {"peak_reserved", true},
                                            {"reserved_at_end", true},
                                            {"refused"}};

/// A state has fewer than two requests of the program.
constexpr std::uint64_t kStateRequestsMost = 1;

class Inspect final : public CommandRun {
 public:
  explicit Inspect(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.under(OptionHeading::shown)
        .text("--map", map_, "EVENT|peak|failure",
              "Show where memory lay after that event, at the peak of what was live, or at "
              "the first request that was refused, by its recorded addresses");
    arguments.under(OptionHeading::shown)
        .text("--at", at_, "EVENT",
              "Say only what is live after that event, and where it lies; a long compact trace "
              "takes a second");
    arguments.under(OptionHeading::shown)
        .text("--gap", gap_, "EVENT|peak|reserved|failure",
              "Say what the recorded manager held beyond what was live after that event, to the "
              "byte, by cause and call site; reserved is the peak of what it held. For a PyTorch "
              "recording, replays also show what would lower it");
    arguments.under(OptionHeading::shown)
        .input("--beside", beside_,
               "A CSV of nvidia-smi that was written while the program was recorded: say what lies "
               "outside of the allocator, over time",
               false);
    arguments.flag("--limit", limit_,
                   "Say what the program needs: proven bounds, and a layout that is enough");
    arguments.under(OptionHeading::input)
        .flag("--as-recorded", as_recorded_,
              "With --limit: leave out the requests that the recording refused");
    arguments.text("--search-time", search_time_, "TIME", "How long to search for a better layout");
    gates_.offer(arguments, "leaked > 0");
    choice_.offer(arguments);
    arguments.under(OptionHeading::shown)
        .count("--top", top_, "How many entries of each list to show");
    arguments.under(OptionHeading::shown)
        .count("--frames", frames_, "How many frames to show of each call site");
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.inspect/2)");
    arguments.output("--svg", svg_, "Draws live bytes over events, and the map, as SVG");
    arguments.under(OptionHeading::input)
        .flag("--in-passes", in_passes_,
              "Read the file two or three times and hold only what is live. Long traces are read "
              "in this way anyway, except with --limit, --gap and --svg");
    arguments.under(OptionHeading::device)
        .text(
            "--capacity", capacity_, "SIZE",
            "With --svg: the memory of a device, drawn as a line, if the trace does not state it");
    arguments.footer(
        "Sizes are as requested, and memory is live until the program asks for its end. Events are "
        "numbered from 0, by their place in the trace. Exit codes: 0 fine; 1 a condition of "
        "--fail-if holds; 3 the trace lacks the addresses that --map shows, or what the manager "
        "held, which --gap compares.");
  }

  Result<ExitCode> run(Console& console) override {
    if (auto parsed = gates_.parse(); !parsed) return parsed.error();
    more_ = choice_.apply();
    std::uint64_t capacity = 0;
    if (!capacity_.empty()) {
      auto size = units::parse_capacity(capacity_);
      if (!size) return std::move(size).error();
      if (svg_.empty())
        return fail(Errc::usage, "--capacity {}: expected --svg, which draws it", capacity_);
      capacity = *size;
    }
    auto search_ns = units::parse_ns(search_time_);
    if (!search_ns) return std::move(search_ns).error();
    const std::string_view whole = limit_             ? "--limit"
                                   : !gap_.empty()    ? "--gap"
                                   : !beside_.empty() ? "--beside"
                                   : !svg_.empty()    ? "--svg"
                                                      : "";
    auto stated = answer_statistics(console, trace_, json_, top_, more_);
    if (!stated) return std::move(stated).error();
    if (*stated) return **stated;
    if (!at_.empty()) return look(console, whole);
    if (in_passes_ && (!whole.empty() || !has_name(trace_.path))) {
      return fail(Errc::usage, "{}: --in-passes {}", trace_.path,
                  whole.empty() ? std::string("reads a file again: expected the name of one")
                                : text::format("and {}: expected one of the two", whole));
    }
    if (in_passes_ || is_for_passes(trace_)) {
      if (whole.empty()) {
        auto done = run_in_passes(console);
        if (!done) return std::move(done).error();
        if (*done) return **done;
      }
      say_in_memory(console, trace_,
                    whole.empty() ? "its operations are not in the order of their seq, or a free "
                                    "completes later than it is asked for"
                                  : whole);
    }
    return run_in_memory(console, capacity, *search_ns);
  }

 private:
  Result<ExitCode> run_in_memory(Console& console, std::uint64_t capacity,
                                 std::uint64_t search_ns) {
    allocators::pytorch::Recording of_pytorch;
    ShortRecording state(kStateRequestsMost);
    TeeSink also(state, gap_.empty() ? nullptr : &of_pytorch);
    auto recording = load_recording(console, trace_, &also);
    if (!recording) return std::move(recording).error();
    say_cut_stacks(console, *recording);
    const auto& trace = recording->trace();
    console.step("lifetimes and peak");
    const trace::Lifetimes lifetimes(trace);
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    const auto [profile, growth] = inspect::describe(*recording, lifetimes);
    std::optional<inspect::AddressSpace> map;
    std::uint32_t map_event = 0;
    if (!map_.empty()) {
      const auto event = event_of("--map", map_, trace, profile, first_refused(trace));
      if (!event) return event.error();
      map_event = *event;
      console.step("map");
      map = inspect::address_space_after(*recording, lifetimes, map_event);
    }
    std::optional<inspect::Gap> gap;
    std::optional<trial::GapRemedies> remedies;
    if (!gap_.empty()) {
      const auto event = event_of("--gap", gap_, trace, profile, first_refused(trace));
      if (!event) return event.error();
      console.step("gap");
      gap = inspect::gap_after(*recording, lifetimes,
                               known_blocks(*recording, lifetimes, of_pytorch), *event);
      const bool is_judged = of_pytorch.is_recording() && !trace.is_state();
      if (gap && is_judged && of_pytorch.allocations() != 0) {
        handle_interrupts();
        console.step("remedies");
        remedies = trial::gap_remedies(programs_of(of_pytorch, trace), *gap, &interrupted());
      }
    }
    std::optional<inspect::Beside> beside;
    if (!beside_.empty()) {
      auto read = read_beside(lifetimes);
      if (!read) return std::move(read).error();
      beside = *std::move(read);
    }
    std::optional<std::vector<inspect::MemoryNeed>> needs;
    if (limit_ && is_state_alone(console, trace)) return ExitCode::inconclusive;
    if (limit_) {
      const auto asked =
          as_recorded_ ? trace::CountedRequests::served : trace::CountedRequests::all;
      console.step(text::format("least capacity, for at most {} a device", search_time_));
      needs = inspect::needs(lifetimes, SteadyClock(), search_ns, asked);
    }
    const auto shown = this->shown();
    const auto states = states_of(trace, state);
    if (!json_.empty()) {
      auto text = inspect::to_json(trace, profile, growth, map, needs, gap, shown);
      if (remedies) text.insert(text.rfind('}'), ",\"gap_remedies\":" + to_json(*remedies));
      add_inactive(text, states);
      if (beside) text.insert(text.rfind('}'), ",\"beside\":" + inspect::to_json(*beside, beside_));
      if (auto written = console.write(json_, text); !written) return written.error();
    }
    if (!svg_.empty()) {
      console.step("picture");
      const auto text = inspect::picture(*recording, lifetimes, profile, growth, map, all_frames_,
                                         inspect::limits_of(*recording, lifetimes, capacity));
      if (auto written = console.write(svg_, text); !written) return written.error();
    }
    if (json_ != "-" && svg_ != "-") {
      console.result(words_of(trace, profile, growth));
      if (more_) console.result(inspect::inactive_table(states));
      if (needs) console.result(inspect::to_text(*needs));
      if (beside) console.result(inspect::to_text(*beside, beside_, shown.top));
      if (gap) console.result(inspect::to_text(*recording, *gap, shown));
      if (remedies)
        console.result(to_text(*remedies, *gap, static_cast<std::size_t>(console.width())));
      if (map) console.result(inspect::to_text(trace, *map, shown));
    }
    if (!gap_.empty() && !gap) {
      console.say(text::format(
          "{}: no gap: the recording does not say what its manager held, or not all of it",
          trace.source()));
      return ExitCode::inconclusive;
    }
    if (remedies && remedies->interrupted) console.say("interrupted: not every remedy was tried");
    if (!map_.empty() && !map) return no_map(console, trace, map_event);
    return judged(console, trace, profile);
  }

  /// The exit code where all could be answered.
  ExitCode judged(Console& console, const trace::Trace& trace,
                  const inspect::Profile& profile) const {
    const auto held = profile.backing.value_or(inspect::Backing());
    std::string of_leaks;
    if (trace::is_of_requests(trace.header())) {
      of_leaks = ", of what the program asked for; ";
      of_leaks += profile.backing
                      ? text::format("its manager holds {} at the end: 'reserved_at_end > 0'",
                                     units::bytes(held.reserved_at_end))
                      : std::string("what its manager holds is recorded with --level both");
    }
    return gates_.judge(console, ExitCode::fine,
                        {profile.leaked.count, profile.leaked.bytes, profile.live.bytes,
                         held.reserved.bytes, held.reserved_at_end, profile.failed},
                        of_leaks);
  }
  inspect::Shown shown() const {
    return {.top = static_cast<std::size_t>(top_),
            .frames = static_cast<std::size_t>(frames_),
            .all_frames = all_frames_,
            .blocks = speaks_utf8()};
  }

  std::string words_of(const trace::Trace& trace, const inspect::Profile& profile,
                       const inspect::Growth& growth) const {
    if (more_) return inspect::to_text(trace, profile, growth, shown());
    auto brief = inspect::brief(trace, profile, growth, shown());
    if (has_name(trace_.path)) brief.command = next_of(trace, profile, growth);
    return format::to_text(brief);
  }

  /// The command that answers the question after this one.
  std::string next_of(const trace::Trace& trace, const inspect::Profile& profile,
                      const inspect::Growth& growth) const {
    const auto path = text::shell_word(trace_.path);
    if (profile.failed != 0) return "emmctl explain " + path;
    if (growth.grows()) return text::format("emmctl inspect {} --more", path);
    if (profile.live.bytes == 0) return {};
    if (trace.is_state()) return "emmctl explain " + path;
    if (trace::curve_of(trace.header()) != trace::Curve::none)  // which no command replays
      return text::format("emmctl report {} -o page.html", path);
    return text::format(profile.backing ? "emmctl tune {}" : "emmctl fit {} --manager pool", path);
  }

  Result<inspect::Beside> read_beside(const trace::Lifetimes& lifetimes) const {
    auto source = format::ByteSource::open(beside_, &interrupted());
    if (!source) return std::move(source).error();
    std::vector<inspect::SmiRow> rows;
    const auto file =
        inspect::each_smi_row(**source, [&](const inspect::SmiRow& row) { rows.push_back(row); });
    if (!file) return file.error();
    if (rows.empty()) {
      return fail(Errc::parse_error,
                  "--beside {}: no rows of nvidia-smi: expected what --query-gpu or "
                  "--query-compute-apps writes with --format=csv",
                  beside_);
    }
    // The offset is that of the file's day, since summer time moves it.
    std::time_t then = std::time(nullptr);
    for (const auto& row : rows) {
      if (row.time_ms) then = static_cast<std::time_t>(*row.time_ms / 1000);
    }
    std::tm here{};
    const auto zone = localtime_r(&then, &here) != nullptr ? here.tm_gmtoff : 0;
    return inspect::beside(lifetimes, rows, *file, zone);
  }

  static void add_inactive(std::string& json, const std::vector<inspect::FitCheck>& states) {
    if (!states.empty())
      json.insert(json.rfind('}'), ",\"inactive\":" + inspect::inactive_json(states));
  }

  /// The requests of each device that has PyTorch rows.
  static std::vector<trial::DeviceProgram> programs_of(
      const allocators::pytorch::Recording& recording, const trace::Trace& trace) {
    std::vector<trial::DeviceProgram> programs;
    for (const auto device : trace.devices()) {
      const auto one = recording.on_device(device);
      if (!one.steps().empty())
        programs.push_back({.device = device, .program = program_of(one, one.settings())});
    }
    return programs;
  }

  static ExitCode no_map(Console& console, const trace::Trace& trace, std::uint32_t event) {
    console.say(
        text::format("{}: no map of event {}: the trace has no addresses for what is live then",
                     trace.source(), event));
    return ExitCode::inconclusive;
  }

  static std::optional<std::uint32_t> first_refused(const trace::Trace& trace) {
    for (std::uint32_t event = 0; event < trace.size(); ++event) {
      if (trace::is_refused(trace[event])) return event;
    }
    return std::nullopt;
  }

  Result<ExitCode> look(Console& console, std::string_view whole) {
    const auto event = text::to_u64(at_);
    if (!event || *event >= trace::kNever)
      return fail(Errc::usage, "--at {}: expected the number of an event", at_);
    if (!whole.empty() || !map_.empty() || !json_.empty() || !has_name(trace_.path)) {
      return fail(Errc::usage,
                  "{}: --at {}: expected the name of a file, and none of --map, --gap, --limit, "
                  "--svg and --json",
                  trace_.path, at_);
    }
    auto found =
        inspect::look_at(trace_.path, static_cast<std::uint32_t>(*event), passes(console, trace_));
    if (!found) return std::move(found).error();
    if (*found == nullptr) {
      return fail(Errc::usage,
                  "{}: --at {}: its operations are not in order, or a free completes later than it "
                  "is asked for: expected --map {}",
                  trace_.path, at_, at_);
    }
    const auto& all = **found;
    console.result(inspect::to_text(all.walk->trace(), all.event, all.held, shown()));
    if (all.map) console.result(inspect::to_text(all.walk->trace(), *all.map, shown()));
    return ExitCode::fine;
  }

  /// Returns nothing if the trace must be in memory.
  Result<std::optional<ExitCode>> run_in_passes(Console& console) {
    const auto map_event =
        [&](const trace::Trace& trace, const inspect::Profile& profile,
            std::optional<std::uint32_t> refused) -> Result<std::optional<std::uint32_t>> {
      if (map_.empty()) return std::optional<std::uint32_t>();
      auto event = event_of("--map", map_, trace, profile, refused);
      if (!event) return event.error();
      return std::optional(*event);
    };
    const auto read = passes(console, trace_);
    auto found = inspect::inspect_in_passes(trace_.path, read, map_event);
    if (!found) return std::move(found).error();
    if (*found == nullptr) return std::optional<ExitCode>();
    const auto& all = **found;
    ShortRecording state(kStateRequestsMost);
    if (all.trace().is_state()) {
      if (auto done = read(state); !done) return done.error();
    }
    const auto states = states_of(all.trace(), state);
    if (!json_.empty()) {
      auto text = inspect::to_json(all.trace(), all.profile, all.growth, all.map, std::nullopt,
                                   std::nullopt, shown());
      add_inactive(text, states);
      if (auto written = console.write(json_, text); !written) return written.error();
    }
    if (json_ != "-") {
      console.result(words_of(all.trace(), all.profile, all.growth));
      if (more_) console.result(inspect::inactive_table(states));
      if (all.map) console.result(inspect::to_text(all.trace(), *all.map, shown()));
    }
    if (all.map_event && !all.map)
      return std::optional(no_map(console, all.trace(), *all.map_event));
    return std::optional(judged(console, all.trace(), all.profile));
  }

  Result<std::uint32_t> event_of(std::string_view option, const std::string& words,
                                 const trace::Trace& trace, const inspect::Profile& profile,
                                 std::optional<std::uint32_t> refused) const {
    const bool gap = option == "--gap";
    if (words == "peak") return profile.live.event;
    if (gap && words == "reserved") {
      return profile.backing ? profile.backing->reserved.event : profile.live.event;
    }
    if (words == "failure") {
      if (refused) return *refused;
      return fail(Errc::usage, "{}: no request was refused: expected {} peak, or an event",
                  trace_.path, option);
    }
    const auto event = text::to_u64(words);
    if (!event) {
      return fail(Errc::usage, "{} {}: expected the number of an event, peak{} or failure", option,
                  words, gap ? ", reserved" : "");
    }
    if (*event >= trace.size()) {
      return fail(Errc::usage, "{}: there is no event {}: expected one below {}", trace_.path,
                  *event, trace.size());
    }
    return static_cast<std::uint32_t>(*event);
  }

  TraceArgument trace_;
  Gates gates_{kInspectMeasures};
  BriefOptions choice_;
  bool more_ = false;
  std::string json_, svg_, map_, at_, gap_, beside_, capacity_, search_time_ = "10s";
  std::uint64_t top_ = 10, frames_ = 3;
  bool limit_ = false, as_recorded_ = false, all_frames_ = false, in_passes_ = false;
};

}  // namespace

extern constinit const Command inspect_command{
    "inspect",
    "Show what a trace is like: sizes, lifetimes, the peak and what was live then, leaks, growth",
    false,
    make_run<Inspect>,
    Heading::ask,
    {{{"emmctl inspect run.jsonl", "Shows sizes, lifetimes, the peak and leaks."},
      {"emmctl inspect run.jsonl --svg run.svg --limit", "Draws it, and says what it needs."}}}};

}  // namespace emm
