// Headings and examples of the help, beyond what the commands declare. A test runs the examples.
#include "cli/page.hpp"

namespace emm::cli {
namespace {

constexpr std::string_view kInput = "Input", kManager = "Manager", kDevice = "Device",
                           kRun = "How it runs", kShown = "What is shown", kOutput = "Output",
                           kOther = "Other";

struct Purpose {
  std::string_view option, heading;
};
constexpr Purpose kPurposes[] = {
    {"--from", kInput},      {"--partial", kInput},     {"--in-passes", kInput},
    {"--with", kInput},      {"--baseline", kInput},    {"--stop-at", kInput},
    {"--event", kInput},     {"--as-recorded", kInput}, {"--manager", kManager},
    {"--adaptor", kManager}, {"--profile", kManager},   {"--deadline", kManager},
    {"--against", kManager}, {"--own", kManager},       {"--as", kManager},
    {"--device", kDevice},   {"--capacity", kDevice},   {"--fault", kDevice},
    {"--total", kDevice},    {"--fraction", kDevice},   {"--top", kShown},
    {"--frames", kShown},    {"--all-frames", kShown},  {"--times", kShown},
    {"--map", kShown},       {"--at", kShown},          {"--gap", kShown},
    {"--output", kOutput},   {"--log-format", kOutput}, {"--traces", kOutput},
    {"--to", kOutput},       {"--title", kOutput},      {"--anonymize", kOutput},
    {"--duration", kRun},    {"--on-signal", kRun},     {"--stacks", kRun},
    {"--stack-depth", kRun}, {"--through", kRun},       {"--max-file-size", kOutput},
    {"--follow", kRun},      {"--require-trace", kRun}, {"--help", kOther},
};

struct Examples {
  std::string_view command;
  PageExample two[2];
};
constexpr Examples kExamples[] = {
    {"record",
     {{"emmctl record -o run.emmb -- ./program", "Records a program from its start to its end."},
      {"emmctl record -o 'run.%p.emmb' --duration 60s -- python train.py",
       "Records each process of it for a minute."}}},
    {"run",
     {{"emmctl run --capacity 8GiB -- ./program", "Lets the program see 8 GiB."},
      {"emmctl run --fault mem_alloc:100 -- ./program", "Lets the hundredth request fail."}}},
    {"replay",
     {{"emmctl replay run.jsonl --manager pool --device sim",
       "Says whether the pool serves the program, and what it reserves."},
      {"emmctl replay run.jsonl --manager pool --capacity 5GiB --log run.csv",
       "Does it with 5 GiB, and writes a row for each operation."}}},
    {"check",
     {{"emmctl check run.jsonl", "Says whether the trace is sound."},
      {"emmctl check run.jsonl --top 3 --json found.json", "Shows three findings, writes all."}}},
    {"convert",
     {{"emmctl convert oom.pickle run.jsonl", "Makes a trace of a PyTorch snapshot."},
      {"emmctl convert run.jsonl run.csv --anonymize", "Makes RMM's CSV of a trace."}}},
    {"inspect",
     {{"emmctl inspect run.jsonl", "Shows sizes, lifetimes, the peak and leaks."},
      {"emmctl inspect run.jsonl --svg run.svg --limit", "Draws it, and says what it needs."}}},
    {"explain",
     {{"emmctl explain oom.pickle", "Says why the first request failed that failed."},
      {"emmctl explain train.log", "Says what an out-of-memory message in a log comes to."}}},
    {"ranks",
     {{"emmctl ranks 'ranks/rank*.jsonl'", "Says which rank is the tightest, and why."},
      {"emmctl ranks ranks --capacity 8GiB", "Says what each has left of 8 GiB."}}},
    {"diff",
     {{"emmctl diff before.jsonl after.jsonl", "Says what takes more, where, and since when."},
      {"emmctl diff before.jsonl after.jsonl --fail-if 'peak > 1.01x'",
       "Exits with 1 where the peak grew by more than 1 %."}}},
    {"fit",
     {{"emmctl fit run.jsonl --manager pool", "Finds the smallest capacity for the pool."},
      {"emmctl fit oom.pickle --manager pool --as-recorded",
       "Leaves out what the recording was refused."}}},
    {"tune",
     {{"emmctl tune oom.pickle", "Ranks settings of PyTorch's allocator."},
      {"emmctl tune oom.pickle --capacity 22GiB --markdown table.md",
       "Ranks them for 22 GiB, as a table for an issue."}}},
    {"minimize",
     {{"emmctl minimize gpt2.jsonl.gz --manager pool --capacity 5GiB -o small.jsonl",
       "Finds the smallest trace that still runs out of memory."},
      {"emmctl minimize run.jsonl --manager ./libemm-mine.so --fails-with exit:1",
       "Finds the smallest trace that still fails."}}},
    {"compare",
     {{"emmctl compare run.jsonl --manager pool --manager pytorch --device sim",
       "Shows what each reserves and fails."},
      {"emmctl compare run.jsonl --manager pool --baseline saved.json --fail-if 'reserved > 1.02x'",
       "Exits with 1 where the pool reserves more than it did."}}},
    {"sweep",
     {{"emmctl sweep -o out --trace 'ranks/*.jsonl' --manager pool --manager async",
       "Replays each trace on each manager."},
      {"emmctl sweep -o out --csv out.csv", "Resumes it, and writes a table."}}},
    {"adversary",
     {{"emmctl adversary worst.jsonl --manager pool --trials 50 --requests 100",
       "Looks for a trace that makes the pool waste memory."},
      {"emmctl adversary --manager default --trials 50 --requests 100 --seed 2 --json worst.json",
       "Begins elsewhere, and writes the answer as JSON."}}},
    {"generate",
     {{"emmctl generate ramps ramps.jsonl --events 1000", "Makes a trace of 1,000 events."},
      {"emmctl generate comb comb.pickle --to torch --events 1000", "Makes a PyTorch snapshot."}}},
    {"conformance",
     {{"emmctl conformance --manager ./libemm-mine.so", "Judges a manager by every clause."},
      {"emmctl conformance --manager pool --clause 'IPC-*' --junit verdict.xml",
       "Judges some clauses, and writes JUnit for CI."}}},
    {"report",
     {{"emmctl report run.jsonl -o page.html", "Makes a page of a recording."},
      {"emmctl report run.jsonl --manager pool --capacity 5GiB -o page.html",
       "Puts the pool with 5 GiB beside it."}}},
    {"view",
     {{"emmctl view run.jsonl", "Makes the page, and opens it."},
      {"emmctl view run.jsonl --manager pool", "Puts the pool beside it."}}},
    {"top",
     {{"emmctl top run.jsonl", "Shows the recording; q ends it."},
      {"emmctl top run.jsonl --event 100", "Begins after event 100."}}},
    {"plugin",
     {{"emmctl plugin new mine", "Makes a project in C, in the folder mine."},
      {"emmctl plugin new yours --language c++", "Makes one in C++."}}},
    {"list",
     {{"emmctl list managers", "Lists the bundled managers with their options."},
      {"emmctl list formats --json -", "Lists the formats, as JSON."}}},
    {"doctor",
     {{"emmctl doctor", "Says what works on this machine, and which defaults are set."},
      {"emmctl doctor --json -", "Says it as JSON."}}},
    {"help",
     {{"emmctl help", "Lists the commands."},
      {"emmctl help replay", "Shows what emmctl replay --help shows."}}},
    {"completion",
     {{"source <(emmctl completion bash)", "Completes in this shell."},
      {"emmctl completion fish > emmctl.fish", "Writes it to a file."}}},
};

}  // namespace

const std::vector<std::string_view>& purposes() {
  static const std::vector<std::string_view> all = {kInput, kManager, kDevice, kRun,
                                                    kShown, kOutput,  kOther};
  return all;
}

std::string_view purpose_of(std::string_view option) {
  for (const auto& [name, heading] : kPurposes) {
    if (name == option) return heading;
  }
  return kRun;
}

std::vector<PageExample> examples_of(std::string_view command) {
  for (const auto& [name, two] : kExamples) {
    if (name == command) return {std::begin(two), std::end(two)};
  }
  return {};
}

const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> all = {
      {"Ask about a run",
       {"explain", "tune", "fit", "inspect", "ranks", "diff", "compare", "sweep", "replay"}},
      {"Make, change and check traces", {"record", "run", "convert", "check", "generate"}},
      {"Look at them", {"report", "view", "top"}},
      {"Judge a manager", {"conformance", "plugin", "minimize", "adversary"}},
      {"About emmctl", {"list", "doctor", "help", "completion"}},
  };
  return all;
}

}  // namespace emm::cli
