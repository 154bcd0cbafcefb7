#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace emm {

/// This process's place among those that a launcher started together, read from the environment.
struct Launched {
  std::string launcher;  ///< "Open MPI", "torchrun", "Slurm", "PMI"
  std::uint64_t rank = 0;
  std::uint64_t world = 0;                  ///< How many processes there are; 0 if unknown.
  std::optional<std::uint64_t> local_rank;  ///< The rank among the processes on this machine.
  std::string launch;                       ///< Identifies this launch; may be empty.
};

/// Empty if no launcher started this process. If several did, like mpirun in a Slurm job, returns
/// the innermost: Open MPI or torchrun before a Slurm step, and PMI and PMIx last.
std::optional<Launched> launched();

}  // namespace emm
