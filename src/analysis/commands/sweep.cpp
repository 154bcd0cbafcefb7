#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/run_files.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "fleet/rank_files.hpp"
#include "trial/sweep/run_cells.hpp"
#include "trial/sweep/slurm.hpp"

namespace emm {
namespace {

using namespace emm::cli;

class Sweep final : public CommandRun {
 public:
  explicit Sweep(Arguments& arguments) {
    arguments.input("SPEC", spec_,
                    "A JSON with the matrix: command, traces, managers, settings, capacities, "
                    "devices, options; the options below add to it",
                    false);
    arguments.output_folder("-o,--output", folder_, "DIR",
                            "The folder of the sweep: it is made, or resumed");
    arguments.text("--command", matrix_.command, "replay|fit|compare|tune",
                   "What each cell runs (replay)");
    arguments.inputs("--trace", matrix_.traces, "FILE|FOLDER|GLOB", "Traces; repeatable");
    arguments.under(OptionHeading::manager)
        .list("--manager", matrix_.managers, "NAME|FILE[:key=value,...]",
              "A manager, as replay takes it; repeatable");
    arguments.list("--setting", matrix_.settings, "key=value,...",
                   "Options that each manager gets; repeatable");
    arguments.under(OptionHeading::device)
        .list("--capacity", matrix_.capacities, "SIZE",
              "A capacity of the simulated device; repeatable");
    arguments.under(OptionHeading::device)
        .list("--device", matrix_.devices, "DEVICE", "A device, as replay takes it; repeatable");
    arguments.list("--option", matrix_.options, "WORD",
                   "A further word of each cell's command line; repeatable");
    arguments.count("--jobs", jobs_, "N",
                    "Cells that run at once (as many as processors; 1 in each task of an array)");
    arguments.count("--tries", tries_,
                    "How often a cell may fail before the sweep names it and gives it up");
    arguments.choice("--engine", engine_, {"local", "slurm"},
                     "Run the cells here, or submit them to Slurm as job arrays");
    arguments.count("--chunk", chunk_, "N",
                    "slurm: cells of a task (as many as take three minutes)");
    arguments.list("--sbatch", sbatch_, "OPTION",
                   "slurm: an option for sbatch, as --sbatch=--partition=gpu; repeatable");
    arguments.text("--container", container_, "COMMAND",
                   "slurm: what runs emmctl in a container, as 'apptainer exec image.sif'");
    arguments.flag("--wait", wait_, "slurm: wait for the arrays, and submit again what failed");
    arguments.flag("--status", status_, "Say how the sweep stands, and run nothing");
    arguments.flag("--cancel", cancel_, "Cancel its arrays, and run nothing");
    arguments.text("--part", part_, "BATCH:TASK", "Run the cells of one task, as its job does");
    arguments.output("--csv", csv_, "Writes a row of each cell, with what is there");
    arguments.output("--json", json_, "Writes how the sweep stands as JSON (emmctl.sweep/1)");
    arguments.footer(
        "Each cell is a process of its own with a JSON of its own in DIR/cells, which is there "
        "whole "
        "or not at all. What is done is not done again: the same command resumes a sweep that was "
        "killed or whose matrix has changed. A cell is done where its command exits with 0, 1 or "
        "3. "
        "`emmctl report DIR` makes a page of what is there. Exit codes: 0 all cells are done; 1 "
        "some "
        "failed; 2 usage; 3 some are still to do; 128+n ended by signal n.");
  }

