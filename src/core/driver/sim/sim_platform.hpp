#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "driver/call.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "driver/sim/answer.hpp"
#include "driver/sim/host_space.hpp"
#include "driver/sim/latency.hpp"
#include "driver/sim/pool_table.hpp"
#include "driver/sim/scheduler.hpp"
#include "driver/sim/sim_device.hpp"
#include "driver/sim/virtual_memory.hpp"

namespace emm {

/// The options of `--device sim:...`.
struct SimOptions {
  /// Measured on an H200: the total, and the bytes that are not free at start.
  static constexpr std::uint64_t kH200Total = 150'109'880'320;
  static constexpr std::uint64_t kH200Reserved = 150'109'880'320 - 149'557'477'376;
  static constexpr int kMostDevices = 64;
  static constexpr std::uint64_t kLeastCapacity = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kMostCapacity = std::uint64_t{4} << 40;

  std::uint64_t capacity = kH200Total;  ///< Total bytes of each device.
  std::uint64_t reserved = 0;           ///< Bytes of these that are never free.
  int devices = 1;
  /// Decides the content of memory that was never written, and WorkOrder::random.
  std::uint64_t seed = 0;
  bool costs = true;  ///< Calls advance the clock by their time on an H200.
  bool peers = true;  ///< Devices can access each other's memory.
  sim::WorkOrder order = sim::WorkOrder::late;  ///< When the work on streams is done.
  std::vector<std::uint64_t> capacities{};      ///< The capacity of each device, if they differ.
  /// Memory that was never written reads as zero, not as a pattern that shows the mistake.
  bool zeroed = false;
  sim::Addresses addresses = sim::Addresses::first_fit;
  /// The card that the devices are, if one was named.
  const GpuProfile* gpu = nullptr;
  /// What CUDA's libraries take of that card. Null where it does not count: it was not measured, or
  /// a capacity was given and no card.
  const LibraryMemory* libraries = nullptr;
};

/// Simulated devices in this process, on one simulated clock. Each is an H200 except for its
/// capacity and for what a program may ask about the card that `gpu` names. The same calls in the
/// same order get the same answers, addresses and times, on any machine.
class SimPlatform final : public Platform {
 public:
  /// REQUIRES: the options are within the limits above, and reserved < capacity by a page or more.
  explicit SimPlatform(const SimOptions& options);

  int device_count() const noexcept override { return options_.devices; }
  Result<OpenedDevice> open(int ordinal) override;
  ManualClock& clock() noexcept override { return clock_; }
  std::string spec() const override;
  std::string_view kind() const noexcept override { return "sim"; }
  const GpuProfile* gpu() const noexcept override {
    return options_.gpu != nullptr ? options_.gpu : &gpu_profiles().front();
  }

  std::string_view device_name() const noexcept { return device_name_; }

  // For the drivers and runtimes of this platform.
  const SimOptions& options() const noexcept { return options_; }
  sim::HostSpace& host() noexcept { return host_; }
  std::uint64_t number() const noexcept {
    return number_;
  }  ///< Names the platform in thread_contexts.
  sim::Scheduler& scheduler() noexcept { return scheduler_; }
  sim::VirtualMemory& virtual_memory() noexcept { return virtual_memory_; }
  sim::PoolTable& pools() noexcept { return pools_; }
  DeviceIdentity identity(int ordinal) const noexcept;
  sim::SimDevice& device(int ordinal) noexcept {
    return *devices_[static_cast<std::size_t>(ordinal)];
  }
  /// The device that has the context; null if none has.
  sim::SimDevice* device_of(ContextHandle context) noexcept;
  /// The device that an address belongs to; null for host and virtual memory.
  sim::SimDevice* device_at(std::uint64_t address) noexcept;
  /// Disables all access to a device, after its reset.
  void forget_peer(int ordinal) noexcept;
  /// Ends a call: adds its time to the clock, and turns its answer into a Result.
  template <class T>
  Result<T> conclude(Call call, sim::Answer<T> answer) {
    spend(call, answer.size, answer.native, answer.extra_ns);
    if (answer.native != sim::kSuccess) return driver_error(call, answer.native);
    return std::move(answer.value);
  }
  Status conclude(Call call, const sim::Answer<sim::Nothing>& answer) {
    spend(call, answer.size, answer.native, answer.extra_ns);
    if (answer.native != sim::kSuccess) return driver_error(call, answer.native);
    return {};
  }

 private:
  void spend(Call call, std::uint64_t size, std::int32_t native, std::uint64_t extra_ns) noexcept {
    if (options_.costs) clock_.advance(sim::latency_ns(call, size, native) + extra_ns);
  }

  SimOptions options_;
  std::string device_name_;
  std::uint64_t number_;
  ManualClock clock_;
  sim::HostSpace host_;
  std::vector<std::unique_ptr<sim::SimDevice>> devices_;
  sim::Scheduler scheduler_;
  sim::VirtualMemory virtual_memory_;
  sim::PoolTable pools_;
};

}  // namespace emm
