#pragma once

#include <cstdlib>

/// What a launcher of several processes says of this one.
namespace emm::standin {

struct Launched {
  int rank = -1;  ///< -1: it says nothing.
  int ranks = 0;
};

inline Launched launched() noexcept {
  struct Names {
    const char *rank, *ranks;
  };
  // That of PyTorch's launchers first: one of the others may have started those.
  constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE"},
                                  {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                  {"SLURM_PROCID", "SLURM_NTASKS"},
                                  {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                  {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}};
  const auto number = [](const char* name) {
    const char* const given = std::getenv(name);
    return given != nullptr && *given >= '0' && *given <= '9' ? std::atoi(given) : -1;
  };
  for (const auto& names : kLaunchers) {
    const int rank = number(names.rank), ranks = number(names.ranks);
    if (rank >= 0 && ranks > rank) return {rank, ranks};
  }
  return {};
}

}  // namespace emm::standin