  Result<ExitCode> run(Console& console) override {
    if (folder_.empty()) return fail(Errc::usage, "sweep: expected -o DIR, where its cells go");
    const auto processors = std::max(1U, std::thread::hardware_concurrency());
    const auto jobs = jobs_.value_or(engine_ == "slurm" ? 1 : processors);
    if (jobs == 0 || tries_ == 0 || chunk_.value_or(1) == 0)
      return fail(Errc::usage, "--jobs {} --tries {} --chunk {}: expected at least 1 of each", jobs,
                  tries_, chunk_.value_or(1));
    if (!spec_.empty()) {
      if (auto added = matrix_.add_file(spec_); !added) return added.error();
    }
    const sweep::Folder folder(folder_);
    handle_interrupts();
    if (cancel_) {
      auto cells = folder.read_plan();
      if (!cells) return std::move(cells).error();
      const auto count = sweep::cancel(folder);
      if (!count) return count.error();
      console.say(text::format("{} arrays cancelled", *count));
      return ExitCode::fine;
    }
    if (!status_) {
      if (auto apart = folder.reserve(); !apart) return apart.error();
    }
    const auto cells = plan(console, folder);
    if (!cells) return cells.error();
    if (!status_) {
      if (auto ran = run_them(console, folder, *cells, jobs); !ran) return ran.error();
    }
    return answer(console, folder, *cells);
  }

 private:
  static constexpr std::uint64_t kPollMs = 1000;  // how late the end of a cell is seen
  static constexpr int kRoundsMost = 100;         // submissions with --wait

  /// Updates the stamps of the folder's cells to the present files. Removes answers for former
  /// files and says so.
  Status follow_changes(Console& console, const sweep::Folder& folder,
                        std::vector<sweep::Cell>& cells) const {
    sweep::Stamps stamps;
    std::map<std::string, std::uint64_t> changed;
    for (auto& cell : cells) {
      auto stamp = stamps.of(cell.command);
      if (stamp == cell.stamp || stamp.empty()) continue;
      ++changed[cell.trace];
      if (!status_) folder.remove_answer(cell.id);
      cell.stamp = std::move(stamp);
      cell.id = sweep::id_of(cell.command, cell.stamp);
    }
    for (const auto& [trace, count] : changed)
      console.say(text::format("{}, or its manager, has changed: {} of its cells are done anew",
                               text::printable(trace, 200), count));
    if (changed.empty() || status_) return {};
    return folder.write_plan(cells.front().command.front(), cells);
  }

  /// The cells of the given matrix, or those of the folder if none is given.
  Result<std::vector<sweep::Cell>> plan(Console& console, const sweep::Folder& folder) const {
    const bool given = !matrix_.traces.empty();
    if (sweep::Folder::is_one(folder.path())) {
      auto cells = folder.read_plan();
      if (!part_.empty() || (!cells && !given)) return cells;
      if (!cells) cells = std::vector<sweep::Cell>();  // a damaged plan is written anew
      if (auto followed = follow_changes(console, folder, *cells); !followed)
        return followed.error();
      if (!given) return cells;
    }
    std::vector<std::string> paths;
    if (given) {
      auto files = fleet::files_of(matrix_.traces);
      if (!files) return std::move(files).error();
      // Leaves out a JSON file beside a recording: it holds no trace.
      for (const auto& set : fleet::sets_of(*files)) {
        for (const auto& rank : set.ranks) paths.push_back(rank.path);
      }
      std::sort(paths.begin(), paths.end(), fleet::stands_before);
    }
    for (const auto& path : paths) {
      if (auto apart = run_files::reads(path, "--trace"); !apart) return apart.error();
    }
    auto cells = sweep::cells_of(matrix_, paths);
    if (!cells || status_ || !part_.empty()) return cells;
    if (auto made = folder.make(); !made) return made.error();
    const auto command = matrix_.command.empty() ? std::string("replay") : matrix_.command;
    if (auto written = folder.write_plan(command, *cells); !written) return written.error();
    return cells;
  }

  Status run_them(Console& console, const sweep::Folder& folder,
                  const std::vector<sweep::Cell>& cells, std::uint64_t jobs) const {
    if (engine_ == "slurm" && part_.empty()) return submit(console, folder, cells, jobs);
    auto todo = cells;
    if (!part_.empty()) {
      auto part = sweep::part_of(folder, cells, part_);
      if (!part) return std::move(part).error();
      todo = std::move(*part);
    }
    folder.remove_leftovers();
    auto ran = sweep::run_cells(folder, todo,
                                {.program = console.program(),
                                 .jobs = jobs,
                                 .tries = tries_,
                                 .interrupted = &interrupted(),
                                 .progress = console.progress_of("cells")});
    console.end_progress();
    return ran;
  }

