#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "commands/held_state.hpp"
#include "driver/sim/sim_platform.hpp"
#include "format/byte_sink.hpp"
#include "format/columns.hpp"
#include "format/file_bytes.hpp"
#include "inspect/report_parts.hpp"
#include "log/writer.hpp"
#include "trace/lifetimes.hpp"
#include "trial/minimize_text.hpp"
#include "trial/rewrite.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Minimize final : public CommandRun {
 public:
  explicit Minimize(Arguments& arguments) {
    arguments.input("TRACE", trace_,
                    "The trace, in any format of `emmctl list formats`; - is standard input");
    arguments.text("--fails-with", fails_with_, "oom|exit:N|more:P",
                   "What the smaller trace must still do: run out of memory, exit with that code, "
                   "or need P % more than --against");
    manager_.offer(arguments);
    deadline_.offer(arguments);
    arguments.under(OptionHeading::device)
        .text("--capacity", capacity_, "SIZE",
              "Memory of each simulated device (the trace's; else 2 MiB less than the program "
              "needs, if the recording was refused memory; else an H200's)");
    arguments.under(OptionHeading::input)
        .flag("--as-recorded", as_recorded_,
              "With oom: a request that the recording refused may fail, and is not the failure to "
              "keep");
    arguments.under(OptionHeading::manager)
        .text("--against", against_, "NAME[:key=value,...]",
              "With more:P: the manager that needs less");
    arguments.output(
        "-o,--output", output_,
        "The smaller trace: .json is one document, else JSON Lines; .gz and .zst pack; "
        "- is standard output");
    arguments.under(OptionHeading::input)
        .text("--from", from_, "FORMAT", "The trace's format, if its content does not tell");
    offer_all_frames(arguments, all_frames_);
    arguments.output("--json", json_, "Writes what was done as JSON (emmctl.minimize/1)");
    arguments.footer(
        "minimize leaves out requests together with their ends, merges neighbours and makes "
        "requests smaller. Nothing grows, and the request that fails stays the one that fails. "
        "With more:P the manager of --against goes on needing at least half of what it did. A "
        "request that the recording refused counts as a failure if it is refused again; in a "
        "recorded out-of-memory it is the failure to keep. An interrupt ends the search and writes "
        "the smallest trace found until then. Exit codes: 0 written; 3 the trace does not fail in "
        "this way; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    auto options = examined();
    if (!options) return std::move(options).error();
    options->setting.peer_program = console.program();
    handle_interrupts();
    // kept, since it is read several times
    auto bytes = format::file_bytes(trace_, &interrupted());
    if (!bytes) return std::move(bytes).error();
    const auto name = trace_ == "-" ? std::string("<stdin>") : trace_;
    auto source = format::ByteSource::memory(*bytes, name, &interrupted());
    auto importer = choose_importer(*source, from_);
    if (!importer) return std::move(importer).error();
    trace::Trace trace;
    trace.set_source(name);
    auto counts = read_with_progress(console, **importer, *source, trace, false);
    if (!counts) return std::move(counts).error();
    if ((*importer)->name != "emm") console.say(describe(**importer, *counts));
    for (const auto& note : counts->notes) console.say(note);
    if (is_state_alone(console, trace)) return ExitCode::inconclusive;

    if (options->capacity == 0 && trace.least_capacity() != 0) {
      options->capacity = trace.least_capacity();
      if (options->capacity < trial::kStep || options->capacity > trial::kCapacityMost) {
        return fail(Errc::usage,
                    "{}: the header gives its device a capacity of {}: expected 2MiB to 4TiB, or "
                    "--capacity SIZE",
                    name, options->capacity);
      }
    }
    options->setting.refusals_fail =
        options->symptom.kind == trial::Symptom::Kind::oom && !as_recorded_;
    const auto refused = options->setting.refusals_fail ? worst_refused(trace) : Refused();
    const bool below_need = options->capacity == 0 && refused.need != 0;
    if (below_need) {
      options->capacity = just_below(refused.need);
      console.say(text::format(
          "{}: no capacity is recorded; {} are taken, just below what the refused request needs",
          name, inspect::bytes_in_full(options->capacity)));
    }
    if (options->capacity == 0) options->capacity = SimOptions::kH200Total;
    if (const auto words = trial::renumbered(trace); !words.empty()) console.say(words);
    trial::Examiner examiner(*options);
    auto reduction = trial::minimize(trace, examiner, {.progress = [&](std::uint64_t left) {
                                       console.progress("minimize, events left", left, 0);
                                     }});
    console.end_progress();
    if (!reduction) return std::move(reduction).error();
    trial::ReductionShown shown{.trace = trace,
                                .manager = options->setting.manager.name,
                                .against = against_,
                                .fails_with = fails_with_,
                                .capacity = options->capacity,
                                .refusals_fail = options->setting.refusals_fail,
                                .all_frames = all_frames_};
    auto code = ExitCode::fine;
    if (!reduction->shown) {
      say_otherwise(console, *reduction, shown);
      if (refused.need != 0 && !reduction->before.failure && !reduction->before.interrupted) {
        console.aside(served_words(shown, refused, console.width()));
      }
      code = ExitCode::inconclusive;
    } else {
      const auto read = [&](trace::OperationSink& to) -> Status {
        const auto again = format::ByteSource::memory(*bytes, name);
        const auto done = (*importer)->read(*again, to, {});
        return done ? Status() : Status(done.error());
      };
      std::string text;
      const auto capacity = below_need || !capacity_.empty() ? shown.capacity : 0;
      if (auto written = rewritten(*reduction, shown, read, capacity, text); !written)
        return written.error();
      options->setting.interrupted = nullptr;
      // The written trace must fail in a plain replay, where a repeated refusal is no failure.
      options->setting.refusals_fail = false;
      auto verified = verify(text, trial::Examiner(*options), *reduction);
      if (!verified) return std::move(verified).error();
      shown.verified = *verified;
      if (auto written = console.write(output_, text); !written) return written.error();
      say_trace_in(console, output_);
      console.aside(trial::to_text(*reduction, shown));
      if (reduction->after.failure) {
        console.aside(log::failure_to_text("  it fails", *reduction->after.failure, console.width(),
                                           all_frames_));
      }
      if (!shown.verified) {
        console.say(
            "what was written did not fail in the same way when it was read again: is the manager "
            "deterministic?");
        code = ExitCode::inconclusive;
      }
      if (reduction->interrupted)
        console.say("interrupted; the smallest trace found until then was written");
    }
    if (auto written = console.write_if(json_, [&] { return trial::to_json(*reduction, shown); });
        !written)
      return written.error();
    return code;
  }

 private:
  Result<trial::Examiner::Options> examined() const {
    trial::Examiner::Options options;
    auto symptom = trial::Symptom::parse(fails_with_);
    if (!symptom) return std::move(symptom).error();
    options.symptom = *symptom;
    if ((symptom->kind == trial::Symptom::Kind::more) != !against_.empty()) {
      return fail(Errc::usage,
                  "--fails-with {}, --against '{}': expected both more:P and a manager, or neither",
                  fails_with_, against_);
    }
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    if (!against_.empty()) {
      auto against = choose_manager(against_, {}, *deadline);
      if (!against) return std::move(against).error();
      options.against = std::move(*against);
    }
    auto manager = manager_.find(*deadline);
    if (!manager) return std::move(manager).error();
    if (!capacity_.empty()) {
      auto size = units::parse_capacity(capacity_);
      if (!size) return std::move(size).error();
      options.capacity = *size;
    }
    options.setting.manager = std::move(*manager);
    options.setting.profile = manager_.profile();
    options.setting.interrupted = &interrupted();
    options.code_of = [](const Error& error) { return static_cast<int>(exit_code_of(error)); };
    return options;
  }

  Status rewritten(const trial::Reduction& reduction, const trial::ReductionShown& shown,
                   const std::function<Status(trace::OperationSink&)>& read, std::uint64_t capacity,
                   std::string& text) const {
    const auto sink = format::ByteSink::to_string(text);
    const auto writer = trace::make_writer(*sink, form_of(output_));
    const trial::Rewriting rewriting{.trace = shown.trace,
                                     .draft = reduction.draft,
                                     .read = read,
                                     .target = reduction.target,
                                     .note = trial::note_of(shown),
                                     .capacity = capacity};
    if (auto done = trial::rewrite(rewriting, *writer); !done) return done;
    return sink->close();
  }

  /// The refused request of the recording that needs the most from a device. `need` is that in
  /// whole pages, or 0 if the recording refused none.
  struct Refused {
    std::uint32_t event = 0;
    std::uint64_t need = 0;
    std::uint64_t peak_live = 0;  ///< With less than this, a request that was served fails first.
  };
  static Refused worst_refused(const trace::Trace& trace) {
    const trace::Lifetimes lifetimes(trace);
    Refused worst;
    if (!lifetimes.can_be_summed()) return worst;
    std::map<std::uint32_t, std::uint64_t> live;
    const auto change = [&](AllocId id, bool begins) {
      const auto& lifetime = lifetimes[id];
      if (lifetime.what != trace::Lifetime::MemoryKind::device) return;
      auto& bytes = live[lifetimes.device(lifetime)];
      bytes = begins ? bytes + lifetime.size : bytes - lifetime.size;
      worst.peak_live = std::max(worst.peak_live, bytes);
    };
    lifetimes.walk([&](std::uint32_t, AllocId id) { change(id, true); },
                   [&](std::uint32_t, AllocId id) { change(id, false); },
                   [&](std::uint32_t at) {
                     const auto& event = trace[at];
                     if (!trace::is_refused(event)) return;
                     const auto held = live[trace.contexts()[index(event.context)].device];
                     const auto bytes = std::min(event.size, trial::kCapacityMost) +
                                        std::min(held, trial::kCapacityMost);
                     const auto need = (bytes + trial::kStep - 1) / trial::kStep * trial::kStep;
                     if (need > worst.need) worst.event = at, worst.need = need;
                   });
    return worst;
  }
  /// Returns a capacity at which no manager serves that request.
  static std::uint64_t just_below(std::uint64_t need) {
    const auto pages = std::min(need, trial::kCapacityMost) / trial::kStep * trial::kStep;
    return pages > trial::kStep ? pages - trial::kStep : trial::kStep;
  }

  /// Says that this manager serves what the recording refused, and what to do next.
  static std::string served_words(const trial::ReductionShown& shown, const Refused& refused,
                                  int width) {
    auto words = text::format(
        "The recording was refused {} at event {}; {} serves it at this capacity. ",
        units::bytes(shown.trace[refused.event].size), text::grouped(refused.event), shown.manager);
    if (refused.peak_live > just_below(refused.need)) {
      return format::wrapped(
          words +
              "With so little that nobody could, something else fails first, as more was live at "
              "another time. emmctl explain says why the recording failed.",
          static_cast<std::size_t>(width));
    }
    words += text::format(
        "With --capacity {}MiB, 2 MiB less than the program needs then, no manager serves it; "
        "emmctl fit "
        "says from where on {} serves all, and emmctl explain why the recording failed.",
        just_below(refused.need) >> 20, shown.manager);
    return format::wrapped(words, static_cast<std::size_t>(width));
  }

  /// Does the written trace fail like the draft? Sets `reduction.after` to what the written trace
  /// does.
  static Result<bool> verify(const std::string& text, const trial::Examiner& examiner,
                             trial::Reduction& reduction) {
    trace::Trace trace;
    const auto source = format::ByteSource::memory(text);
    if (auto read = trace::read(*source, trace); !read) return std::move(read).error();
    auto found = examiner.examine(trace);
    if (!found) return std::move(found).error();
    const auto failure = std::exchange(reduction.after, *found).failure;
    return found->shown && found->failure.has_value() == failure.has_value() &&
           (!failure || (found->failure->op == failure->op &&
                         found->failure->live_bytes == failure->live_bytes &&
                         found->failure->reserved_bytes == failure->reserved_bytes));
  }

  static void say_otherwise(Console& console, const trial::Reduction& reduction,
                            const trial::ReductionShown& shown) {
    const auto& found = reduction.before;
    if (found.interrupted) return console.say("interrupted before the trace was seen to fail");
    console.say(text::format("{} with {} at {}: expected it to fail with {}, and it does not",
                             shown.trace.source(), shown.manager,
                             inspect::bytes_in_full(shown.capacity), shown.fails_with));
    if (found.failure) {
      console.aside(
          log::failure_to_text("  it fails", *found.failure, console.width(), shown.all_frames));
    } else if (found.reserved_by_other != 0) {
      console.aside(text::format("  {} reserves {}, {} {}\n", shown.manager,
                                 units::bytes(found.reserved), shown.against,
                                 units::bytes(found.reserved_by_other)));
    }
  }

  std::string trace_, fails_with_ = "oom", capacity_, against_, output_ = "-", from_, json_;
  ManagerChoice manager_;
  CallDeadline deadline_;
  bool as_recorded_ = false, all_frames_ = false;
};

}  // namespace

extern constinit const Command minimize_command{
    "minimize",
    "Make a failing trace small: the fewest events that still fail in the same way",
    false,
    make_run<Minimize>,
    Heading::judge,
    {{{"emmctl minimize gpt2.jsonl.gz --manager pool --capacity 5GiB -o small.jsonl",
       "Finds the smallest trace that still runs out of memory."},
      {"emmctl minimize run.jsonl --manager ./libemm-mine.so --fails-with exit:1",
       "Finds the smallest trace that still fails."}}}};

}  // namespace emm
