#include "base/clock.hpp"

#include <ctime>

namespace emm {
namespace {

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

SteadyClock::SteadyClock() : start_ns_(monotonic_ns()) {}
std::uint64_t SteadyClock::now_ns() const noexcept { return monotonic_ns() - start_ns_; }

}  // namespace emm
