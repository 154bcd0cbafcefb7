#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sweep/folder.hpp"

namespace emm::sweep {

struct RunOptions {
  std::string program;  ///< emmctl
  std::uint64_t jobs = 1;
  std::uint64_t tries = 2;                         ///< Failed attempts of a cell, in all.
  const std::atomic<bool>* interrupted = nullptr;  ///< Ends what runs, and begins nothing.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};  ///< On one thread.
};

/// Runs the cells that are not done yet, each as a process of its own, `jobs` at a time. A cell is
/// done if its command ended with 0, 1 or 3 and left its JSON; what ended otherwise is tried again
/// as often as told. Errors are of the folder: a cell that fails is no error.
Status run_cells(const Folder& folder, const std::vector<Cell>& cells, const RunOptions& options);

/// What a program said on its standard output, and how it ended: its exit code, or 128 and the
/// signal. Error: it could not be begun.
struct Said {
  int status = 0;
  std::string out, err;
};
Result<Said> ask(const std::vector<std::string>& command);

}  // namespace emm::sweep
