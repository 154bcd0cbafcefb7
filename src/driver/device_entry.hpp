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

/// A device of a machine as a run sees it: the seam to one context, and cudart's door to the same.
struct OpenedDevice {
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Runtime> runtime;  ///< Null where there is no cudart.
  /// What the user calls the device: a recording's own ordinal, where it is replayed on another.
  /// File names and messages show it. -1: the driver's device_ordinal().
  int shown_ordinal = -1;
};

/// All devices of one kind, opened with one set of options: `--device sim:capacity=8GiB,devices=2`.
/// Must outlive what it opened. Any thread may call.
class Platform {
 public:
  virtual ~Platform() = default;
  virtual int device_count() const noexcept = 0;
  /// Opens the primary context of device `ordinal`. May be called again after primary_ctx_reset.
  virtual Result<OpenedDevice> open(int ordinal) = 0;
  virtual Clock& clock() noexcept = 0;
  /// "sim:capacity=8589934592,costs=h200,devices=1,seed=0": gives the same devices when passed to
  /// open_platform in another process, which is how the peer of an IPC section is started.
  virtual std::string spec() const = 0;
  virtual std::string_view kind() const noexcept = 0;  ///< "sim" or "cuda"
  /// The number that the machine gives its device `ordinal`: of "cuda:2", device 0 is the
  /// machine's 2.
  virtual int machine_ordinal(int ordinal) const noexcept { return ordinal; }
};

struct DeviceDefaults {
  /// The simulated device's, where the options name none; 0: an H200's.
  std::uint64_t capacity = 0;
  /// How many are simulated, where the options do not say; and how many of cuda:N, from N on.
  int devices = 1;
  bool from_trace = false;  ///< A trace's header says the capacity; for messages.
  /// For each simulated device, where they are not all `capacity`.
  std::vector<std::uint64_t> capacities{};
};

/// One kind of device: its name, a sentence for `emmctl list devices`, and how to open it.
struct DeviceEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view options;  ///< Known option keys, for help: "capacity, devices, seed, costs".
  /// `options` is what follows the name and a colon, may be empty. Fails with no_device where a
  /// driver or a device is missing, with usage on an unknown option.
  Result<std::unique_ptr<Platform>> (*open)(std::string_view options,
                                            const DeviceDefaults& defaults);
};

std::span<const DeviceEntry* const> bundled_devices();

/// "auto", "sim[:options]" or "cuda[:N]". auto is cuda where a driver and a device are found, else
/// sim; `said` then tells a person which and why, in one line.
Result<std::unique_ptr<Platform>> open_platform(std::string_view spec,
                                                const DeviceDefaults& defaults,
                                                std::string* said = nullptr);

}  // namespace emm
