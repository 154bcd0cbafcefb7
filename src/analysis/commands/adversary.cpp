#include "trial/adversary.hpp"

#include <algorithm>
#include <memory>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/manager_choice.hpp"
#include "format/json_writer.hpp"
#include "format/whole_file.hpp"
#include "log/writer.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class AdversaryRun final : public CommandRun {
 public:
  explicit AdversaryRun(Arguments& arguments) {
    arguments.output("OUT", out_, "The trace that wastes most; - is standard output");
    manager_.offer(arguments);
    deadline_.offer(arguments);
    arguments.count("--trials", options_.trials, "How many traces to try");
    arguments.count("--seed", options_.seed, "The same seed gives the same trace on every machine");
    arguments.count("--requests", options_.requests, "The most allocations of a trace");
    arguments.text("--max-size", size_max_, "BYTES", "Largest allocation");
    arguments.text(
        "--least-live", live_least_, "BYTES",
        "Divide the reserved bytes by the peak of the live bytes, or by this if the peak is lower");
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.adversary/1)");
    arguments.footer(
        "A quarter of the trials are patterns of `emmctl generate` with random sizes; the others "
        "change the worst trace so far. Each trial is a replay with all checks on the simulated "
        "device. Exit codes: 0 fine; 1 the manager failed a trace, which OUT then holds; 3 nothing "
        "could be judged; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    auto size_max = units::parse_bytes(size_max_), live_least = units::parse_bytes(live_least_);
    if (!size_max) return std::move(size_max).error();
    if (!live_least) return std::move(live_least).error();
    options_.size_max = *size_max;
    options_.live_least = *live_least;
    constexpr std::uint64_t kMost = 1'000'000;  // requests: each trial is replayed whole
    if (options_.trials == 0 || options_.requests < 2 || options_.requests > kMost ||
        options_.size_max == 0 || options_.size_max > trial::kCapacityMost ||
        options_.live_least == 0) {
      return fail(Errc::usage,
                  "{} trials of {} requests of {} bytes, {} bytes live: expected at least 1 of "
                  "each, and 2 to {} "
                  "requests of at most {} bytes",
                  options_.trials, options_.requests, options_.size_max, options_.live_least, kMost,
                  trial::kCapacityMost);
    }
    const auto deadline = deadline_.time();
    if (!deadline) return deadline.error();
    auto manager = manager_.find(*deadline);
    if (!manager) return std::move(manager).error();
    handle_interrupts();
    const auto name = manager->name;
    const trial::Setting setting{.manager = std::move(*manager),
                                 .profile = manager_.profile(),
                                 .peer_program = console.program(),
                                 .interrupted = &interrupted()};
    options_.progress = [&](std::uint64_t trials, double) {
      console.progress("trials", trials, options_.trials);
    };
    auto found = trial::find_adversary(setting, options_);
    console.end_progress();
    if (!found) return std::move(found).error();
    if (!out_.empty()) {
      if (auto written = write(*found, name); !written) return written.error();
      say_trace_in(console, out_);
    }
    if (auto written = console.write_if(json_, [&] { return to_json(*found, name); }); !written)
      return written.error();
    const bool judged = found->failed || found->peak_reserved != 0;
    if (judged && out_ != "-" && json_ != "-") {
      console.result(to_text(*found, name, console.width()));
    }
    if (found->interrupted) console.say("interrupted; what is known so far is in the answer");
    if (found->failed) return ExitCode::failure;
    if (judged) return ExitCode::fine;
    console.say("nothing was judged: the manager declined every allocation");
    return ExitCode::inconclusive;
  }

 private:
  Status write(const trial::Adversary& found, const std::string& manager) const {
    auto sink = format::open_whole(out_);
    if (!sink) return std::move(sink).error();
    auto writer = trace::make_writer(**sink, form_of(out_));
    const auto title =
        text::format("adversary of {}, seed {}, from {}", manager, options_.seed, found.begun_from);
    if (auto written = trial::write(found.program, title, *writer); !written) return written;
    return (*sink)->close();
  }

  std::string to_text(const trial::Adversary& found, const std::string& manager, int width) const {
    if (found.failed) {
      auto out = text::format("{} fails the trace of trial {}, seed {}, begun from {}\n", manager,
                              found.found_at, options_.seed, found.begun_from);
      return out + log::to_text(*found.failed, width);
    }
    auto out = text::format("{}: reserves {} for a peak live of {}", manager,
                            units::bytes(found.peak_reserved), units::bytes(found.peak_live));
    if (found.peak_live < options_.live_least) {
      out +=
          text::format("; that counts as {}, see --least-live", units::bytes(options_.live_least));
    }
    out += text::format(": {} times as much", text::fixed(found.ratio, 3));
    out += text::format("\n  found     at trial {} of {}, seed {}: {} requests, begun from {}\n",
                        text::grouped(found.found_at), text::grouped(found.trials), options_.seed,
                        found.program.size(), found.begun_from);
    out += text::format("  patterns  {} times, before any change",
                        text::fixed(found.pattern_ratio, 3));
    if (found.pattern_ratio < 1) {
      out += text::format("; less live than {} counts as that", units::bytes(options_.live_least));
    }
    return out + '\n';
  }

  std::string to_json(const trial::Adversary& found, const std::string& manager) const {
    format::JsonAnswer json("emmctl.adversary/1", 2);
    json.member("manager", manager).member("seed", options_.seed).member("trials", found.trials);
    json.member("found_at", found.found_at).member("requests", found.program.size());
    json.member("begun_from", found.begun_from).member("peak_live_bytes", found.peak_live);
    json.member("peak_reserved_bytes", found.peak_reserved);
    json.member("counted_live_bytes", std::max(found.peak_live, options_.live_least));
    json.member("reserved_over_live", found.ratio);
    json.member("pattern_reserved_over_live", found.pattern_ratio);
    json.member("failed", found.failed.has_value()).member("complete", !found.interrupted);
    return json.finish();
  }

  std::string out_, json_, size_max_ = "1GiB", live_least_ = "1GiB";
  ManagerChoice manager_;
  CallDeadline deadline_;
  trial::AdversaryOptions options_;
};

}  // namespace

extern constinit const Command adversary_command{
    "adversary",
    "Look for a trace that makes a manager reserve much more than is live",
    false,
    make_run<AdversaryRun>,
    Heading::judge,
    {{{"emmctl adversary worst.jsonl --manager pool --trials 50 --requests 100",
       "Looks for a trace that makes the pool waste memory."},
      {"emmctl adversary --manager default --trials 50 --requests 100 --seed 2 --json worst.json",
       "Begins elsewhere, and writes the answer as JSON."}}}};

}  // namespace emm
