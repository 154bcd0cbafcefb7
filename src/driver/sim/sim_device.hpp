#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>

#include "driver/sim/answer.hpp"
#include "driver/sim/device_memory.hpp"
#include "driver/sim/host_space.hpp"

namespace emm::sim {

/// What one simulated device is like.
struct DeviceSpec {
  int ordinal = 0;
  std::uint64_t total = 0;     ///< Bytes, as cuMemGetInfo shows them.
  std::uint64_t reserved = 0;  ///< Of these, what is never free: the system's and the context's.
  Pattern fresh;               ///< What memory that nobody wrote to reads as.
};

/// One device, its primary context, and the memory and objects in that.
///
/// A call names the context that it is made in; one that has been reset answers 709. Whatever a
/// call refuses changes nothing. Any thread may call; a call is atomic. The codes are those that an
/// H200 gave (driver 580.159.04, CUDA 13.0), as tests/driver pins them.
class SimDevice {
 public:
  /// Device addresses are above any that a process of 47 or 48 bits of address space can have, and
  /// apart from those of every other device: 8 TiB of its own memory, 8 TiB of that of other
  /// processes.
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 44;

  SimDevice(const DeviceSpec& spec, HostSpace& host);

  std::uint64_t base() const noexcept { return base_; }
  bool owns(std::uint64_t address) const noexcept { return address - base_ < kAddresses; }

  /// The primary context; made where there is none, as cuDevicePrimaryCtxRetain does.
  ContextHandle retain();
  bool is_alive(ContextHandle context) const;
  Answer<Nothing> reset(ContextHandle context);

  Answer<DevicePtr> mem_alloc(ContextHandle context, std::uint64_t size);
  /// From a context of another device too (addresses are one space); that one is then not checked
  /// here.
  Answer<Nothing> mem_free(ContextHandle context, DevicePtr ptr);
  Answer<MemoryInfo> mem_get_info(ContextHandle context) const;
  Answer<AddressRange> mem_get_address_range(DevicePtr ptr);
  std::uint64_t held_bytes(ContextHandle context) const;
  std::uint64_t largest_free_bytes(ContextHandle context) const;

  Answer<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr);
  Answer<DevicePtr> ipc_open_mem_handle(ContextHandle context, const IpcMemHandle& handle);
  Answer<Nothing> ipc_close_mem_handle(ContextHandle context, DevicePtr ptr);

  /// Events, streams and libraries: things with a handle and an end, and nothing else about them
  /// here.
  enum class Object : std::uint8_t { event, stream, library };
  Answer<std::uint64_t> create(ContextHandle context, Object kind);
  Answer<Nothing> destroy(ContextHandle context, Object kind, std::uint64_t handle);
  Answer<Nothing> check(ContextHandle context, Object kind, std::uint64_t handle) const;

  /// The content at `address` if all `size` bytes are in one allocation, else null.
  /// REQUIRES: the caller holds mutex(), and owns(address).
  struct Place {
    Content* content = nullptr;
    std::uint64_t offset = 0;
  };
  Place place(std::uint64_t address, std::uint64_t size);
  std::mutex& mutex() const noexcept { return mutex_; }

 private:
  struct Import {
    IpcMemHandle handle;
    std::uint64_t size = 0;
    std::uint64_t opened = 0;  // times
    Content content;
  };
  struct Objects {
    std::uint64_t last = 0;
    std::set<std::uint64_t> live;
  };
  using Imports = std::map<std::uint64_t, Import>;

  Imports::iterator import_around(std::uint64_t address);
  Content& content_of(DeviceMemory::Block& block);

  const DeviceSpec spec_;
  const std::uint64_t base_;
  HostSpace& host_;

  mutable std::mutex mutex_;
  ContextHandle context_;  // 0: none
  DeviceMemory memory_;
  Imports imports_;  // by address
  std::unordered_set<std::uint64_t>
      buried_;  // allocations that a reset ended, whose address is not in use since
  Objects objects_[3];
};

}  // namespace emm::sim
