#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock.hpp"
#include "driver/types.hpp"

namespace emm {

// The calls stand in calls.def, one row each, with what they promise. A capability of a device is
// an interface; a function that needs one alone takes that.

/// Declares the call of a row.
#define EMM_DECLARE_CALL(result, name, cuda, shape, fault, cost, parameters, ...) \
  virtual result name parameters = 0;
/// The same in a class that implements it: `#define EMM_CALL EMM_OVERRIDE_CALL` and an include of
/// calls.def is the list of all overrides.
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

/// What the device knows about its memory.
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

/// Streams, events, the order between them, and what is done on them.
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

/// The slice of the CUDA driver API that memory managers stand on, seen from one context.
///
/// There is one implementation per kind of device: sim (in this process) and cuda (libcuda, loaded
/// at run time); decorators stand between. A Driver belongs to one primary context of one device,
/// and makes that context current around every call, so a caller need not (contract: BASE-6,
/// RST-13).
///
/// True of every call: sizes are bytes; a failure is an Error with the CUresult in `native`, and a
/// call that fails changes nothing; any thread may call at any time; nothing here throws. What each
/// call answers in odd cases (size 0, double free, interior address...) is CUDA's own behaviour,
/// which tests/driver pins for both devices.
///
/// A call that a class does not override answers not_supported (801): a device without pools, or a
/// fake for a test, implements what it has.
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

  // All are declared again here, so that a call through a Driver finds its slot in Driver's own
  // table. Through an interface it costs a jump more, which adjusts `this`.
#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  // What is known of the device without a call of CUDA's.
  virtual DeviceIdentity device_identity() const noexcept = 0;
  virtual std::string_view device_name() const noexcept = 0;
  virtual int device_ordinal() const noexcept = 0;
  /// CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY.
  virtual bool can_map_host_memory() const noexcept = 0;
  virtual ContextHandle context_handle() const noexcept = 0;
  /// Answers the physical bytes of the device that this context holds, as cuMemGetInfo would show
  /// them, without the cost of asking. They are exact on sim. On a real device they are counted
  /// from the calls made here, in whole pages.
  virtual std::uint64_t held_bytes() const noexcept = 0;
  /// Answers the largest mem_alloc that could succeed now, or 0 where the device does not tell.
  virtual std::uint64_t largest_free_bytes() const noexcept = 0;
  /// Answers what a log shows for a host address: the address itself on a real device, and on the
  /// simulated one a number that is the same in every run. An unknown address is shown as it is.
  virtual std::uint64_t log_address(const std::byte* ptr) const noexcept = 0;
};

/// The slice of cudart that the `cudart` manager stands on. Same rules as Driver.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Result<DevicePtr> malloc(std::uint64_t size) = 0;
  virtual Status free(DevicePtr ptr) = 0;
  virtual Result<MemoryInfo> mem_get_info() = 0;
};

}  // namespace emm
