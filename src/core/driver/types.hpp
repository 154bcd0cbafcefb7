#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace emm {

/// An address in the device's address space. 0 is null.
struct DevicePtr {
  std::uint64_t value = 0;

  explicit operator bool() const noexcept { return value != 0; }
  auto operator<=>(const DevicePtr&) const = default;
  friend DevicePtr operator+(DevicePtr ptr, std::uint64_t offset) noexcept {
    return {ptr.value + offset};
  }
  friend std::uint64_t operator-(DevicePtr a, DevicePtr b) noexcept { return a.value - b.value; }
};

/// An address that this process can read and write.
using HostPtr = std::byte*;

struct HostRange {
  HostPtr pointer = nullptr;
  std::uint64_t size = 0;
};

struct AddressRange {
  DevicePtr base;
  std::uint64_t size = 0;
};

/// Bytes. free <= total.
struct MemoryInfo {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  bool operator==(const MemoryInfo&) const = default;
};

/// cuMemHostAlloc's flags; the bits are CUDA's.
struct HostAllocFlags {
  bool mapped = false;    ///< CU_MEMHOSTALLOC_DEVICEMAP, 2
  bool portable = false;  ///< CU_MEMHOSTALLOC_PORTABLE, 1
  bool wc = false;        ///< CU_MEMHOSTALLOC_WRITECOMBINED, 4
  unsigned bits() const noexcept {
    return (portable ? 1u : 0u) | (mapped ? 2u : 0u) | (wc ? 4u : 0u);
  }
  bool operator==(const HostAllocFlags&) const = default;
};

/// cuMemHostRegister's flags; the bits are CUDA's.
struct HostRegisterFlags {
  bool mapped = false;     ///< CU_MEMHOSTREGISTER_DEVICEMAP, 2
  bool portable = false;   ///< CU_MEMHOSTREGISTER_PORTABLE, 1
  bool read_only = false;  ///< CU_MEMHOSTREGISTER_READ_ONLY, 8
  bool io = false;         ///< CU_MEMHOSTREGISTER_IOMEMORY, 4
  unsigned bits() const noexcept {
    return (portable ? 1u : 0u) | (mapped ? 2u : 0u) | (io ? 4u : 0u) | (read_only ? 8u : 0u);
  }
  bool operator==(const HostRegisterFlags&) const = default;
};

/// CU_MEM_ATTACH_GLOBAL and CU_MEM_ATTACH_HOST.
enum class AttachFlags : std::uint8_t { global = 1, host = 2 };

/// cuIpcMemHandle: 64 opaque bytes, to be copied to another process as they are.
struct IpcMemHandle {
  std::array<std::byte, 64> bytes{};
  bool operator==(const IpcMemHandle&) const = default;
};

/// Identifies a physical device, in every process of a machine.
struct DeviceIdentity {
  std::int32_t pci_domain_id = 0;
  std::int32_t pci_bus_id = 0;
  std::int32_t pci_device_id = 0;
  bool operator==(const DeviceIdentity&) const = default;
};

/// The driver's handle of a stream. 0 is the default stream, which here is the legacy one, as in a
/// program built without per-thread default streams.
struct StreamHandle {
  std::uint64_t value = 0;
  auto operator<=>(const StreamHandle&) const = default;
};
inline constexpr StreamHandle kLegacyStream{1};  ///< CU_STREAM_LEGACY
inline constexpr StreamHandle kPerThreadStream{
    2};  ///< CU_STREAM_PER_THREAD: another stream on each thread.
/// CU_STREAM_DEFAULT and CU_STREAM_NON_BLOCKING: whether the stream and the legacy default stream
/// wait for each other.
enum class StreamKind : std::uint8_t { blocking = 0, non_blocking = 1 };
using HostFunction = void (*)(void* argument);
struct EventHandle {
  std::uint64_t value = 0;
  auto operator<=>(const EventHandle&) const = default;
};
struct LibraryHandle {
  std::uint64_t value = 0;
  auto operator<=>(const LibraryHandle&) const = default;
};
/// Physical memory that has no address yet: CUmemGenericAllocationHandle.
struct PhysicalHandle {
  std::uint64_t value = 0;
  auto operator<=>(const PhysicalHandle&) const = default;
};
/// A stream-ordered pool: CUmemoryPool.
struct PoolHandle {
  std::uint64_t value = 0;
  auto operator<=>(const PoolHandle&) const = default;
};
/// CUmemAccess_flags.
enum class AccessFlags : std::uint8_t { none = 0, read = 1, read_write = 3 };
/// CUmemPool_attribute. Values are bytes, and 0 or 1 for the reuse policies. The high marks can
/// only be set to 0.
enum class PoolAttribute : std::uint8_t {
  reuse_follow_event_dependencies = 1,
  reuse_allow_opportunistic = 2,
  reuse_allow_internal_dependencies = 3,
  release_threshold = 4,
  reserved_current = 5,
  reserved_high = 6,
  used_current = 7,
  used_high = 8,
};
struct ContextHandle {
  std::uint64_t value = 0;
  auto operator<=>(const ContextHandle&) const = default;
};

}  // namespace emm
