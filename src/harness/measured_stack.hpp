#pragma once

#include "replay/engine.hpp"

namespace emm {

/// A stack whose run is timed by the host's clock: the time that managers, the replay and a
/// simulated device take on this machine. `of` outlives it.
class MeasuredStack final : public replay::Stack {
 public:
  explicit MeasuredStack(replay::Stack& of) : of_(of) {}

  Result<std::unique_ptr<Context>> make_context(std::uint32_t device, ManagerObserver* observer,
                                                order::Checker* order) override;
  Clock& clock() override { return clock_; }
  const Clock* model_clock() override {
    return of_.clock().kind() == "simulated" ? &of_.clock() : nullptr;
  }
  Result<std::unique_ptr<replay::Peer>> start_peer(std::uint32_t device) override {
    return of_.start_peer(device);
  }
  std::string describe_manager() const override { return of_.describe_manager(); }
  std::string describe_device() const override { return of_.describe_device(); }

 private:
  replay::Stack& of_;
  SteadyClock clock_;
};

}  // namespace emm
