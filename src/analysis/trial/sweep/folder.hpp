#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "trial/sweep/matrix.hpp"

namespace emm::sweep {

/// The attempts at one cell.
struct Attempts {
  bool done = false;         ///< Its JSON is there, complete.
  std::uint64_t failed = 0;  ///< Attempts that left no JSON.
};

/// A job array on a cluster, with the cells of each task.
struct Batch {
  std::string name, job;                        ///< `job` is the cluster's number for it.
  std::vector<std::vector<std::string>> parts;  ///< Cell ids, by task.
};

/// The folder of a sweep: what is to be run, and the results so far.
///
///   sweep.jsonl        the plan: a line for the sweep, then one for each cell
///   cells/ID.json      what the command of a cell wrote; complete or absent
///   failed/ID.N.txt    why attempt N of a cell left no JSON
///   batches/B.txt      a line with the cells of each task of an array; B.job has its number
///   logs/              the output of tasks on a cluster
///   times/P.txt        the cells that process P ran, and the seconds of each
///
/// Several processes, also of several machines, may work in it at once. Each result arrives by a
/// rename, so a cell that runs twice is there once.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  static bool is_one(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  Status make() const;
  /// Tells run_files what the sweep writes, before anything of it is written.
  Status reserve() const;
  Status write_plan(const std::string& command, const std::vector<Cell>& cells) const;
  Result<std::vector<Cell>> read_plan() const;
  /// The attempts of each cell that has any, by id.
  std::map<std::string, Attempts> attempts() const;

  std::string cell_path(const std::string& id) const { return path_ + "/cells/" + id + ".json"; }
  /// Returns the folder to which an attempt of this process writes.
  std::string temporary_path(const std::string& id) const;
  bool is_done(const std::string& id) const;
  Status add_failure(const std::string& id, const std::string& words) const;
  /// Times serve only estimates, so an error in writing one is ignored.
  void add_time(const std::string& id, double seconds) const;
  /// Returns the seconds of each cell that are known, by id.
  std::map<std::string, double> times() const;
  /// Removes the answer of a cell whose files have changed.
  void remove_answer(const std::string& id) const;
  /// Returns the first line of the last failure ("exit 2: ..."); empty if there is none.
  std::string last_failure(const std::string& id) const;
  /// Removes what killed runs of this machine left.
  void remove_leftovers() const;

  /// Adds a batch under a new name and returns the name. set_job() adds its job once that is known.
  Result<std::string> add_batch(const std::vector<std::vector<std::string>>& parts) const;
  Status set_job(const std::string& batch, const std::string& job) const;
  std::string batch_path(const std::string& batch) const { return path_ + "/batches/" + batch; }
  std::vector<Batch> batches() const;

 private:
  std::string path_;
};

/// Returns the cells that are neither done nor failed `tries` times.
std::vector<Cell> pending(const std::vector<Cell>& cells,
                          const std::map<std::string, Attempts>& attempts, std::uint64_t tries);

/// The state of a sweep.
struct Progress {
  std::uint64_t cells = 0, done = 0, failed = 0, running = 0;
  std::vector<std::pair<Cell, std::string>> failures;  ///< With each cell's last failure.
  std::uint64_t waiting() const noexcept { return cells - done - failed - running; }
};
Progress progress_of(const Folder& folder, const std::vector<Cell>& cells, std::uint64_t tries,
                     const std::vector<std::string>& running);
/// Says what was done, and shows the results of the first cells as a table.
std::string to_text(const Progress& progress, const Folder& folder, const std::vector<Cell>& cells);
/// "emmctl.sweep/1"
std::string to_json(const Progress& progress, const std::string& folder);

/// Write CSV (RFC 4180): a row for each cell, with its exact figures, and the header. A cell is
/// "failed" once it has failed `tries` times.
std::string csv_rows(const Folder& folder, const std::vector<Cell>& cells, std::uint64_t tries);
std::string csv_header();
/// Writes the same as JSON for a page, with only the figures that are whole numbers.
std::string to_page(const Folder& folder, const std::vector<Cell>& cells);

}  // namespace emm::sweep
