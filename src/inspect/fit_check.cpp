#include "inspect/fit_check.hpp"

#include <array>
#include <map>

#include "inspect/stream_need.hpp"

namespace emm::inspect {
namespace {

using What = Lifetime::What;

struct Totals {
  std::uint64_t live = 0, live_count = 0, reserved = 0, segments = 0;
};

void judge(FitCheck& fit_check) {
  using Verdict = FitCheck::Verdict;
  if (!fit_check.capacity) return;
  const auto capacity = *fit_check.capacity;
  fit_check.verdict = fit_check.live.bytes > capacity ? Verdict::fails
                      : fit_check.no_wait > capacity || fit_check.reserved_overrun
                          ? Verdict::depends
                          : Verdict::fits;
}

}  // namespace

std::string_view name(FitCheck::Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"not_asked", "fails", "depends", "fits"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::vector<FitCheck> fit_checks(const Recording& recording, const Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity) {
  std::map<std::uint32_t, std::pair<FitCheck, Totals>> devices;
  const auto change = [&](std::uint32_t event, AllocId id, bool begins) {
    const auto& lifetime = lifetimes[id];
    if (lifetime.what != What::device && lifetime.what != What::backing) return;
    auto& [fit_check, totals] = devices[lifetimes.device(lifetime)];
    // What was freed before, and is not free yet, is freed at once in a state; that free never
    // completes.
    fit_check.has_history =
        fit_check.has_history || (begins ? !lifetime.preexisting : lifetime.gone != kNever);
    const bool backing = lifetime.what == What::backing;
    auto& bytes = backing ? totals.reserved : totals.live;
    auto& count = backing ? totals.segments : totals.live_count;
    bytes = begins ? bytes + lifetime.size : bytes - lifetime.size;
    count = begins ? count + 1 : count - 1;
    if (!begins) return;
    if (backing && !fit_check.reserved) fit_check.reserved.emplace();
    auto& peak = backing ? *fit_check.reserved : fit_check.live;
    if (bytes > peak.bytes) peak = {.bytes = bytes, .count = count, .event = event};
    auto& overrun = backing ? fit_check.reserved_overrun : fit_check.live_overrun;
    if (capacity && bytes > *capacity && !overrun)
      overrun = Overrun{.event = event, .size = lifetime.size, .held = bytes};
  };
  lifetimes.walk([&](std::uint32_t event, AllocId id) { change(event, id, true); },
                 [&](std::uint32_t event, AllocId id) { change(event, id, false); },
                 [](std::uint32_t) {});
  std::vector<FitCheck> out;
  for (auto& [device, of] : devices) {
    auto& fit_check = of.first;
    fit_check.device = device;
    fit_check.capacity = capacity;
    if (capacity) fit_check.no_wait = stream_need(lifetimes, device);
    judge(fit_check);
    const auto last = static_cast<std::uint32_t>(recording.trace().size() - 1);
    fit_check.held = held_after(lifetimes, last, device);
    if (recording.has_addresses())
      fit_check.space = space_after(recording, lifetimes, last, device);
    out.push_back(std::move(fit_check));
  }
  return out;
}

}  // namespace emm::inspect
