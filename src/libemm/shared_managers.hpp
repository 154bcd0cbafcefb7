#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "libemm/addressed_memory.hpp"
#include "libemm/exported_manager.hpp"

namespace emm::libemm {

/// The manager of one device that all frameworks of this process draw on.
struct SharedDevice {
  SharedDevice(std::unique_ptr<ExportedManager> made, int ordinal)
      : manager(std::move(made)), addressed(*manager, ordinal) {}

  std::unique_ptr<ExportedManager> manager;
  AddressedMemory addressed;  ///< Memory that callers name by its address.
};

/// One manager for each device, made when it is first asked for, all with the same options. Any
/// thread.
class SharedManagers {
 public:
  /// The one of this process. It never ends, since programs free memory to the very end.
  static SharedManagers& of_process();

  /// Sets options and flags, which are those of emm_create_v1. Fails where a device is in use with
  /// others.
  Status use(const std::string& options, std::uint32_t flags);
  Result<SharedDevice*> device(int ordinal);
  /// The same without making it: null where there is none.
  SharedDevice* known(int ordinal);
  /// Answers the device whose addressed memory handed out `ptr`, or null.
  SharedDevice* holder_of(DevicePtr ptr);
  /// Ends the manager of a device. Does nothing and answers false while memory or a guard of it is
  /// alive.
  bool end(int ordinal);
  /// Drops the manager of a device whose context somebody else has reset. What it held is gone, and
  /// it is never called again, not even to end it.
  void abandon(int ordinal);
  /// Calls AddressedMemory::set_limit() for a device, also for managers of it that are made later.
  void set_limit(int ordinal, std::uint64_t bytes);
  /// Whether `ptr` was alive on the device when that was abandoned.
  bool was_abandoned(int ordinal, DevicePtr ptr);
  /// Calls AddressedMemory::record_alive() for every device.
  void record_alive();
  /// Releases idle memory of every device.
  void trim();

 private:
  static constexpr int kQuick = 64;
  void make_known(int ordinal, SharedDevice* device) noexcept;

  /// The first ordinals of devices_ again, so that the common request takes no lock.
  std::array<std::atomic<SharedDevice*>, kQuick> quick_{};
  std::mutex mutex_;
  std::string options_;
  std::uint32_t flags_ = 0;
  std::map<int, std::unique_ptr<SharedDevice>> devices_;
  std::map<int, std::uint64_t> limits_;
  /// Kept and never ended, because their handles are dead.
  std::vector<std::pair<int, std::unique_ptr<SharedDevice>>> abandoned_;
};

}  // namespace emm::libemm
