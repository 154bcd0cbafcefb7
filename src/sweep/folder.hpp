#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "sweep/matrix.hpp"

namespace emm::sweep {

/// What became of a cell.
struct Attempts {
  bool done = false;         ///< Its JSON is there, whole.
  std::uint64_t failed = 0;  ///< Attempts that left none.
};

/// An array of tasks on a cluster, and the cells of each of its tasks.
struct Batch {
  std::string name, job;                        ///< The job's number as the cluster gave it.
  std::vector<std::vector<std::string>> parts;  ///< Ids, by task.
};

/// The folder of a sweep: what is to be run, and what became of it.
///
///   sweep.jsonl        the matrix: a line of the sweep, then one of each cell
///   cells/ID.json      what the command of a cell wrote; there whole or not at all
///   failed/ID.N.txt    why attempt N of a cell left nothing
///   batches/B.txt      cells of each task of an array, a line each; B.job has the job's number
///   logs/              what tasks of a cluster said
///   times/P.txt        the cells that process P did, and the seconds that each took
///
/// Several processes, also of several machines, may work in it at once: each cell comes in by a
/// rename, and what is done twice is there once.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  static bool is_one(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  Status make() const;
  Status write_plan(const std::string& command, const std::vector<Cell>& cells) const;
  Result<std::vector<Cell>> read_plan() const;
  /// The attempts of each cell that has any, by id.
  std::map<std::string, Attempts> attempts() const;

  std::string cell_path(const std::string& id) const { return path_ + "/cells/" + id + ".json"; }
  /// A folder for what an attempt writes, of this process.
  std::string temporary_path(const std::string& id) const;
  bool is_done(const std::string& id) const;
  Status add_failure(const std::string& id, const std::string& words) const;
  /// Times serve estimates only, so a time that cannot be written is dropped.
  void add_time(const std::string& id, double seconds) const;
  /// The seconds that each cell took, by id, where that is known.
  std::map<std::string, double> times() const;
  /// Removes the answer of a cell whose files have changed.
  void remove_answer(const std::string& id) const;
  /// The first line of the last failure: "exit 2: ..."; empty where there is none.
  std::string last_failure(const std::string& id) const;
  /// What runs of this machine left that were killed.
  void remove_leftovers() const;

  /// Under a name of its own; `job` is written by set_job() once it is known.
  Result<std::string> add_batch(const std::vector<std::vector<std::string>>& parts) const;
  Status set_job(const std::string& batch, const std::string& job) const;
  std::string batch_path(const std::string& batch) const { return path_ + "/batches/" + batch; }
  std::vector<Batch> batches() const;

 private:
  std::string path_;
};

/// The cells that `cells` asks for and that are neither done nor failed `tries` times.
std::vector<Cell> pending(const std::vector<Cell>& cells,
                          const std::map<std::string, Attempts>& attempts, std::uint64_t tries);

/// How a sweep stands.
struct Progress {
  std::uint64_t cells = 0, done = 0, failed = 0, running = 0;
  std::vector<std::pair<Cell, std::string>> failures;  ///< With the last words of each.
  std::uint64_t waiting() const noexcept { return cells - done - failed - running; }
};
Progress progress_of(const Folder& folder, const std::vector<Cell>& cells, std::uint64_t tries,
                     const std::vector<std::string>& running);
std::string to_text(const Progress& progress, const std::string& folder);
/// "emmctl.sweep/1"
std::string to_json(const Progress& progress, const std::string& folder);

/// A row of each cell, with exact figures of what is there (RFC 4180), and what stands above.
std::string csv_rows(const Folder& folder, const std::vector<Cell>& cells);
std::string csv_header();
/// The same as JSON for a page, the figures that are whole numbers.
std::string to_page(const Folder& folder, const std::vector<Cell>& cells);

}  // namespace emm::sweep
