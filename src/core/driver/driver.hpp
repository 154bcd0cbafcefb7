#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "driver/types.hpp"

namespace emm {

// calls.def lists the calls, one row each, and their promises. Each capability of a device is an
// interface. A function that needs only one capability takes that interface.

/// Declares the call of a row.
#define EMM_DECLARE_CALL(result, name, cuda, shape, fault, cost, parameters, ...) \
  virtual result name parameters = 0;
/// Declares the override of a row's call. `#define EMM_CALL EMM_OVERRIDE_CALL` and an include of
/// calls.def declare all overrides.
#define EMM_OVERRIDE_CALL(result, name, cuda, shape, fault, cost, parameters, ...) \
  result name parameters override;

/// Device memory.
class MemoryCalls {
 public:
#define EMM_MEMORY_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~MemoryCalls() = default;
};

/// Page-locked host memory.
class HostMemoryCalls {
 public:
#define EMM_HOST_MEMORY_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~HostMemoryCalls() = default;
};

/// Queries about the device's memory.
class QueryCalls {
 public:
#define EMM_QUERY_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~QueryCalls() = default;
};

/// Memory of other processes.
class IpcCalls {
 public:
#define EMM_IPC_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~IpcCalls() = default;
};

/// Synchronous sets and copies.
class ContentCalls {
 public:
#define EMM_CONTENT_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~ContentCalls() = default;
};

/// Streams, events, the order between them, and work on them.
class StreamCalls {
 public:
#define EMM_STREAM_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~StreamCalls() = default;
};

/// The context, and code in it.
class ContextCalls {
 public:
#define EMM_CONTEXT_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~ContextCalls() = default;
};

/// Reservations of addresses, physical memory, and mappings.
class VirtualMemoryCalls {
 public:
#define EMM_VIRTUAL_MEMORY_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~VirtualMemoryCalls() = default;
};

/// Stream-ordered memory.
class PoolCalls {
 public:
#define EMM_POOL_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~PoolCalls() = default;
};

/// Access to other devices.
class PeerCalls {
 public:
#define EMM_PEER_CALL EMM_DECLARE_CALL
#include "driver/calls.def"

 protected:
  ~PeerCalls() = default;
};

/// The part of the CUDA driver API that memory managers use, for one context.
///
/// Each kind of device has an implementation: sim (in this process) and cuda (libcuda, loaded at
/// run time). Decorators wrap them. A Driver belongs to the primary context of one device, and
/// makes that context current around every call, so callers need not (contract: BASE-6, RST-13).
///
/// For every call: sizes are bytes. A failure is an Error with the CUresult in `native`, and
/// changes nothing. Any thread may call at any time. Nothing throws. Results in odd cases (size 0,
/// double free, interior address...) are those of CUDA, which tests/driver checks for both devices.
///
/// A call that a class does not override returns not_supported (801). So a device without pools, or
/// a stub in a test, implements only what it has.
class Driver : public MemoryCalls,
               public HostMemoryCalls,
               public QueryCalls,
               public IpcCalls,
               public ContentCalls,
               public StreamCalls,
               public ContextCalls,
               public VirtualMemoryCalls,
               public PoolCalls,
               public PeerCalls {
 public:
  virtual ~Driver() = default;

  // All calls are declared again, so that a call through a Driver uses Driver's own vtable. A call
  // through an interface costs one more jump, which adjusts `this`.
#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  // Facts about the device that need no CUDA call.
  virtual DeviceIdentity device_identity() const noexcept = 0;
  virtual std::string_view device_name() const noexcept = 0;
  virtual int device_ordinal() const noexcept = 0;
  /// CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY.
  virtual bool can_map_host_memory() const noexcept = 0;
  virtual ContextHandle context_handle() const noexcept = 0;
  /// The physical bytes of the device that this context holds, as cuMemGetInfo would show them, but
  /// without a driver call. Exact on sim. On a real device they are counted from the calls made
  /// here, in whole pages.
  virtual std::uint64_t held_bytes() const noexcept = 0;
  /// The largest mem_alloc that could succeed now, or 0 if unknown.
  virtual std::uint64_t largest_free_bytes() const noexcept = 0;
  /// The address that a log shows for a host address: the address itself on a real device, and on
  /// the simulated one a number that is the same in every run. Unknown addresses do not change.
  virtual std::uint64_t log_address(const std::byte* ptr) const noexcept = 0;
};

/// The part of cudart that the `cudart` manager uses. The same rules as for Driver hold.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Result<DevicePtr> malloc(std::uint64_t size) = 0;
  virtual Status free(DevicePtr ptr) = 0;
  virtual Result<MemoryInfo> mem_get_info() = 0;
};

}  // namespace emm
