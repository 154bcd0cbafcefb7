#include "fleet/diff.hpp"

#include <memory>

#include "base/condition.hpp"
#include "base/shell_word.hpp"
#include "base/text_format.hpp"
#include "cli/brief_options.hpp"
#include "cli/command.hpp"
#include "commands/load_recording.hpp"
#include "commands/statistics_answer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class DiffRun final : public CommandRun {
 public:
  explicit DiffRun(Arguments& arguments) {
    arguments.input("A", before_.path, "The run before the change, in any format that is read");
    arguments.input("B", after_.path, "The run after it");
    arguments.under(OptionHeading::input)
        .text("--from", before_.format, "FORMAT",
              "The format of both, if their content does not tell");
    arguments.under(OptionHeading::input)
        .flag("--partial", before_.partial,
              "Read cut or damaged traces up to where the damage begins");
    arguments.list("--fail-if", conditions_, "CONDITION",
                   "Exit with 1 if the condition holds for B: 'peak > 1.01x' (of A's peak), 'peak "
                   "> 8GiB', 'changes > 0'; names are peak, reserved, live_at_end, requests, "
                   "refused and changes; repeatable");
    more_.offer(arguments);
    arguments.under(OptionHeading::shown)
        .count("--top", top_, "How many entries of each list to show");
    arguments.output("--json", json_, "Writes the answer as JSON (emmctl.diff/1)");
    arguments.footer(
        "Requests are matched by call site and order, or, without call sites, by size and order; "
        "inserted and missing requests do not end the match. Two call sites are the same if their "
        "functions are the same; their line numbers may differ. \"peak\" is of live bytes, "
        "\"reserved\" of what the recorded manager held. Exit codes: 0 fine; 1 a condition holds; "
        "2 usage; 4 damaged input; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    const bool more = more_.apply();
    std::vector<Condition> conditions;
    for (const auto& words : conditions_) {
      auto condition = Condition::parse(words, fleet::diff_measures());
      if (!condition) return std::move(condition).error();
      conditions.push_back(std::move(*condition));
    }
    handle_interrupts();
    after_.format = before_.format;
    after_.partial = before_.partial;
    auto stated = answer_statistics(console, before_, after_, json_, top_);
    if (!stated) return std::move(stated).error();
    if (*stated) return **stated;
    fleet::Sites sites(fleet::SameSite::function);
    fleet::RecordedRun runs[2];
    for (const int which : {0, 1}) {
      auto recording = load_recording(console, which == 0 ? before_ : after_);
      if (!recording) return std::move(recording).error();
      runs[which] = fleet::run_of(*recording, sites);
    }
    console.step("matching");
    const auto diff = fleet::diff(std::move(runs[0]), std::move(runs[1]));
    console.end_progress();
    std::vector<std::string> failures;
    for (const auto& condition : conditions) {
      auto words = fleet::failure(condition, diff);
      if (words) {
        failures.push_back(std::move(*words));
      } else {
        console.say(fleet::passed(condition, diff));
      }
    }
    if (auto written =
            console.write_if(json_, [&] { return fleet::to_json(diff, sites, failures); });
        !written)
      return written.error();
    if (json_ != "-") {
      auto brief = fleet::brief(diff, sites);
      if (!diff.is_nothing())
        brief.command = text::format("emmctl report {} {} -o diff.html",
                                     text::shell_word(before_.path), text::shell_word(after_.path));
      console.result(more ? fleet::to_text(diff, sites, {.top = static_cast<std::size_t>(top_)})
                          : format::to_text(brief));
    }
    for (const auto& words : failures) console.say(words);
    return failures.empty() ? ExitCode::fine : ExitCode::failure;
  }

 private:
  TraceArgument before_, after_;
  BriefOptions more_;
  std::vector<std::string> conditions_;
  std::string json_;
  std::uint64_t top_ = 10;
};

}  // namespace

extern constinit const Command diff_command{
    "diff",
    "Compare two runs of one program: what takes more memory, where, and since when",
    false,
    make_run<DiffRun>,
    Heading::ask,
    {{{"emmctl diff before.jsonl after.jsonl", "Says what takes more, where, and since when."},
      {"emmctl diff before.jsonl after.jsonl --fail-if 'peak > 1.01x'",
       "Exits with 1 where the peak grew by more than 1 %."}}}};

}  // namespace emm
