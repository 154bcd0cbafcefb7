#pragma once

#include <cstdint>
#include <ctime>

namespace emm::libemm {

/// CLOCK_MONOTONIC, in which the times of a recording are told.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace emm::libemm
