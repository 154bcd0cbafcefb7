#include "inspect/outlook.hpp"

#include <array>
#include <map>

#include "inspect/stream_need.hpp"

namespace emm::inspect {
namespace {

using What = Life::What;

struct Totals {
  std::uint64_t live = 0, live_count = 0, reserved = 0, segments = 0;
};

void judge(Outlook& outlook) {
  using Verdict = Outlook::Verdict;
  if (!outlook.capacity) return;
  const auto capacity = *outlook.capacity;
  outlook.verdict = outlook.live.bytes > capacity                            ? Verdict::fails
                    : outlook.no_wait > capacity || outlook.reserved_overrun ? Verdict::depends
                                                                             : Verdict::fits;
}

}  // namespace

std::string_view name(Outlook::Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"not_asked", "fails", "depends", "fits"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::vector<Outlook> outlooks(const Recording& recording, const Lives& lives,
                              std::optional<std::uint64_t> capacity) {
  std::map<std::uint32_t, std::pair<Outlook, Totals>> devices;
  const auto change = [&](std::uint32_t event, AllocId id, bool begins) {
    const auto& life = lives[id];
    if (life.what != What::device && life.what != What::backing) return;
    auto& [outlook, totals] = devices[lives.device(life)];
    // What was freed before, and is not free yet, is freed at once in a state; that free never
    // completes.
    outlook.has_history = outlook.has_history || (begins ? !life.preexisting : life.gone != kNever);
    const bool backing = life.what == What::backing;
    auto& bytes = backing ? totals.reserved : totals.live;
    auto& count = backing ? totals.segments : totals.live_count;
    bytes = begins ? bytes + life.size : bytes - life.size;
    count = begins ? count + 1 : count - 1;
    if (!begins) return;
    if (backing && !outlook.reserved) outlook.reserved.emplace();
    auto& peak = backing ? *outlook.reserved : outlook.live;
    if (bytes > peak.bytes) peak = {.bytes = bytes, .count = count, .event = event};
    auto& overrun = backing ? outlook.reserved_overrun : outlook.live_overrun;
    if (capacity && bytes > *capacity && !overrun)
      overrun = Overrun{.event = event, .size = life.size, .held = bytes};
  };
  lives.walk([&](std::uint32_t event, AllocId id) { change(event, id, true); },
             [&](std::uint32_t event, AllocId id) { change(event, id, false); },
             [](std::uint32_t) {});
  std::vector<Outlook> out;
  for (auto& [device, of] : devices) {
    auto& outlook = of.first;
    outlook.device = device;
    outlook.capacity = capacity;
    if (capacity) outlook.no_wait = stream_need(lives, device);
    judge(outlook);
    const auto last = static_cast<std::uint32_t>(recording.trace().size() - 1);
    outlook.held = held_after(lives, last, device);
    if (recording.has_addresses()) outlook.space = space_after(recording, lives, last, device);
    out.push_back(std::move(outlook));
  }
  return out;
}

}  // namespace emm::inspect
