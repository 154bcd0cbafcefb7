#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "replay/engine.hpp"

namespace emm {

struct StackOptions {
  std::string device = "auto";         ///< As `--device` takes it.
  DeviceDefaults device_defaults{};    ///< What a trace suggests for the simulated one.
  ManagerFactory manager{};
  std::vector<std::string> faults{};   ///< As `--fault` takes them; each is a decorator over every device.
  Profile profile = Profile::standard;
  std::string peer_program{};          ///< This executable; run as `PROGRAM ipc-peer DEVICE N` for IPC sections.
};

/// The whole stack of a run, bottom to top: a platform, fault injectors over its drivers, a context on each device with a
/// manager from the factory. Owns the platform and what decorates it; outlives its contexts. One thread at a time.
class DeviceStack final : public replay::Stack {
 public:
  /// `said` becomes what a person should know about the choice of the device, or stays empty.
  static Result<std::unique_ptr<DeviceStack>> create(StackOptions options, std::string* said);
  ~DeviceStack() override;

  Result<std::unique_ptr<Context>> make_context(std::uint32_t device, ManagerObserver* observer,
                                                order::Checker* order = nullptr) override;
  Clock& clock() override { return platform_->clock(); }
  Result<std::unique_ptr<replay::Peer>> start_peer(std::uint32_t device) override;
  std::string describe_manager() const override { return options_.manager.name; }
  std::string describe_device() const override { return description_; }
  /// The `--fault`s that failed no call.
  std::vector<std::string> unused_faults() const;
  Platform& platform() noexcept { return *platform_; }

 private:
  struct Faults;
  DeviceStack(StackOptions options, std::unique_ptr<Platform> platform);

  StackOptions options_;
  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Faults> faults_;
  std::vector<std::unique_ptr<OpenedDevice>> opened_;  ///< One a context.
  std::string description_;
};

}  // namespace emm
