#include "base/clock.hpp"

#include <cstdio>
#include <cstring>
#include <ctime>

namespace emm {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t kernel_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}
std::uint64_t monotonic_ns() noexcept { return kernel_ns(CLOCK_MONOTONIC); }

#if defined(__x86_64__)
// Not __rdtsc() of <x86intrin.h>: the pragmas of that header make g++ compile what follows it in a
// unity build at the level of the precompiled header, whatever level is given.
std::uint64_t ticks() noexcept { return __builtin_ia32_rdtsc(); }

/// Answers whether the kernel uses the counter for its own time. It does so only if it has found
/// that the counter runs at one rate on all processors, even while they sleep.
bool counter_is_trusted() noexcept {
  auto* file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (file == nullptr) return false;
  char name[8] = {};
  const bool read = std::fgets(name, sizeof name, file) != nullptr;
  std::fclose(file);
  return read && std::strcmp(name, "tsc\n") == 0;
}

struct Moment {
  std::uint64_t ticks = 0, ns = 0;
};

/// Reads both clocks at nearly the same time: of several tries, takes the one in which the kernel
/// answered fastest.
Moment both_clocks() noexcept {
  Moment best;
  auto shortest = ~std::uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const auto before = ticks();
    const auto ns = monotonic_ns();
    const auto after = ticks();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {.ticks = before + (after - before) / 2, .ns = ns};
  }
  return best;
}

std::uint64_t measure_ns_per_tick() noexcept {
  if (!counter_is_trusted()) return 0;
  // What a program waits at most for the first time it is asked; a longer window is more exact.
  constexpr std::uint64_t kWindowNs = 2'000'000;
  const auto first = both_clocks();
  while (monotonic_ns() - first.ns < kWindowNs) {
  }
  const auto last = both_clocks();
  if (last.ticks <= first.ticks) return 0;
  return static_cast<std::uint64_t>((Wide{last.ns - first.ns} << 32) / (last.ticks - first.ticks));
}
#else
std::uint64_t ticks() noexcept { return 0; }
std::uint64_t measure_ns_per_tick() noexcept { return 0; }
#endif

}  // namespace

SteadyClock::SteadyClock() {
  static const auto measured = measure_ns_per_tick();
  ns_per_tick_ = measured;
  start_ = ns_per_tick_ != 0 ? ticks() : monotonic_ns();
}

std::uint64_t SteadyClock::now_ns() const noexcept {
  if (ns_per_tick_ == 0) return monotonic_ns() - start_;
  const auto now = ticks();
  // A thread that has just moved to another processor may read a few ticks less.
  return now <= start_ ? 0 : static_cast<std::uint64_t>((Wide{now - start_} * ns_per_tick_) >> 32);
}

std::uint64_t ProcessorClock::now_ns() const noexcept {
  return kernel_ns(CLOCK_PROCESS_CPUTIME_ID);
}

}  // namespace emm
