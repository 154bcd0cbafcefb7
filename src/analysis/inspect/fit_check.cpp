#include "inspect/fit_check.hpp"

#include <array>

#include "inspect/memory_walk.hpp"
#include "inspect/oom_finder.hpp"
#include "inspect/stream_need.hpp"

namespace emm::inspect {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

/// Sets the verdict, once all else is known.
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

void FitFinder::change(const Walk& walk, std::uint32_t event, const LiveMemory& memory,
                       bool begins) {
  if (!memory.is_device() && memory.what != MemoryKind::backing) return;
  auto& device = devices_[walk.device(memory)];
  auto& [fit_check, totals] = device;
  const bool backing = memory.what == MemoryKind::backing;
  // In a state without history, memory that was freed but is not free yet appears as a free that
  // never completes.
  const bool within = begins ? !memory.preexisting : memory.gone != trace::kNever;
  totals.any_within = totals.any_within || within;
  totals.any_before = totals.any_before || (begins && !within);
  totals.requests += begins && within && !backing ? 1 : 0;
  fit_check.has_history = totals.any_before ? totals.requests > 1 : totals.any_within;
  auto& bytes = backing ? totals.reserved : totals.live;
  auto& count = backing ? totals.segments : totals.live_count;
  bytes = begins ? bytes + memory.size : bytes - memory.size;
  count = begins ? count + 1 : count - 1;
  if (backing && !fit_check.reserved) fit_check.reserved.emplace();
  if (begins && walk.has_begun()) look(event, device, backing, memory.size);
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

void FitFinder::recording_begins(const Walk&, std::uint32_t first_moment) {
  for (auto& [number, device] : devices_) {
    look(first_moment, device, false, 0);
    if (device.first.reserved) look(first_moment, device, true, 0);
  }
}

std::vector<FitCheck> FitFinder::fit_checks(
    const Walk& walk, const std::function<std::uint64_t(std::uint32_t device)>& no_wait_need) {
  std::vector<FitCheck> out;
  for (const auto& [number, device] : devices_) {
    auto& fit_check = out.emplace_back(device.first);
    fit_check.device = number;
    fit_check.capacity = capacity_;
    if (capacity_) fit_check.no_wait = no_wait_need(number);
    judge(fit_check);
    fit_check.held = walk.held(number);
    fit_check.space = walk.space(walk.events() - 1, number);
  }
  return out;
}

std::vector<FitCheck> FitFinder::fit_checks(const Walk& walk, const trace::Lifetimes& lifetimes) {
  return fit_checks(walk, [&](auto device) { return stream_need(lifetimes, device); });
}

std::vector<FitCheck> fit_checks(const Recording& recording, const trace::Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity) {
  FitFinder finder(capacity);
  MemoryWalk walk(lifetimes, &recording);
  walk.pass({&finder});
  return finder.fit_checks(walk,
                           [&](std::uint32_t device) { return stream_need(lifetimes, device); });
}

}  // namespace emm::inspect
