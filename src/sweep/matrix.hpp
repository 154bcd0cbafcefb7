#pragma once

#include <cstdint>
#include <map>
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
  /// From its command line and its stamp: the same cell of another matrix has the same.
  std::string id;
  std::string stamp{};  ///< Of the files that it reads: another where one of them has changed.
  std::string trace, manager, setting, capacity, device;
  std::vector<std::string> command;  ///< The words after "emmctl", without --json.
};

/// The cells in the order of the matrix, traces first, each once. `paths` are the traces' files.
/// Usage error: the command does not take what the matrix varies, or there is no trace.
Result<std::vector<Cell>> cells_of(const Matrix& matrix, const std::vector<std::string>& paths);

/// The id of a command line on files with that stamp: 16 hexadecimal digits.
std::string id_of(const std::vector<std::string>& command, const std::string& stamp = {});

/// Stamps of files. Two of one content have the same; of files that are larger than 64 MiB, two of
/// one size and time. One thread at a time.
class Stamps {
 public:
  /// Of the trace and of the manager's library, if it has one. Empty where there is no trace.
  std::string of(const std::vector<std::string>& command);

 private:
  const std::string& of_file(const std::string& path);
  std::map<std::string, std::string> known_;
};

}  // namespace emm::sweep
