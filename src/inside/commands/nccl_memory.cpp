#include "commands/nccl_memory.hpp"

#include <algorithm>
#include <iterator>

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
    const auto is_it = [&](const MeasuredCommunicator& known_one) {
      return known_one.ranks == one.ranks && known_one.uses == one.uses &&
             known_one.channels == report.channels &&
             (is_first ? known_one.first : known_one.further) != 0 && is_of_card(known_one.card);
    };
    const auto row = std::find_if(std::begin(kMeasured), std::end(kMeasured), is_it);
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
