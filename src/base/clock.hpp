#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace emm {

/// Where times come from. Any thread may ask.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since the clock's own zero; never goes back.
  virtual std::uint64_t now_ns() const noexcept = 0;
  /// "host" for a clock that measures, "simulated" for one that is a model.
  virtual std::string_view kind() const noexcept = 0;
};

/// CLOCK_MONOTONIC, from the moment of construction.
class SteadyClock final : public Clock {
 public:
  SteadyClock();
  std::uint64_t now_ns() const noexcept override;
  std::string_view kind() const noexcept override { return "host"; }

 private:
  std::uint64_t start_ns_;
};

/// Moves only when told. The simulated device tells it what a call would have cost.
class ManualClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_.load(std::memory_order_relaxed); }
  std::string_view kind() const noexcept override { return "simulated"; }
  void advance(std::uint64_t ns) noexcept { now_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> now_ns_{0};
};

}  // namespace emm
