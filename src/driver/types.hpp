#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace emm {

/// An address in the device's address space. 0 is null.
struct DevicePtr {
  std::uint64_t value = 0;

  explicit operator bool() const noexcept { return value != 0; }
  auto operator<=>(const DevicePtr&) const = default;
  friend DevicePtr operator+(DevicePtr ptr, std::uint64_t offset) noexcept { return {ptr.value + offset}; }
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
  unsigned bits() const noexcept { return (portable ? 1u : 0u) | (mapped ? 2u : 0u) | (wc ? 4u : 0u); }
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

/// What tells one physical device from another, in any process of a machine.
struct DeviceIdentity {
  std::int32_t pci_domain_id = 0;
  std::int32_t pci_bus_id = 0;
  std::int32_t pci_device_id = 0;
  bool operator==(const DeviceIdentity&) const = default;
};

/// A stream as the driver knows it. 0 is the default stream.
struct StreamHandle {
  std::uint64_t value = 0;
  auto operator<=>(const StreamHandle&) const = default;
};
struct EventHandle {
  std::uint64_t value = 0;
  auto operator<=>(const EventHandle&) const = default;
};
struct LibraryHandle {
  std::uint64_t value = 0;
  auto operator<=>(const LibraryHandle&) const = default;
};
struct ContextHandle {
  std::uint64_t value = 0;
  auto operator<=>(const ContextHandle&) const = default;
};

/// The calls of the seam, for ledgers, faults and costs. Their names are those of the methods of Driver.
enum class Call : std::uint8_t {
  mem_alloc, mem_free, mem_alloc_managed, mem_host_alloc, mem_free_host, mem_host_register, mem_host_unregister,
  mem_host_get_device_pointer, mem_get_info, mem_get_address_range, ipc_get_mem_handle, ipc_open_mem_handle,
  ipc_close_mem_handle, memset_d8, memset_d32, memcpy_htod, memcpy_dtoh, memcpy_dtod, event_create, event_destroy,
  stream_create, stream_destroy, stream_synchronize, ctx_synchronize, ctx_push_current, ctx_pop_current,
  library_load, library_unload, primary_ctx_reset, can_access_peer, runtime_malloc, runtime_free, runtime_get_info,
};
inline constexpr std::size_t kCallCount = static_cast<std::size_t>(Call::runtime_get_info) + 1;

struct CallInfo {
  std::string_view name;      ///< As `--fault` takes it: "mem_alloc".
  const char* cuda_name;      ///< As CUDA spells it: "cuMemAlloc".
};
const CallInfo& call_info(Call call) noexcept;

/// The error of a driver call: CUresult `native`, by its meaning.
Error driver_error(Call call, std::int32_t native) noexcept;

}  // namespace emm
