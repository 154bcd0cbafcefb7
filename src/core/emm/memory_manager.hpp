#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "driver/types.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_pointer.hpp"
#include "emm/memory_pointer.hpp"

namespace emm {

struct MemoryMap;         // emm/memory_map.hpp
struct MemoryStatistics;  // emm/memory_statistics.hpp

/// The version of NBEP-7's interface. Every manager must return it (SEL-4).
inline constexpr int kInterfaceVersion = 1;

/// A manager's current state. A field that it does not know is empty.
struct ManagerState {
  std::optional<std::uint64_t> live_bytes;      ///< Handed out, as requested.
  std::optional<std::uint64_t> reserved_bytes;  ///< Held from the device.
  std::optional<std::uint64_t>
      largest_free_bytes;  ///< The largest block that needs no memory from the device.
  std::optional<std::uint64_t> pending_count;  ///< Frees that are requested but not yet made.
  std::optional<std::uint64_t> pending_bytes;
};

/// NBEP-7's BaseCUDAMemoryManager: where the memory of one context comes from.
///
/// One instance serves one context, and all its threads may call. Construction touches no device
/// (SEL-5). Sizes are bytes. A call that fails changes nothing. not_supported is a legal answer
/// only where this says so. Managers that know streams order memory after the work on `stream`;
/// others ignore it (NBEP-7 has no streams). Pointers must end before the manager; those that end
/// later do nothing.
class MemoryManager {
 public:
  virtual ~MemoryManager() = default;

  /// Must be called before the first allocation. Later calls change nothing (INI-1, INI-2).
  virtual Status initialize() = 0;
  /// Allocates exactly `size` bytes of device memory (DEV-1). Each manager documents what size 0
  /// gives.
  virtual Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {}) = 0;
  virtual Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) = 0;
  /// Page-locks `range`, which `owner` keeps alive until the result ends (PIN-4).
  virtual Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                                    std::shared_ptr<const void> owner = {}) = 0;
  /// Allocates managed memory. NBEP-7 has no such call; not_supported unless a manager offers it
  /// (BASE-4).
  virtual Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach);
  /// Returns a handle to the allocation that contains `memory`, with the offset of `memory` in it
  /// (IPC-2); or not_supported.
  virtual Result<IpcHandle> get_ipc_handle(MemoryView memory) = 0;
  /// Returns the free and the total memory; or not_supported (INF-4).
  virtual Result<MemoryInfo> get_memory_info() = 0;
  /// Ends all memory of this manager. Its pointers are then dead, and their finalizers do nothing.
  /// May be called before initialize(), and again (RST-3).
  virtual void reset() noexcept = 0;
  [[nodiscard]] virtual DeferCleanup defer_cleanup() = 0;
  virtual int interface_version() const noexcept { return kInterfaceVersion; }

  /// Makes every pending free now, unless cleanup is deferred.
  virtual Status flush() { return {}; }
  /// Releases idle memory to the device until at most `keep` bytes are left. Does nothing in
  /// managers that keep no idle memory.
  virtual Status trim([[maybe_unused]] std::uint64_t keep) { return {}; }
  /// From here on serves the requests of all threads from `pool`, which belongs to a CUDA graph or
  /// a MemPool of the program. Free memory of the pool serves no other request. False in managers
  /// without private pools, which serve all requests alike.
  virtual bool use_pool([[maybe_unused]] PrivatePool pool) { return false; }
  /// Notes that no graph and no MemPool refers to the pool any more. Its idle memory may then be
  /// released; with `at_once` it is released now.
  virtual void end_pool([[maybe_unused]] PrivatePool pool, [[maybe_unused]] bool at_once) {}
  /// Notes that streams which the free will not name still use the memory at `ptr`, as after
  /// PyTorch's record_stream(). After its free, the memory serves no request before
  /// complete_free(number) or a wait for the device. False in managers that cannot delay the free.
  virtual bool delay_free([[maybe_unused]] DevicePtr ptr, [[maybe_unused]] std::uint64_t number) {
    return false;
  }
  /// Ends the delay `number`. Does nothing if the number is unknown.
  virtual void complete_free([[maybe_unused]] std::uint64_t number) {}
  virtual ManagerState state() const { return {}; }
  /// Returns its statistics, under PyTorch's and RMM's names. Figures that it does not count are
  /// empty.
  virtual MemoryStatistics statistics() const;
  /// From here on the peaks of statistics() are the highest since now. False in managers that
  /// cannot do so.
  virtual bool reset_peaks() { return false; }
  /// Returns all device memory that it holds, and what lies where in it. Empty if it keeps no such
  /// record.
  virtual std::optional<MemoryMap> memory_map() const;
  /// Returns lines for a person at the end of a run, each ended by a line feed. May be empty.
  virtual std::string report() const { return {}; }
};

}  // namespace emm
