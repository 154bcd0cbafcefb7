#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "replay/engine.hpp"
#include "trace/trace.hpp"

namespace emm {

struct StackOptions {
  std::string device = "auto";  ///< In the words of `--device`.
  /// The trace to replay. It names the devices. Null: one device, 0.
  const trace::Trace* trace = nullptr;
  ManagerFactory manager{};
  /// In the words of `--fault`. Each is a decorator over every device.
  std::vector<std::string> faults{};
  Profile profile = Profile::standard;
  /// This executable. IPC sections run it as `PROGRAM ipc-peer DEVICE N`.
  std::string peer_program{};
};

/// Says which devices serve a trace: "the trace's devices 2, 5 are devices 0, 1 of cuda". Empty if
/// all numbers agree.
std::string renumbered(const std::vector<std::uint32_t>& ordinals, const std::vector<int>& numbers,
                       std::string_view kind);

/// The whole stack of a run, bottom to top: a platform, fault injectors over its drivers, and on
/// each device a context with a manager from the factory. Owns the platform and its decorators.
/// Outlives its contexts. One thread at a time.
///
/// A trace's ordinals are names. A real machine that has devices of all these numbers serves each
/// ordinal by the device of that number. Otherwise the ordinals are laid onto the platform's
/// devices in order: ordinals 2 and 5 onto devices 0 and 1. A simulated machine has as many devices
/// as the trace names, each with the capacity that the trace states. Callers use the trace's
/// ordinals only.
///
/// A class of Python's makes its driver calls itself. On a simulated device it makes them to the
/// stand-in for libcuda.so.1, and so does the rest of the stack: the time is the host's.
class DeviceStack final : public replay::Stack {
 public:
  /// Adds sentences about the choice of the devices to `said`. Error: no_device if the platform has
  /// fewer devices than the trace names.
  static Result<std::unique_ptr<DeviceStack>> create(StackOptions options,
                                                     std::vector<std::string>* said);
  ~DeviceStack() override;

  Result<std::unique_ptr<Context>> make_context(std::uint32_t device, ManagerObserver* observer,
                                                stream_order::Checker* order = nullptr) override;
  Clock& clock() override { return platform_->clock(); }
  Result<std::unique_ptr<replay::Peer>> start_peer(std::uint32_t device) override;
  std::string describe_manager() const override { return options_.manager.name; }
  std::string describe_device() const override { return description_; }
  /// The `--fault`s that failed no call.
  std::vector<std::string> unused_faults() const;
  Platform& platform() noexcept { return *platform_; }

 private:
  struct Faults;
  class StandIn;
  class Beside;
  DeviceStack(StackOptions options, std::unique_ptr<Platform> platform);

  Status lay_out();
  int place_of(std::uint32_t ordinal) const;

  StackOptions options_;
  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Faults> faults_;
  std::unique_ptr<StandIn> standin_;  ///< Null: the platform is what `--device` says.
  std::vector<std::unique_ptr<OpenedDevice>> opened_;  ///< One for each context.
  std::string description_;
  std::vector<std::uint32_t> ordinals_;  ///< The trace's devices, ascending.
  std::vector<int> places_;              ///< The platform's device for each ordinal.
};

}  // namespace emm
