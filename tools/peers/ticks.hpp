#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace emm::peers {

inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

/// The processor's time stamp counter, the finest clock, read once all earlier instructions are
/// done.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  unsigned processor = 0;
  return __rdtscp(&processor);
#else
  return now_ns();
#endif
}

/// The value below which this share of a list lies. Reorders the list. REQUIRES: it is not empty.
template <class T>
T quantile(std::vector<T>& values, double share) {
  const auto at = std::min(values.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}
template <class T>
T median(std::vector<T> values) {
  return quantile(values, 0.5);
}

/// How long a tick is, and what reading the clock twice costs. The constructor measures both in 20
/// ms. A program that times no single request does not measure them, since the loop here would be
/// counted among its instructions.
class TickScale {
 public:
  explicit TickScale(bool measured = true) {
    if (!measured) return;
    const auto begin_ns = now_ns(), begin = ticks();
    while (now_ns() - begin_ns < 20'000'000) {
    }
    ns_per_tick_ = static_cast<double>(now_ns() - begin_ns) / static_cast<double>(ticks() - begin);
    std::vector<std::uint64_t> costs(10'001);
    for (auto& cost : costs) {
      const auto first = ticks();
      cost = ticks() - first;
    }
    cost_ = quantile(costs, 0.5);
  }

  /// Nanoseconds between two readings, without their own cost.
  double ns(std::uint64_t span) const {
    return span > cost_ ? static_cast<double>(span - cost_) * ns_per_tick_ : 0;
  }
  double cost_ns() const { return static_cast<double>(cost_) * ns_per_tick_; }

 private:
  double ns_per_tick_ = 1;
  std::uint64_t cost_ = 0;
};

}  // namespace emm::peers
