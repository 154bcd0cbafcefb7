#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trial/sweep/folder.hpp"

namespace emm::sweep {

/// How cells go to a cluster.
struct SlurmOptions {
  std::string program;                ///< emmctl, as the nodes find it.
  std::vector<std::string> sbatch;    ///< Options that sbatch gets as they are.
  std::string container;              ///< Words before emmctl, as "apptainer exec image.sif".
  std::uint64_t chunk = 0;            ///< Cells per task; 0: as many as take minutes.
  std::uint64_t tries = 2, jobs = 1;  ///< Passed to each task.
};

/// Estimates the seconds of each cell: the mean of its trace's cells in `times`, or else the mean
/// of all cells there, or else a guess by the size of its trace.
std::vector<double> estimates(const std::vector<Cell>& cells, const std::vector<Cell>& plan,
                              const std::map<std::string, double>& times);

/// Cuts the cells, in their order, into parts that take at least `seconds`, except for the last.
std::vector<std::vector<std::string>> parts_by_time(const std::vector<Cell>& cells,
                                                    const std::vector<double>& estimates,
                                                    double seconds);

/// Submits the cells as one or several job arrays. Each task runs a part of them with `emmctl sweep
/// --part`. Returns the jobs' numbers. Slurm queues, places and requeues them.
Result<std::vector<std::string>> submit(const Folder& folder, const std::vector<Cell>& plan,
                                        const std::vector<Cell>& cells,
                                        const SlurmOptions& options);

/// Returns the ids of the cells in tasks that Slurm has queued or running, sorted. Error: Slurm
/// cannot be asked.
Result<std::vector<std::string>> running(const Folder& folder);

/// Cancels the arrays of the sweep that are queued or running. Returns how many there were.
Result<std::uint64_t> cancel(const Folder& folder);

/// Returns the cells of a part of a batch: "3:17" is task 17 of batch 3.
Result<std::vector<Cell>> part_of(const Folder& folder, const std::vector<Cell>& cells,
                                  const std::string& part);

}  // namespace emm::sweep
