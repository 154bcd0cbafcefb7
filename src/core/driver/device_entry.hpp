#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "driver/driver.hpp"

namespace emm {

struct GpuProfile;

/// An opened device: the driver of its context, and cudart for the same context.
struct OpenedDevice {
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Runtime> runtime;  ///< Null if there is no cudart.
  /// The user's number of the device, for file names and messages: a recording's own ordinal if it
  /// is replayed on another device. -1 means the driver's device_ordinal().
  int shown_ordinal = -1;
};

/// All devices of one kind, opened with one set of options: `--device sim:capacity=8GiB,devices=2`.
/// Must outlive the devices that it opened. Any thread may call.
class Platform {
 public:
  virtual ~Platform() = default;
  virtual int device_count() const noexcept = 0;
  /// Opens the primary context of device `ordinal`. May be called again after primary_ctx_reset.
  virtual Result<OpenedDevice> open(int ordinal) = 0;
  virtual Clock& clock() noexcept = 0;
  /// "sim:capacity=8589934592,costs=h200,devices=1,seed=0": open_platform() gives the same devices
  /// for it in another process, as the peer of an IPC section needs.
  virtual std::string spec() const = 0;
  virtual std::string_view kind() const noexcept = 0;  ///< "sim" or "cuda"
  /// What a simulated device is; null for a real one.
  virtual const GpuProfile* gpu() const noexcept { return nullptr; }
  /// The machine's number of device `ordinal`: device 0 of "cuda:2" is the machine's 2.
  virtual int machine_ordinal(int ordinal) const noexcept { return ordinal; }
};

struct DeviceDefaults {
  /// Bytes of the simulated device if the options name none; 0 means an H200's.
  std::uint64_t capacity = 0;
  /// The number of simulated devices if the options do not say; and the number of devices of
  /// cuda:N, from N on.
  int devices = 1;
  bool from_trace = false;  ///< The capacity comes from a trace's header; for messages.
  /// One for each simulated device, if not all have `capacity`.
  std::vector<std::uint64_t> capacities{};
  /// The file of the CUDA driver; empty: the libcuda.so.1 that the loader finds. The first one that
  /// a process loads is the process's.
  std::string cuda_driver{};
};

/// One kind of device: its name, a sentence for `emmctl list devices`, and how to open it.
struct DeviceEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view options;  ///< Known option keys, for help: "capacity, devices, seed, costs".
  /// `options` is the text behind the name and a colon; may be empty. Error no_device if a driver
  /// or a device is missing, usage for an unknown option.
  Result<std::unique_ptr<Platform>> (*open)(std::string_view options,
                                            const DeviceDefaults& defaults);
};

std::span<const DeviceEntry* const> bundled_devices();

/// "auto", "sim[:options]" or "cuda[:N]". auto is cuda if a driver and a device are found, else
/// sim. `said` then receives one line for a person that says which and why.
Result<std::unique_ptr<Platform>> open_platform(std::string_view spec,
                                                const DeviceDefaults& defaults,
                                                std::string* said = nullptr);

}  // namespace emm
