#include "trial/tune.hpp"

#include "allocators/pytorch/program.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/recorded_settings.hpp"
#include "commands/held_state.hpp"
#include "trial/spare.hpp"

namespace emm {
namespace {

using namespace emm::cli;
namespace pytorch = allocators::pytorch;

class TuneRun final : public CommandRun {
 public:
  explicit TuneRun(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.under(OptionHeading::device)
        .text("--capacity", capacity_, "BYTES",
              "What the allocator may hold: the device's memory less what other programs take");
    arguments.text(
        "--for", for_, "'fits BYTES'",
        "Like --capacity BYTES, and exit with 1 where no setting serves the program with it");
    arguments.list("--setting", settings_, "CONF",
                   "A value of PYTORCH_ALLOC_CONF to try, instead of some forty; repeatable");
    arguments.text("--block", block_, "FROM[..TO]",
                   "Ask instead how large a block fits beside the program, such as a cache of keys "
                   "and values. The block lives from FROM to TO, each the number of an event or "
                   "the text of a mark");
    arguments.flag(
        "--by-fraction", by_fraction_,
        "Limit the allocator by per_process_memory_fraction; the device has more memory");
    arguments.under(OptionHeading::device)
        .text(
            "--fraction", fraction_, "NUMBER",
            "The recording's per_process_memory_fraction, which no snapshot states; needs --total");
    arguments.under(OptionHeading::device)
        .text("--total", total_, "BYTES", "The device's memory when it was recorded");
    arguments.flag(
        "--all", fit_all_,
        "Search the smallest capacity of every setting. Without --all, the capacities of only the "
        "best five settings are searched if the trace has more than 200,000 requests and frees");
    choice_.offer(arguments);
    arguments.under(OptionHeading::shown)
        .count("--top", top_, "How many settings to show with --more");
    arguments.count("--jobs", jobs_, "Threads; 0: as many as there are processors");
    arguments.output("--markdown", markdown_, "Writes the ranking as a Markdown table");
    arguments.output("--json", json_, "Writes the ranking as JSON (emmctl.tune/1)");
    arguments.footer(
        "tune replays the trace on a model of PyTorch's caching allocator, under some forty "
        "settings of PYTORCH_ALLOC_CONF, and on the pool, and ranks them. With a capacity, given "
        "or told by the recording, a setting that serves all requests goes before one that does "
        "not. Without a capacity, the setting that needs least goes first; one that needs up to "
        "10 % more goes before it if its driver calls take less than a tenth of the time. Figures "
        "within 3 % of the best are equal. Equal settings are ordered by the time of their driver "
        "calls, at that capacity or at the fitted size, then by what they reserve without a "
        "limit, by the number of their keys, and by PyTorch's own recommendation. \"today\" is "
        "the setting of the recording. PyTorch chooses between free blocks of one size by their "
        "address, which the driver decides. tune tries four orders of addresses, the recorded one "
        "first, and shows both ends where they do not agree. Exit codes: 0 a setting serves the "
        "program in every order; 1 none "
        "does; 3 nothing could be judged; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    trial::TuneOptions options{.fit_all = fit_all_,
                               .jobs = jobs_,
                               .peer_program = console.program(),
                               .interrupted = &interrupted()};
    for (const auto& conf : settings_) {
      pytorch::Settings ignored;
      if (auto read = read_conf(conf, ignored); !read) return std::move(read).error();
    }
    options.settings = settings_;
    if (!block_.empty() && capacity_.empty())
      return fail(Errc::usage, "--block needs --capacity: what the allocator may hold");
    if (!block_.empty() && !markdown_.empty())
      return fail(Errc::usage, "--block and --markdown do not go together: expected --json");
    const auto more = choice_.apply();
    const auto limit = by_fraction_ ? trial::Limit::fraction : trial::Limit::device;
    std::optional<std::uint64_t> asked;
    if (auto read = read_goal(asked); !read) return std::move(read).error();
    handle_interrupts();
    pytorch::Recording recording(pytorch::Recording::Takes::any);
    auto loaded = load_trace(console, trace_, &recording);
    if (!loaded) return std::move(loaded).error();
    auto settings = recording.settings();
    if (!recording.settings_fault().empty())
      console.say(recording.settings_fault() + ": the recording's settings are not known");
    if (fraction_.empty() && !asked) {
      say_inferred_limit(console, recording);
      if (recording.is_recording())
        say_limit_of_refusals(console, recording, "--fraction ... and --total ...");
    }
    if (auto read = read_limit(settings); !read) return std::move(read).error();
    if (is_state_alone(console, loaded->trace)) return ExitCode::inconclusive;
    if (recording.allocations() == 0) {
      console.say("nothing was judged: the trace has no allocations of device memory");
      return ExitCode::inconclusive;
    }
    if (recording.other_devices() != 0)
      console.say(text::format(
          "the recording has {} devices; device {}, which has most of the rows, is tuned",
          recording.other_devices() + 1, recording.device()));
    options.question = trial::question_of(recording, settings, asked, limit);
    auto program = program_under(settings, recording);
    // A capacity that is asked about takes the place of the limit that the recording was made
    // under.
    if (asked && fraction_.empty()) program.settings.drop_limit();
    say_agreement(console, recording, program);
    options.progress = console.progress_of("trying settings");
    if (!block_.empty()) return spare(console, program, loaded->trace, options);
    auto tuning = trial::tune(program, loaded->trace, options);
    console.end_progress();
    if (!tuning) return tuning.error();
    if (fraction_.empty()) tuning->inferred_limit = inferred_limit(recording);
    if (auto done = console.write_if(json_, [&] { return to_json(*tuning, loaded->trace); }); !done)
      return done.error();
    if (auto done =
            console.write_if(markdown_, [&] { return to_markdown(*tuning, loaded->trace); });
        !done)
      return done.error();
    if (json_ != "-" && markdown_ != "-")
      console.result(more ? to_text(*tuning, loaded->trace, top_, console.width())
                          : format::to_text(brief_of(*tuning, loaded->trace)));
    if (tuning->interrupted) console.say("interrupted; what is known so far is in the answer");
    return tuning->ranking.front().served ? ExitCode::fine : ExitCode::failure;
  }

