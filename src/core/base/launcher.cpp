#include "base/launcher.hpp"

#include <unistd.h>

#include <cstdlib>

#include "base/text.hpp"

namespace emm {
namespace {

struct Names {
  const char* launcher;
  const char* only_with;  // or null
  const char *rank, *world, *local_rank;
  const char* launch[2];
};
constexpr Names kLaunchers[] = {
    {"Open MPI",
     nullptr,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"torchrun",
     "LOCAL_RANK",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    // Requires a step, because the script of a batch job has a rank too, but is not one of several
    // processes.
    {"Slurm",
     "SLURM_STEP_ID",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"PMI", nullptr, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"PMI_JOBID", nullptr}},
    {"PMIx", nullptr, "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", {"PMIX_NAMESPACE", nullptr}},
};

const char* variable(const char* name) { return name == nullptr ? nullptr : std::getenv(name); }

std::optional<std::uint64_t> number(const char* name) {
  const char* value = variable(name);
  return value == nullptr ? std::nullopt : text::to_u64(value);
}

}  // namespace

std::optional<Launched> launched() {
  for (const auto& names : kLaunchers) {
    const auto rank = number(names.rank);
    if (!rank || (names.only_with != nullptr && variable(names.only_with) == nullptr)) continue;
    Launched out{.launcher = names.launcher,
                 .rank = *rank,
                 .world = number(names.world).value_or(0),
                 .local_rank = number(names.local_rank),
                 .launch = {}};
    for (const char* name : names.launch) {
      if (const char* value = variable(name)) out.launch += text::format("-{}", value);
    }
    // A launch without a name is identified by the launcher's process id, which suffices on one
    // machine.
    if (out.launch.empty()) out.launch = text::format("-{}", getppid());
    for (auto& c : out.launch) {
      if (c == '/' || c == ' ') c = '_';
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace emm
