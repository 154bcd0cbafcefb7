#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace emm::sweep {

/// What a sweep runs: each trace with each manager, setting, capacity and device. An empty list
/// stands for one value, which the command chooses itself.
struct Matrix {
  std::string command{};  ///< replay, fit, compare or tune; empty: replay.
  std::vector<std::string> traces{}, managers{}, settings{}, capacities{}, devices{};
  std::vector<std::string> options{};  ///< Further words of each cell's command line.

  /// Adds what a JSON says: {"command": "replay", "traces": [...], "managers": [...], "settings":
  /// [...], "capacities": [...], "devices": [...], "options": [...]}.
  Status add_file(const std::string& path);
};

/// One run of the matrix.
struct Cell {
  std::string id;  ///< From its command line: the same cell of another matrix has the same.
  std::string trace, manager, setting, capacity, device;
  std::vector<std::string> command;  ///< The words after "emmctl", without --json.
};

/// The cells in the order of the matrix, traces first, each once. `paths` are the traces' files.
/// Usage error: the command does not take what the matrix varies, or there is no trace.
Result<std::vector<Cell>> cells_of(const Matrix& matrix, const std::vector<std::string>& paths);

/// The id of a command line: 16 hexadecimal digits.
std::string id_of(const std::vector<std::string>& command);

}  // namespace emm::sweep