  Status submit(Console& console, const sweep::Folder& folder,
                const std::vector<sweep::Cell>& cells, std::uint64_t jobs) const {
    std::vector<sweep::Cell> before;
    for (int round = 0; round < kRoundsMost; ++round) {
      auto running = sweep::running(folder);
      if (!running) return running.error();
      std::vector<sweep::Cell> todo;
      for (auto& cell : sweep::pending(cells, folder.attempts(), tries_)) {
        if (!std::binary_search(running->begin(), running->end(), cell.id))
          todo.push_back(std::move(cell));
      }
      if (!todo.empty()) {
        // If the last round changed nothing, the next one would not either.
        const auto same = [](const sweep::Cell& a, const sweep::Cell& b) { return a.id == b.id; };
        if (std::equal(todo.begin(), todo.end(), before.begin(), before.end(), same)) return {};
        before = todo;
        const auto submitted = sweep::submit(folder, cells, todo,
                                             {.program = console.program(),
                                              .sbatch = sbatch_,
                                              .container = container_,
                                              .chunk = chunk_.value_or(0),
                                              .tries = tries_,
                                              .jobs = jobs});
        if (!submitted) return submitted.error();
        console.say(text::format("{} cells submitted to Slurm as {}", text::grouped(todo.size()),
                                 "job " + text::join(*submitted)));
      }
      if (!wait_) return {};
      do {
        for (std::uint64_t waited = 0; waited < kPollMs && !interrupted(); waited += 50)
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        running = sweep::running(folder);
        if (!running) return running.error();
        console.progress("cells", folder.attempts().size(), cells.size());
      } while (!running->empty() && !interrupted());
      console.end_progress();
      if (interrupted()) return {};
      if (sweep::pending(cells, folder.attempts(), tries_).empty()) return {};
    }
    return {};
  }

  Result<ExitCode> answer(Console& console, const sweep::Folder& folder,
                          const std::vector<sweep::Cell>& cells) const {
    std::vector<std::string> running;
    if (part_.empty()) {
      auto asked = sweep::running(folder);
      if (!asked && !status_) return asked.error();
      if (!asked) console.say(describe(asked.error()));
      if (asked) running = std::move(*asked);
    }
    const auto progress = sweep::progress_of(folder, cells, tries_, running);
    if (!csv_.empty()) {
      const auto rows = sweep::csv_rows(folder, cells, tries_);
      if (auto written = console.write(csv_, sweep::csv_header() + rows); !written)
        return written.error();
    }
    if (auto written = console.write_if(json_, [&] { return sweep::to_json(progress, folder_); });
        !written)
      return written.error();
    if (json_ != "-" && csv_ != "-") console.result(sweep::to_text(progress, folder, cells));
    if (progress.failed > 0) return ExitCode::failure;
    return progress.done == progress.cells ? ExitCode::fine : ExitCode::inconclusive;
  }

  std::string spec_, folder_, engine_ = "local", container_, part_, csv_, json_;
  sweep::Matrix matrix_;
  std::vector<std::string> sbatch_;
  std::optional<std::uint64_t> jobs_, chunk_;
  std::uint64_t tries_ = 2;
  bool wait_ = false, status_ = false, cancel_ = false;
};

}  // namespace

extern constinit const Command sweep_command{
    "sweep",
    "Run a matrix of traces, managers, settings and capacities, here or on a cluster",
    false,
    make_run<Sweep>,
    Heading::ask,
    {{{"emmctl sweep -o out --trace 'ranks/*.jsonl' --manager pool --manager async",
       "Replays each trace on each manager."},
      {"emmctl sweep -o out --csv out.csv", "Resumes it, and writes a table."}}}};

}  // namespace emm
