#pragma once

#include <cstdint>
#include <ctime>

namespace emm::libemm {

/// Reads CLOCK_MONOTONIC, the clock of a recording.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace emm::libemm
