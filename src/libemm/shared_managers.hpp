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
  AddressedMemory addressed;  ///< What is named by its address, not by a token.
};

/// One manager a device, made when it is first asked for, all with the same options. Any thread.
class SharedManagers {
 public:
  /// Of this process. It never ends: memory is freed to the very end of a process.
  static SharedManagers& of_process();

  /// Options and flags as of emm_create_v1. Fails where a device is in use with others.
  Status use(const std::string& options, std::uint32_t flags);
  Result<SharedDevice*> device(int ordinal);
  /// The same, where it is made; else null.
  SharedDevice* known(int ordinal);
  /// The device where `ptr` was taken from its addressed memory; null where on none.
  SharedDevice* holder_of(DevicePtr ptr);
  /// Ends the manager of a device. False, and nothing done, while memory or a guard of it lives.
  bool end(int ordinal);
  /// The context of the device was reset by somebody else: what it held is gone, and the manager is
  /// never called again, not even to end it.
  void abandon(int ordinal);
  /// AddressedMemory::set_limit() of a device, also of managers of it that are made later.
  void set_limit(int ordinal, std::uint64_t bytes);
  /// Was `ptr` alive on the device when that was abandoned?
  bool was_abandoned(int ordinal, DevicePtr ptr);
  /// AddressedMemory::record_alive() of every device.
  void record_alive();
  /// Gives idle memory of every device back.
  void trim();

 private:
  static constexpr int kQuick = 64;
  void make_known(int ordinal, SharedDevice* device) noexcept;

  /// The same as devices_, of the first ordinals, for who takes no lock.
  std::array<std::atomic<SharedDevice*>, kQuick> quick_{};
  std::mutex mutex_;
  std::string options_;
  std::uint32_t flags_ = 0;
  std::map<int, std::unique_ptr<SharedDevice>> devices_;
  std::map<int, std::uint64_t> limits_;
  /// Never ended: their handles are dead.
  std::vector<std::pair<int, std::unique_ptr<SharedDevice>>> abandoned_;
};

}  // namespace emm::libemm
