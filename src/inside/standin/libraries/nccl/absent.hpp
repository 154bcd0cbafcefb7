#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// A program of which only some ranks run: `emmctl run --ranks '0,7 of 64'`. The others are
/// answered for: they come to each collective with the call, and the values, of the rank that asks.
/// Any thread may call.
namespace emm::standin::nccl {

/// The variable that names the ranks that run, and how many there are: "0,7/64".
inline constexpr const char* kRunningRanks = "EMM_STANDIN_RANKS";

/// How many ranks the program has; 0: all of them run.
int ranks_of_program() noexcept;
/// How many of them run; 0: all.
int running_ranks() noexcept;
/// Does the program's rank run?
bool runs(int rank) noexcept;

/// Asks what made the groups of ranks, for the ranks of a communicator: fills `members` with the
/// program's rank of each, and returns 1; 0 if it does not know.
using AskMembers = int (*)(const char* id, std::uint64_t id_bytes, int size, int rank,
                           int* members);
void set_ask_members(AskMembers ask) noexcept;
/// The program's ranks of the communicator that this process enters as `rank` of `size`, being
/// `shown` in the program. Empty where all run; nothing where it is not known who they are.
std::optional<std::vector<int>> members_of(const char* id, std::uint64_t id_bytes, int size,
                                           int rank, int shown);

}  // namespace emm::standin::nccl
