#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/prng.hpp"
#include "driver/call.hpp"
#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// Which calls fail. `--fault` takes it as text:
///   mem_alloc:3        the third mem_alloc fails, with a code that mem_alloc can give
///   mem_alloc:3=999    ... with CUresult 999
///   any:10             the tenth call of any kind fails
///   rate=0.01,seed=7   each call fails with this probability; call=mem_alloc: each of that kind
struct FaultPlan {
  std::optional<Call> call;  ///< Empty means any call.
  std::uint64_t nth = 0;     ///< Counted from 1; 0 if `rate` decides.
  std::int32_t native = 0;   ///< 0 means the call's usual fault.
  double rate = 0;
  std::uint64_t seed = 0;

  /// Fails with Errc::usage.
  static Result<FaultPlan> parse(std::string_view text);
};

/// Fails calls as planned. A failed call does not reach the device. Any thread may call, but it is
/// then a race which of several concurrent calls is the n-th.
class FaultInjector final : public CallHook {
 public:
  explicit FaultInjector(const FaultPlan& plan) noexcept : plan_(plan), random_(plan.seed) {}

  std::int32_t before(const CallEvent& event) override;
  std::uint64_t injected() const;

 private:
  const FaultPlan plan_;
  mutable std::mutex mutex_;
  Prng random_;
  std::uint64_t seen_ = 0;
  std::uint64_t injected_ = 0;
};

/// A driver and its injector in one.
class FaultyDriver final : public ForwardingDriver {
 public:
  FaultyDriver(Driver& inner, const FaultPlan& plan) noexcept
      : ForwardingDriver(inner, injector_), injector_(plan) {}
  FaultInjector& injector() noexcept { return injector_; }

 private:
  FaultInjector injector_;
};

}  // namespace emm
