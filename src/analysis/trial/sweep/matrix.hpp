#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace emm::sweep {

/// What a sweep runs: each trace with each manager, setting, capacity and device. An empty list
/// stands for one value, the command's default.
struct Matrix {
  std::string command{};  ///< replay, fit, compare or tune; empty: replay.
  std::vector<std::string> traces{}, managers{}, settings{}, capacities{}, devices{};
  std::vector<std::string> options{};  ///< Further words of each cell's command line.

  /// Adds the members of a JSON file: {"command": "replay", "traces": [...], "managers": [...],
  /// "settings": [...], "capacities": [...], "devices": [...], "options": [...]}.
  Status add_file(const std::string& path);
};

/// One run of the matrix.
struct Cell {
  /// Made of the command line and the stamp, so that the same cell has the same id in any matrix.
  std::string id;
  std::string stamp{};  ///< Changes if one of the files that the cell reads changes.
  std::string trace, manager, setting, capacity, device;
  std::vector<std::string> command;  ///< The words after "emmctl", without --json.
};

/// Returns the cells in the order of the matrix, traces first, each once. `paths` are the files of
/// the traces. Errors: usage, if the command does not take what the matrix varies, or if there is
/// no trace.
Result<std::vector<Cell>> cells_of(const Matrix& matrix, const std::vector<std::string>& paths);

/// Returns the id of a command line on files with that stamp: 16 hexadecimal digits.
std::string id_of(const std::vector<std::string>& command, const std::string& stamp = {});

/// Computes stamps of files. Files of the same content have the same stamp; files above 64 MiB,
/// those of the same size and time. One thread at a time.
class Stamps {
 public:
  /// Returns the stamp of the trace and of the manager's library, if any. Empty if there is no
  /// trace.
  std::string of(const std::vector<std::string>& command);

 private:
  const std::string& of_file(const std::string& path);
  std::map<std::string, std::string> known_;
};

}  // namespace emm::sweep
