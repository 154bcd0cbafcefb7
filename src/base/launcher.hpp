#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace emm {

/// Which of several processes this one is, as the launcher that started them all says it in the
/// environment.
struct Launched {
  std::string launcher;  ///< "Open MPI", "torchrun", "Slurm", "PMI"
  std::uint64_t rank = 0;
  std::uint64_t world = 0;                  ///< How many there are; 0: not said.
  std::optional<std::uint64_t> local_rank;  ///< Among those of this machine.
  std::string launch;                       ///< Tells this launch from others; may be empty.
};

/// Nothing where no launcher started this process. Of several, as of mpirun in a job of Slurm, the
/// innermost counts: Open MPI or torchrun before a step of Slurm, and PMI and PMIx last.
std::optional<Launched> launched();

}  // namespace emm
