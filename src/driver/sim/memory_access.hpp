#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

/// Reads and writes at addresses of any device, of virtual memory and of host memory that a device
/// can see, which share one space. While it lives, the memory that its addresses belong to cannot
/// be freed. Each answer is a native code: invalid value where the bytes are not all within one
/// allocation, or in mappings that follow each other and may be accessed; then nothing has been
/// done.
class MemoryAccess {
 public:
  /// For one address, or for two.
  MemoryAccess(SimPlatform& platform, DevicePtr first, DevicePtr second);
  MemoryAccess(SimPlatform& platform, DevicePtr only) : MemoryAccess(platform, only, only) {}

  /// Accesses as a kernel of a device does: the memory of another device only where access to that
  /// peer was enabled, and virtual memory only where the device itself has access. Without this, as
  /// copies do, it reaches everything that any device reaches (documented: unified addressing,
  /// staged where need be).
  MemoryAccess& by(int device) noexcept {
    device_ = device;
    return *this;
  }

  /// Whether there are `size` bytes at `at` that may be used so.
  bool holds(DevicePtr at, std::uint64_t size, Use use);
  /// `value` repeats every 4 bytes from `at` on.
  std::int32_t fill(DevicePtr at, std::uint32_t value, std::uint64_t size);
  std::int32_t write(DevicePtr at, std::span<const std::byte> bytes);
  std::int32_t read(DevicePtr at, std::span<std::byte> bytes);
  std::int32_t copy(DevicePtr to, DevicePtr from, std::uint64_t size);

 private:
  /// Memory as content or as bytes, never both. It goes up to the end of what is asked for, or to
  /// the end of a mapping before that.
  struct Spot {
    Content* content = nullptr;
    std::uint64_t offset = 0;
    std::byte* bytes = nullptr;
    std::uint64_t size = 0;  ///< 0: there is no memory.
  };
  Spot find(DevicePtr at, std::uint64_t size, Use use);
  template <class Act>
  std::int32_t each(DevicePtr at, std::uint64_t size, Use use, Act act);
  static void move(const Spot& to, const Spot& from, std::uint64_t size);

  SimPlatform& platform_;
  int device_ = -1;
  std::unique_lock<std::mutex> virtual_, lower_, higher_, host_;
};

}  // namespace emm::sim
