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

/// The manager of one device, shared by all frameworks of this process.
struct SharedDevice {
  SharedDevice(std::unique_ptr<ExportedManager> made, int ordinal)
      : manager(std::move(made)), addressed(*manager, ordinal) {}

  std::unique_ptr<ExportedManager> manager;
  AddressedMemory addressed;  ///< Memory that callers name by its address.
};

/// One manager for each device, all with the same options. Each is made at the first request for
/// its device. Any thread. A child of fork() has none where its parent had one: CUDA does not work
/// there.
class SharedManagers {
 public:
  /// The instance of this process. It is never destroyed, since programs free memory until they
  /// exit.
  static SharedManagers& of_process() {
    auto* const all = all_.load(std::memory_order_acquire);
    return all != nullptr ? *all : make_of_process();
  }

  /// Sets options and flags, which are those of emm_create_v1. Fails if a device is in use with
  /// other ones.
  Status use(const std::string& options, std::uint32_t flags);
  Result<SharedDevice*> device(int ordinal);
  /// Returns the device without making it, or null.
  SharedDevice* known(int ordinal) {
    if (ordinal >= 0 && ordinal < kQuick) [[likely]]
      return quick_[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
    return known_slowly(ordinal);
  }
  /// Returns the device whose addressed memory handed out `ptr`, or null.
  SharedDevice* holder_of(DevicePtr ptr);
  /// Ends the manager of a device. Does nothing and returns false while it has live memory or a
  /// live guard.
  bool end(int ordinal);
  /// Drops the manager of a device whose context was reset by someone else. Its memory is gone. It
  /// is never called again, not even to destroy it.
  void abandon(int ordinal);
  /// Calls AddressedMemory::set_limit() for a device. Also applies to managers of the device that
  /// are made later.
  void set_limit(int ordinal, std::uint64_t bytes);
  /// Whether `ptr` was live when the device was abandoned, or may be memory of the parent's.
  bool was_abandoned(int ordinal, DevicePtr ptr);
  /// Calls AddressedMemory::record_alive() for every device.
  void record_alive();
  /// Releases idle memory of every device.
  void trim();

 private:
  SharedManagers() = default;
  /// Those of a child of fork(). What the parent made is left alone.
  explicit SharedManagers(SharedManagers& of_parent);

  static constexpr int kQuick = 64;  // devices; a machine has fewer
  static SharedManagers& make_of_process();
  SharedDevice* known_slowly(int ordinal);
  void make_known(int ordinal, SharedDevice* device) noexcept;

  static inline std::atomic<SharedManagers*> all_{nullptr};

  /// Copies of the first entries of devices_, so that common requests take no lock.
  std::array<std::atomic<SharedDevice*>, kQuick> quick_{};
  bool is_past_fork_ = false;  ///< The parent had a manager, or was making one.
  std::mutex mutex_;
  std::string options_;
  std::uint32_t flags_ = 0;
  std::map<int, std::unique_ptr<SharedDevice>> devices_;
  std::map<int, std::uint64_t> limits_;
  /// Never destroyed, because their handles are invalid.
  std::vector<std::pair<int, std::unique_ptr<SharedDevice>>> abandoned_;
};

}  // namespace emm::libemm
