#include "commands/nccl_memory.hpp"

#include <algorithm>

#include "driver/gpu_profile.hpp"

namespace emm::cli {
namespace {

constexpr auto kCollectives = standin::CommunicatorReport::kCollectives,
               kSends = standin::CommunicatorReport::kSends;

struct MeasuredCommunicator {
  std::string_view card;
  std::uint32_t ranks;
  std::uint64_t channels;
  std::uint32_t uses;
  std::uint64_t first, further;  // bytes; 0: not measured
  std::string_view source;
};
constexpr MeasuredCommunicator kMeasured[] = {
#define EMM_NCCL_MEMORY(card, ranks, channels, uses, first, further, source) \
  {card, ranks, channels, uses, first, further, source},
#include "commands/nccl_memory.def"
#undef EMM_NCCL_MEMORY
};

}  // namespace

NcclMemory nccl_memory(const standin::ProcessReport& report, std::string_view card) {
  NcclMemory found;
  const auto is_of_card = [&](std::string_view name) {
    const auto* const profile = find_gpu_profile(name);
    return profile != nullptr && profile->device == card;
  };
  const auto known = std::min(report.communicators, standin::ProcessReport::kMostCommunicators);
  found.unknown = report.communicators - known;
  bool is_first = true;
  for (std::uint64_t i = 0; i < known; ++i) {
    const auto& one = report.communicator[i];
    if (one.uses == 0) continue;  // NCCL connects at the first use
    const auto row = std::find_if(std::begin(kMeasured), std::end(kMeasured), [&](const auto& row) {
      return row.ranks == one.ranks && row.uses == one.uses && row.channels == report.channels &&
             (is_first ? row.first : row.further) != 0 && is_of_card(row.card);
    });
    if (row == std::end(kMeasured)) {
      ++found.unknown;
    } else {
      found.bytes += is_first ? row->first : row->further;
      found.source = row->source;
      ++found.measured;
    }
    is_first = false;
  }
  return found;
}

}  // namespace emm::cli
