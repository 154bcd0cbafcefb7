#include <filesystem>
#include <memory>

#include "base/prng.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "cli/command.hpp"
#include "cli/manager_choice.hpp"
#include "commands/judge_apart.hpp"
#include "conformance/suite.hpp"
#include "driver/device_entry.hpp"
#include "plugin/child.hpp"
#include "plugin/python_class.hpp"

namespace emm {
namespace {

using namespace emm::cli;
using namespace emm::conformance;
using Kind = Verdict::Kind;

class Conformance final : public CommandRun {
 public:
  explicit Conformance(Arguments& arguments) {
    manager_.offer(arguments);
    arguments.under(OptionHeading::manager)
        .choice("--as", as_, {"any", "host-only", "default"},
                "The contract that the manager is held to. Without --as, what a bundled manager of "
                "that name promises; for any other manager, any");
    arguments.list("--clause", globs_, "GLOB",
                   "Only the clauses whose id this names, as 'PD-*'; repeatable");
    arguments.choice("--level", level_, {"must", "should", "quirk"},
                     "Only clauses of this level and of the levels that bind more");
    arguments.under(OptionHeading::device).text("--device", device_, "DEVICE", "sim or cuda[:N]");
    arguments.text("--seed", seed_, "N|random",
                   "The seed of everything random; `random` takes a new seed and names it");
    arguments.flag("--thorough", thorough_,
                   "Takes minutes: 40 times as many random requests and programs");
    arguments.under(OptionHeading::manager)
        .count("--deadline", deadline_s_,
               "Seconds that a step of a clause may take, a request or a free; the clause may take "
               "ten "
               "times as long");
    arguments.under(OptionHeading::shown)
        .flag("--more", more_,
              "Shows each clause that failed, what was not judged and why, and the driver "
              "calls");
    arguments.output("--json", json_, "Writes the verdicts as JSON (emmctl.conformance/1)");
    arguments.output("--junit", junit_, "Writes them as JUnit XML");
    arguments.output("--tap", tap_, "Writes them as TAP");
    arguments.under(OptionHeading::shown)
        .flag("--times", times_, "Says in JSON and JUnit how long each clause took");
    arguments.output_folder(
        "--traces", traces_, "FOLDER",
        "Writes for each failure that a trace can show, FOLDER/CLAUSE.json; makes FOLDER");
    arguments.footer(
        "Exit codes: 0 all that was judged passed; 1 a clause failed; 2 usage; 3 nothing was "
        "judged, or a clause "
        "could not be judged to its end; 5 no device.");
  }

  Result<ExitCode> run(Console& console) override {
    auto spec = manager_.spec();
    if (!spec) return std::move(spec).error();
    const bool foreign = is_foreign(*spec);
    const bool is_class = foreign && plugin::is_python_class(*spec);
    if (is_class) {
      // On a real device the stand-in lies between Numba and the driver, so that calls are seen.
      const bool simulated = device_.starts_with("sim");
      const auto driver = simulated ? std::string() : plugin::real_driver();
      if ((simulated || !driver.empty()) && !plugin::lead_python_to_standins(driver))
        return fail(Errc::no_device, "{}", plugin::kNoStandIns);
    }
    if (foreign && !is_class) plugin::enter_heap_checks();
    if (is_class) plugin::preload_python();
    const auto seed = seed_ == "random" ? std::optional(random_seed()) : text::to_u64(seed_);
    if (!seed) return fail(Errc::usage, "--seed {}: expected a number or random", seed_);
    if (seed_ == "random") console.say(text::format("seed {}", *seed));
    Subject subject{.manager = *spec, .promise = promise_of(*spec), .device = device_};
    subject.foreign = foreign;
    subject.is_pair = spec->starts_with("torch:") || spec->starts_with("cupy:");
    subject.is_class = is_class;
    subject.seed = *seed;
    subject.thorough = thorough_;
    if (as_ == "default") subject.promise = Scope::deflt;
    if (as_ == "host-only") subject.promise = Scope::host;
    if (as_ == "any") subject.promise = Scope::all;
    // Numba's own classes are under a class of Python's, and their quirks are not its mistakes.
    const auto numba = is_class || manager_.profile() == Profile::numba ||
                       spec->find("profile=numba") != std::string::npos;
    subject.profile = numba ? Profile::numba : Profile::standard;

    Selection selection{.globs = globs_, .of_class = is_class};
    selection.level = level_ == "must"     ? Level::must
                      : level_ == "should" ? Level::should
                                           : Level::quirk;
    const auto chosen = select(selection).size();
    if (chosen == 0)
      return fail(Errc::usage, "no clause is named so: expected ids of `emmctl list clauses`");
    handle_interrupts();
    constexpr std::uint64_t kThorough = 20;  // times the deadline with --thorough
    Apart apart(manager_, subject, std::chrono::seconds(deadline_s_ * (thorough_ ? kThorough : 1)));
    const auto why_not = apart.look();
    if (!why_not) return why_not.error();
    if (!why_not->empty() && !interrupted()) {
      console.say(text::format("nothing was judged: {}: {}", *spec, *why_not));
      return ExitCode::inconclusive;
    }
    std::uint64_t done = 0;
    const Judge elsewhere = [&](const Clause& clause, const Subject&) {
      return apart.judge(clause);
    };
    auto report = run_suite(subject, selection, elsewhere, [&](const Clause& clause) {
      console.progress(clause.id, done++, chosen);
      return !interrupted();
    });
    console.end_progress();
    report.again = again(*seed);
    report.traces = traces_;

    if (auto written = write(console, report); !written) return std::move(written).error();
    if (report.count(Kind::fail) > 0) return ExitCode::failure;
    if (report.count(Kind::pass) > 0 && report.count(Kind::inconclusive) == 0)
      return ExitCode::fine;
    if (report.count(Kind::pass) == 0) console.say("nothing was judged");
    return ExitCode::inconclusive;
  }