 private:
  format::Brief brief_of(const trial::Tuning& tuning, const trace::Trace& trace) const {
    auto made = brief(tuning, trace);
    // Another framework's program can have another manager.
    if (!tuning.other_framework.empty() && has_name(trace_.path))
      made.command = text::format("emmctl fit {} --manager all", text::shell_word(trace_.path));
    return made;
  }

  /// Finds the event of that number, or else the first mark with that text, from `from` on.
  Result<std::uint64_t> event_of(const std::string& word, const trace::Trace& trace,
                                 std::size_t from) const {
    const auto number = text::to_u64(word);
    for (auto i = from; i < trace.size(); ++i) {
      const auto& event = trace[i];
      if (number ? trace.seq(i) == *number
                 : event.op == trace::Op::mark && trace.detail(event).label == word)
        return std::uint64_t{i};
    }
    return fail(Errc::usage, "--block {}: {} is no event of the trace and no text of a mark{}",
                block_, word, from == 0 ? "" : " after FROM");
  }

  Result<ExitCode> spare(Console& console, const pytorch::Program& program,
                         const trace::Trace& trace, const trial::TuneOptions& options) const {
    const auto dots = block_.find("..");
    const auto from = event_of(block_.substr(0, dots), trace, 0);
    if (!from) return from.error();
    trial::Lifespan lifespan{.from = *from, .to = trace.size()};
    if (dots != std::string::npos) {
      const auto to = event_of(block_.substr(dots + 2), trace, static_cast<std::size_t>(*from));
      if (!to) return to.error();
      lifespan.to = *to;
    }
    const auto found = trial::spare(program, trace, lifespan, options);
    console.end_progress();
    if (!found) return found.error();
    const auto& ranking = *found;
    const auto lateness = trial::lateness_of(program);
    if (const auto why = trial::why_no_pool(program, trace); !why.empty())
      console.say(std::string(why));
    if (!json_.empty()) {
      if (auto done = console.write(
              json_, to_json(ranking, lifespan, options.question.capacity, lateness, trace));
          !done)
        return done.error();
    }
    if (json_ != "-")
      console.result(to_text(ranking, lifespan, options.question.capacity, lateness, trace, top_,
                             console.width()));
    return !ranking.empty() && ranking.front().bytes ? ExitCode::fine : ExitCode::failure;
  }

  Status read_goal(std::optional<std::uint64_t>& capacity) const {
    constexpr std::string_view kFits = "fits ";
    if (!for_.empty() && (!capacity_.empty() || !for_.starts_with(kFits)))
      return fail(Errc::usage, "--for {}: expected \"fits BYTES\", and no --capacity", for_);
    const auto said = for_.empty() ? capacity_ : for_.substr(kFits.size());
    if (said.empty()) return {};
    const auto bytes = units::parse_capacity(said);
    if (!bytes) return bytes.error();
    capacity = *bytes;
    return {};
  }
  Status read_limit(pytorch::Settings& settings) const {
    if (fraction_.empty() != total_.empty())
      return fail(Errc::usage,
                  "--fraction and --total are given together: the limit is their product");
    if (fraction_.empty()) return {};
    auto total = units::parse_capacity(total_);
    if (!total) return std::move(total).error();
    settings.total = *total;
    return read_conf("per_process_memory_fraction:" + fraction_, settings);
  }

  /// Reports how well the model follows the recording. If it does not, tuning is guesswork.
  static void say_agreement(Console& console, const pytorch::Recording& recording,
                            const pytorch::Program& program) {
    if (!recording.is_recording()) {
      console.say(
          "the trace does not tell what PyTorch's allocator did: its requests are replayed");
      return;
    }
    const auto& found = program.recorded;
    if (found.placements.as_recorded == found.placements.recorded) return;
    console.say(text::format(
        "the model places {} of {} allocations as recorded: its answers are "
        "that much less sure",
        text::grouped(found.placements.as_recorded), text::grouped(found.placements.recorded)));
  }

  TraceArgument trace_;
  BriefOptions choice_;
  std::string capacity_, for_, block_, fraction_, total_, json_, markdown_;
  std::uint64_t top_ = 12, jobs_ = 0;
  std::vector<std::string> settings_;
  bool fit_all_ = false, by_fraction_ = false;
};

}  // namespace

extern constinit const Command tune_command{
    "tune",
    "Find the setting of PyTorch's allocator that serves a program with the least memory",
    false,
    make_run<TuneRun>,
    Heading::ask,
    {{{"emmctl tune oom.pickle", "Ranks settings of PyTorch's allocator."},
      {"emmctl tune oom.pickle --capacity 22GiB --markdown table.md",
       "Ranks them for 22 GiB, as a table for an issue."}}}};

}  // namespace emm
