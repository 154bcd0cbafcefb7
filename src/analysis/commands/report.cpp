#include <memory>

#include "cli/command.hpp"
#include "commands/report_inputs.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class MakeReport final : public CommandRun {
 public:
  explicit MakeReport(Arguments& arguments) {
    inputs_.offer(arguments);
    arguments.output("-o,--output", output_, "Where the page goes");
    arguments.output("--csv", csv_, "Writes a row of each cell of the sweeps among the inputs");
    arguments.footer(
        "The page is one file that needs no network. It shows memory over time, what was live at "
        "any event and where, failures, comparisons and verdicts. docs/report.md describes it. "
        "Exit codes: 0 fine; 2 usage; 4 damaged input.");
  }

  Result<ExitCode> run(Console& console) override {
    if (!csv_.empty()) {
      const auto table = inputs_.table();
      if (!table) return table.error();
      if (auto written = console.write(csv_, *table); !written) return written.error();
    }
    auto page = inputs_.page(console);
    if (!page) return std::move(page).error();
    if (auto written = console.write(output_, *page); !written) return written.error();
    return ExitCode::fine;
  }

 private:
  ReportInputs inputs_;
  std::string output_ = "report.html", csv_;
};

}  // namespace

extern constinit const Command report_command{
    "report",
    "Make one page of traces and results, to be looked at in a browser",
    false,
    make_run<MakeReport>,
    Heading::look,
    {{{"emmctl report run.jsonl -o page.html", "Makes a page of a recording."},
      {"emmctl report run.jsonl --manager pool --capacity 5GiB -o page.html",
       "Puts the pool with 5 GiB beside it."}}}};

}  // namespace emm
