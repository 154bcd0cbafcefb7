#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace emm {

/// The source of times. Any thread may ask.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since the clock's own zero. Never decreases.
  virtual std::uint64_t now_ns() const noexcept = 0;
  /// "host" for a clock that measures, "simulated" for a model.
  virtual std::string_view kind() const noexcept = 0;
};

/// Real time since construction, at CLOCK_MONOTONIC's rate within 0.01 %. Reads the processor's
/// time stamp counter if the kernel uses it too, which costs half as much as asking the kernel.
class SteadyClock final : public Clock {
 public:
  SteadyClock();
  std::uint64_t now_ns() const noexcept override;
  std::string_view kind() const noexcept override { return "host"; }

 private:
  std::uint64_t ns_per_tick_;  ///< In units of 2^-32 ns; 0 means that the kernel is asked.
  std::uint64_t start_;        ///< Ticks, or nanoseconds.
};

/// The processor time of this process and all its threads. Each reading asks the kernel, which
/// takes some 300 ns.
class ProcessorClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override;
  std::string_view kind() const noexcept override { return "host"; }
};

/// Moves only by advance(). The simulated device advances it by what a call would have cost.
class ManualClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_.load(std::memory_order_relaxed); }
  std::string_view kind() const noexcept override { return "simulated"; }
  void advance(std::uint64_t ns) noexcept { now_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> now_ns_{0};
};

}  // namespace emm
