#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

/// Reads and writes at addresses of any device, of virtual memory and of host memory that devices
/// see; they share one address space. While it lives, the memory at its addresses cannot be freed.
/// Results are native codes: invalid value unless all bytes lie in one allocation, or in adjacent
/// mappings that may be accessed. A refused access changes nothing.
class MemoryAccess {
 public:
  /// Looks at the memory that lies at one address, or at two.
  MemoryAccess(SimPlatform& platform, DevicePtr first, DevicePtr second);
  MemoryAccess(SimPlatform& platform, DevicePtr only) : MemoryAccess(platform, only, only) {}

  /// Accesses memory like a kernel of `device`: memory of another device only with peer access, and
  /// virtual memory only if the device itself has access. Without this it works like a copy, which
  /// reaches all memory that any device reaches (documented: unified addressing, staged if need
  /// be).
  MemoryAccess& by(int device) noexcept {
    device_ = device;
    return *this;
  }

  /// Answers whether `size` bytes from `at` on may be used in this way.
  bool holds(DevicePtr at, std::uint64_t size, Use use);
  /// Fills memory from `at` on with `value`, which repeats every 4 bytes.
  std::int32_t fill(DevicePtr at, std::uint32_t value, std::uint64_t size);
  std::int32_t write(DevicePtr at, std::span<const std::byte> bytes);
  std::int32_t read(DevicePtr at, std::span<std::byte> bytes);
  std::int32_t copy(DevicePtr to, DevicePtr from, std::uint64_t size);

 private:
  /// A piece of memory, as content or as bytes, never both. It ends with the request, or with a
  /// mapping before that.
  struct Spot {
    Content* content = nullptr;
    std::uint64_t offset = 0;
    std::byte* bytes = nullptr;
    std::uint64_t size = 0;  ///< 0 if there is no memory.
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