 private:
  Status write(Console& console, const Report& report) const {
    bool on_stdout = false;
    const auto write_as = [&](const std::string& path, const auto& form) -> Status {
      if (path.empty()) return {};
      on_stdout |= path == "-";
      return console.write(path, form());
    };
    if (auto written = write_as(json_, [&] { return to_json(report, times_); }); !written)
      return written;
    if (auto written = write_as(junit_, [&] { return to_junit(report, times_); }); !written)
      return written;
    if (auto written = write_as(tap_, [&] { return to_tap(report); }); !written) return written;
    if (!traces_.empty()) {
      std::error_code error;
      std::filesystem::create_directories(traces_, error);
      if (error)
        return fail(Errc::io_error, "--traces: {}: {}", text::printable(traces_, 200),
                    error.message());
    }
    for (const auto& one : report.judged) {
      if (traces_.empty() || one.verdict.trace.empty()) continue;
      std::string name(one.clause->id);
      for (auto& c : name) c = c == '/' ? '-' : c;
      if (auto written =
              console.write(traces_ + "/" + name + ".json", one.verdict.trace, "--traces");
          !written)
        return written;
    }
    if (!on_stdout) console.result(more_ ? to_text(report) : to_brief_text(report));
    return {};
  }

  /// The command that judges the same manager again in the same way, without the choice of clauses.
  std::string again(std::uint64_t seed) const {
    auto command = std::string("emmctl conformance");
    const auto add = [&](std::string_view option, const std::string& value) {
      command += text::format(" {} {}", option, text::shell_word(value));
    };
    for (const auto& [option, value] : manager_.words()) add(option, value);
    if (!as_.empty()) add("--as", as_);
    if (device_ != "sim") add("--device", device_);
    if (seed != 0) add("--seed", text::format("{}", seed));
    if (thorough_) command += " --thorough";
    if (deadline_s_ != kDeadline) add("--deadline", text::format("{}", deadline_s_));
    return command;
  }

  ManagerChoice manager_;

  std::string as_, level_ = "quirk", device_ = "sim", seed_ = "0", json_, junit_, tap_, traces_;
  std::vector<std::string> globs_;
  static constexpr std::uint64_t kDeadline = 30;  // seconds of a clause
  std::uint64_t deadline_s_ = kDeadline;
  bool more_ = false, times_ = false, thorough_ = false;
};

}  // namespace

extern constinit const Command conformance_command{
    "conformance",
    "Judge a manager by the contract, clause by clause",
    false,
    make_run<Conformance>,
    Heading::judge,
    {{{"emmctl conformance --manager ./libemm-mine.so", "Judges a memory manager by every clause."},
      {"emmctl conformance --manager pool --clause 'IPC-*' --junit verdict.xml",
       "Judges some clauses, and writes JUnit for CI."}}}};

}  // namespace emm
