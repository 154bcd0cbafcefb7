#include "inspect/fit_check.hpp"

#include <array>

#include "inspect/oom_finder.hpp"
#include "inspect/stream_need.hpp"

namespace emm::inspect {
namespace {

using What = trace::Lifetime::What;

}  // namespace

void judge(FitCheck& fit_check) {
  using Verdict = FitCheck::Verdict;
  if (!fit_check.capacity) return;
  const auto capacity = *fit_check.capacity;
  fit_check.verdict = fit_check.live.bytes > capacity ? Verdict::fails
                      : fit_check.no_wait > capacity || fit_check.reserved_overrun
                          ? Verdict::depends
                          : Verdict::fits;
}

std::string_view name(FitCheck::Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"not_asked", "fails", "depends", "fits"};
  return kNames[static_cast<std::size_t>(verdict)];
}

void FitFinder::change(std::uint32_t event, std::uint32_t device, const Change& change) {
  if (change.what != What::device && change.what != What::backing) return;
  auto& of = devices_[device];
  auto& [fit_check, totals] = of;
  const bool backing = change.what == What::backing;
  of.second.any_within = of.second.any_within || change.within;
  of.second.any_before = of.second.any_before || (change.begins && !change.within);
  of.second.requests += change.begins && change.within && !backing ? 1 : 0;
  fit_check.has_history = of.second.any_before ? of.second.requests > 1 : of.second.any_within;
  auto& bytes = backing ? totals.reserved : totals.live;
  auto& count = backing ? totals.segments : totals.live_count;
  bytes = change.begins ? bytes + change.size : bytes - change.size;
  count = change.begins ? count + 1 : count - 1;
  if (backing && !fit_check.reserved) fit_check.reserved.emplace();
  if (change.begins && has_begun_) look(event, of, backing, change.size);
}

/// Is what is held now a peak, or too much?
void FitFinder::look(std::uint32_t event, Device& device, bool backing, std::uint64_t request) {
  auto& [fit_check, totals] = device;
  const auto bytes = backing ? totals.reserved : totals.live;
  const auto count = backing ? totals.segments : totals.live_count;
  auto& peak = backing ? *fit_check.reserved : fit_check.live;
  if (bytes > peak.bytes) peak = {.bytes = bytes, .count = count, .event = event};
  auto& overrun = backing ? fit_check.reserved_overrun : fit_check.live_overrun;
  if (capacity_ && bytes > *capacity_ && !overrun)
    overrun = Overrun{.event = event, .size = request, .held = bytes};
}

void FitFinder::recording_begins(std::uint32_t first_moment) {
  has_begun_ = true;
  for (auto& [number, device] : devices_) {
    look(first_moment, device, false, 0);
    if (device.first.reserved) look(first_moment, device, true, 0);
  }
}

std::vector<FitCheck> FitFinder::fit_checks() const {
  std::vector<FitCheck> out;
  for (const auto& [device, of] : devices_) {
    out.push_back(of.first);
    out.back().device = device;
    out.back().capacity = capacity_;
  }
  return out;
}

std::vector<FitCheck> fit_checks(const Recording& recording, const trace::Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity) {
  FitFinder finder(capacity);
  const auto change = [&](std::uint32_t event, AllocId id, bool begins) {
    const auto& lifetime = lifetimes[id];
    // In a state without history, memory that was freed but is not free yet appears as a free that
    // never completes.
    finder.change(event, lifetimes.device(lifetime),
                  {.what = lifetime.what,
                   .size = lifetime.size,
                   .begins = begins,
                   .within = begins ? !lifetime.preexisting : lifetime.gone != trace::kNever});
  };
  const auto& trace = recording.trace();
  if (trace.beginning() == 0) finder.recording_begins(0);
  lifetimes.walk([&](std::uint32_t event, AllocId id) { change(event, id, true); },
                 [&](std::uint32_t event, AllocId id) { change(event, id, false); },
                 [&](std::uint32_t event) {
                   if (event + 1 == trace.beginning()) finder.recording_begins(event);
                 });
  auto out = finder.fit_checks();
  for (auto& fit_check : out) {
    if (capacity) fit_check.no_wait = stream_need(lifetimes, fit_check.device);
    judge(fit_check);
    const auto last = static_cast<std::uint32_t>(recording.trace().size() - 1);
    fit_check.held = held_after(lifetimes, last, fit_check.device);
    if (recording.has_addresses())
      fit_check.space = space_after(recording, lifetimes, last, fit_check.device);
  }
  return out;
}

}  // namespace emm::inspect
