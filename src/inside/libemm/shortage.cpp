#include "libemm/shortage.hpp"

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "emm/memory_statistics.hpp"

namespace emm::libemm {

std::string shortage(const MemoryManager& manager) {
  const auto counted = manager.statistics();
  const auto state = manager.state();
  std::string words;
  const auto say = [&](std::string_view what, const std::optional<std::uint64_t>& bytes) {
    if (bytes)
      words += text::format("{}{} {}", words.empty() ? "; " : ", ", what, units::bytes(*bytes));
  };
  const auto either = [](const auto& first, const auto& second) { return first ? first : second; };
  say("live", either(state.live_bytes, counted.requested_bytes.current));
  say("reserved", either(counted.reserved_bytes.current, state.reserved_bytes));
  say("active", counted.active_bytes.current);
  say("inactive split", counted.inactive_split_bytes.current);
  say("largest free block", either(counted.largest_free_bytes, state.largest_free_bytes));
  if (state.pending_bytes.value_or(0) > 0) say("waiting to be freed", state.pending_bytes);
  return words;
}

}  // namespace emm::libemm
