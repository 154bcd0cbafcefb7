#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.hpp"
#include "commands/nccl_memory.hpp"
#include "commands/program_values.hpp"
#include "standin/process_report.hpp"

namespace emm::cli {

/// A process of a program of several, on a device.
struct ProgramRank {
  std::uint64_t rank = 0, process = 0, device = 0;
  std::uint64_t capacity = 0, peak = 0, refused = 0;
  std::uint64_t libraries = 0;  ///< What CUDA's libraries had of the peak.
  std::uint64_t first_refused = 0, first_refused_held = 0;
  std::uint64_t reserved = 0, allocated = 0;  ///< PyTorch's own peaks; 0 where it has none.
  NcclMemory nccl{};
};

/// What a rank waited in when no rank went on.
struct WaitingRank {
  std::uint64_t rank = 0, process = 0;
  std::string what;     ///< The collective, or a call of PyTorch's; empty: nothing of these.
  std::string missing;  ///< The ranks that have not come there.
  std::string line;     ///< file:line, where Python said so.
};

/// What the ranks of a program were, and what became of them.
struct ProgramRanks {
  std::vector<ProgramRank> ranks;  ///< The tightest first. Empty where there are not two.
  bool has_nccl = false;
  int all = 0;  ///< How many the program has, where only some of them run; else 0.
  /// Small collectives that got copies of a rank's own values for those of ranks that do not run;
  /// and receives and roots of such ranks, which gave nothing.
  std::uint64_t copies = 0, nothing = 0;
  std::vector<WaitingRank> waiting;  ///< They waited for one another, and were ended.
  std::uint64_t quiet_s = 0;         ///< For so long nobody had gone on.
  std::vector<std::string> gone;     ///< Ranks that ended while others waited for them.
  /// Ranks that called different collectives; and what ranks that do not run cannot be answered
  /// for.
  std::vector<std::string> differing;
  /// Their figures are those of a part of a run.
  bool is_cut() const noexcept { return !waiting.empty() || !gone.empty() || !differing.empty(); }
};
/// `all`: the number of ranks of a program of which only some run; else 0.
/// `card`: what the devices call themselves.
ProgramRanks ranks_in(const std::string& folder, const std::vector<standin::ProcessReport>& reports,
                      const ProgramValues& values, int all, std::string_view card);

/// Says whether the ranks fit, the tightest first. `card` names the devices.
void say_ranks(Console& console, const ProgramRanks& ranks, std::string_view card);
/// Says what NCCL takes besides.
void say_nccl(Console& console, const ProgramRanks& ranks);
/// The ranks in a table.
void show_ranks(Console& console, const ProgramRanks& ranks);
/// Says what ranks got of those that do not run.
void say_absent(Console& console, const ProgramRanks& ranks);
/// Says which ranks waited for others in vain.
void say_waits(Console& console, const ProgramRanks& ranks);

}  // namespace emm::cli
