#pragma once

#include "replay/engine.hpp"

namespace emm {

/// Times a run by the host's clock: the time that managers, the replay and a simulated device take
/// on this machine. `of` must outlive it.
class MeasuredStack final : public replay::Stack {
 public:
  /// Wall time, or the processor time of this process.
  enum class Measure : std::uint8_t { time, processors };
  explicit MeasuredStack(replay::Stack& of, Measure what = Measure::time) : of_(of), what_(what) {}

  Result<std::unique_ptr<Context>> make_context(std::uint32_t device, ManagerObserver* observer,
                                                stream_order::Checker* order) override;
  Clock& clock() override {
    return what_ == Measure::time ? static_cast<Clock&>(clock_) : processor_clock_;
  }
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
  Measure what_;
  SteadyClock clock_;
  ProcessorClock processor_clock_;
};

}  // namespace emm
