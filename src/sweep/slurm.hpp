#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweep/folder.hpp"

namespace emm::sweep {

/// How cells go to a cluster.
struct SlurmOptions {
  std::string program;                ///< emmctl, as the nodes find it.
  std::vector<std::string> sbatch;    ///< Options that sbatch gets as they are.
  std::string container;              ///< Words before emmctl, as "apptainer exec image.sif".
  std::uint64_t chunk = 0;            ///< Cells of a task; 0: as many as take minutes.
  std::uint64_t tries = 2, jobs = 1;  ///< What each task is told.
};

/// How long each cell takes: as its trace's did in `times`, of what is known by id; else as the
/// mean of all, or as the size of its trace lets one guess.
std::vector<double> estimates(const std::vector<Cell>& cells, const std::vector<Cell>& plan,
                              const std::map<std::string, double>& times);

/// The cells in their order, cut so that each part takes `seconds` or more, but for the last.
std::vector<std::vector<std::string>> parts_by_time(const std::vector<Cell>& cells,
                                                    const std::vector<double>& estimates,
                                                    double seconds);

/// Submits the cells as one or several job arrays, each task of which runs a chunk of them with
/// `emmctl sweep --part`. Returns the jobs' numbers. Slurm queues, places and requeues them.
Result<std::vector<std::string>> submit(const Folder& folder, const std::vector<Cell>& plan,
                                        const std::vector<Cell>& cells,
                                        const SlurmOptions& options);

/// The ids of the cells in tasks that Slurm has queued or running, sorted. Error: Slurm cannot be
/// asked.
Result<std::vector<std::string>> running(const Folder& folder);

/// Cancels the arrays of the sweep that are queued or running; says how many there were.
Result<std::uint64_t> cancel(const Folder& folder);

/// The cells of a part of a batch: "3:17" is task 17 of batch 3.
Result<std::vector<Cell>> part_of(const Folder& folder, const std::vector<Cell>& cells,
                                  const std::string& part);

}  // namespace emm::sweep
