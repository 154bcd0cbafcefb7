#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "stream_order/checker.hpp"

namespace emm::replay {

/// The clock of a run without the engine's own work: filling memory, checking it, describing a
/// failure. One thread at a time, except now() and raw_ns().
class ReplayClock {
 public:
  struct Excluded {
    std::uint64_t ns = 0, model_ns = 0;
  };

  /// `model` is the simulated device's clock if `clock` is another one; else null.
  ReplayClock(Clock& clock, const Clock* model) noexcept : clock_(clock), model_(model) {}

  Clock& clock() noexcept { return clock_; }
  bool has_model() const noexcept { return model_ != nullptr; }
  std::uint64_t now() const noexcept { return clock_.now_ns() - excluded_.ns; }
  /// Includes excluded time. For threads, since one may exclude time while others work.
  std::uint64_t raw_ns() const noexcept { return clock_.now_ns(); }
  /// 0 without a model.
  std::uint64_t model_ns() const noexcept { return raw_model_ns() - excluded_.model_ns; }

  Excluded excluded() const noexcept { return excluded_; }
  /// Includes the time that was excluded since `before`, because other threads worked meanwhile.
  void include_since(Excluded before) noexcept { excluded_ = before; }

 private:
  friend class ExcludedTime;
  std::uint64_t raw_model_ns() const noexcept { return model_ == nullptr ? 0 : model_->now_ns(); }

  Clock& clock_;
  const Clock* const model_;
  Excluded excluded_;
  unsigned depth_ = 0;  ///< Nested ExcludedTimes; the outermost counts for all.
};

/// Excludes the time while it lives, as the engine's own. They nest.
class ExcludedTime {
 public:
  explicit ExcludedTime(ReplayClock& clock) noexcept
      : clock_(clock), begin_{clock.raw_ns(), clock.raw_model_ns()} {
    ++clock.depth_;
  }
  ExcludedTime(const ExcludedTime&) = delete;
  ExcludedTime& operator=(const ExcludedTime&) = delete;
  ~ExcludedTime() {
    if (--clock_.depth_ != 0) return;
    clock_.excluded_.ns += clock_.raw_ns() - begin_.ns;
    clock_.excluded_.model_ns += clock_.raw_model_ns() - begin_.model_ns;
  }

 private:
  ReplayClock& clock_;
  const ReplayClock::Excluded begin_;
};

/// For driver calls of the engine itself: excludes the time, and the calls order nothing for the
/// checker.
struct EngineWork : ExcludedTime, stream_order::Quiet {
  using ExcludedTime::ExcludedTime;
};

}  // namespace emm::replay
