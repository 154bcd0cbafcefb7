#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trial/sweep/folder.hpp"

namespace emm::sweep {

struct RunOptions {
  std::string program;  ///< Path of emmctl.
  std::uint64_t jobs = 1;
  std::uint64_t tries = 2;  ///< Failed attempts of a cell, in all, until it counts as failed.
  const std::atomic<bool>* interrupted = nullptr;  ///< Ends what runs, and starts nothing.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};  ///< On one thread.
};

/// Runs the cells that are not done yet, each in a process of its own, `jobs` at a time. A cell is
/// done if its command ended with 0, 1 or 3 and left its JSON. Otherwise it is tried again, until
/// it has failed `tries` times. Errors are those of the folder and of starting the program: a cell
/// that fails is no error.
Status run_cells(const Folder& folder, const std::vector<Cell>& cells, const RunOptions& options);

/// The output of a program, and how it ended: its exit code, or 128 + the signal. Error: it could
/// not be started.
struct ProgramAnswer {
  int status = 0;
  std::string out, err;
};
Result<ProgramAnswer> ask(const std::vector<std::string>& command);

}  // namespace emm::sweep
