#include "inspect/plan.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "base/clock.hpp"
#include "base/text_format.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "commands/held_state.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Plan final : public CommandRun {
 public:
  explicit Plan(Arguments& arguments) {
    trace_.offer(arguments);
    arguments.output("-o,--output", output_,
                     "The plan (emmctl.plan/1), for --manager pool:plan=FILE; - is standard "
                     "output");
    arguments.text("--search-time", search_time_, "TIME", "How long to search for better layouts");
    arguments.text("--alignment", alignment_, "SIZE",
                   "What each offset is a multiple of: the pool's option `alignment`");
    arguments.under(OptionHeading::input)
        .flag("--as-recorded", as_recorded_, "Leave out the requests that the recording refused");
    arguments.footer(
        "A plan has the place of each request for device memory, by stream, in layouts that were "
        "checked. A pool that follows it maps the memory of a stream "
        "in a few calls, and looks for nothing. The pool serves a request as without a plan "
        "if its size, order or stream is not the recorded one, or if its memory is still in use. "
        "It serves the requests behind it in the same way, until the stream holds nothing, or "
        "what it held at the beginning of a period. Exit codes: 0 written; 3 there is nothing to "
        "plan.");
  }

  Result<ExitCode> run(Console& console) override {
    const auto search_ns = units::parse_ns(search_time_);
    if (!search_ns) return search_ns.error();
    const auto alignment = units::parse_bytes(alignment_);
    if (!alignment) return alignment.error();
    if (!std::has_single_bit(*alignment) || *alignment < 256 ||
        *alignment > allocators::PoolPlan::kPage) {
      return fail(Errc::usage, "--alignment {}: expected a power of two from 256 to 2MiB",
                  alignment_);
    }
    auto loaded = load_trace(console, trace_);
    if (!loaded) return std::move(loaded).error();
    const auto& trace = loaded->trace;
    if (is_state_alone(console, trace)) return ExitCode::inconclusive;
    const trace::Lifetimes lifetimes(trace);
    if (auto summed = lifetimes.can_be_summed(); !summed) return summed.error();
    console.step(text::format("layouts, for at most {}", search_time_));
    const auto make = [&](trace::CountedRequests asked) {
      return inspect::plan(lifetimes, SteadyClock(), *search_ns, *alignment, asked);
    };
    auto planned =
        make(as_recorded_ ? trace::CountedRequests::served : trace::CountedRequests::all);
    if (!as_recorded_ && is_too_large(trace, planned.plan)) {
      console.say(text::format(
          "{}: with the requests that the recording refused, the plan does not fit the device; it "
          "is made without them",
          trace.source()));
      planned = make(trace::CountedRequests::served);
    }
    console.end_progress();
    console.aside(inspect::to_text(planned));
    if (planned.plan.streams.empty()) return ExitCode::inconclusive;
    if (auto written = console.write(output_, allocators::to_json(planned.plan)); !written)
      return written.error();
    return ExitCode::fine;
  }

 private:
  /// Answers whether the streams of some device take more than it was recorded to have.
  static bool is_too_large(const trace::Trace& trace, const allocators::PoolPlan& plan) {
    std::map<std::uint32_t, std::uint64_t> bytes;
    for (const auto& stream : plan.streams) bytes[stream.device] += stream.bytes;
    return std::any_of(bytes.begin(), bytes.end(), [&](const auto& of) {
      return trace.capacity(of.first) != 0 && of.second > trace.capacity(of.first);
    });
  }

  TraceArgument trace_;
  bool as_recorded_ = false;
  std::string output_ = "-", search_time_ = "10s", alignment_ = "512";
};

}  // namespace

extern constinit const Command plan_command{
    "plan",
    "Work out from a recording where the memory of each request is to lie",
    false,
    make_run<Plan>,
    Heading::ask,
    {{{"emmctl plan gpt2.jsonl.gz -o plan.json", "Writes a plan for the pool."},
      {"emmctl replay gpt2.jsonl.gz --manager pool:plan=plan.json",
       "Replays the recording on a pool that follows it."}}}};

}  // namespace emm
