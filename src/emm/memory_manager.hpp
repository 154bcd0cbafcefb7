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
#include "emm/memory_pointer.hpp"

namespace emm {

struct MemoryMap;         // emm/memory_map.hpp
struct MemoryStatistics;  // emm/memory_statistics.hpp

/// The version of NBEP-7's interface; every manager answers this one (SEL-4).
inline constexpr int kInterfaceVersion = 1;

/// What a manager can say of itself; a field it does not know is empty. Bytes.
struct ManagerState {
  std::optional<std::uint64_t> live_bytes;      ///< Handed out, as requested.
  std::optional<std::uint64_t> reserved_bytes;  ///< Held from the device.
  std::optional<std::uint64_t>
      largest_free_bytes;  ///< The largest block it could hand out without the device.
  std::optional<std::uint64_t> pending_count;  ///< Frees asked for and not yet made.
  std::optional<std::uint64_t> pending_bytes;
};

/// NBEP-7's BaseCUDAMemoryManager: where the memory of one context comes from.
///
/// One instance serves one context, whose threads may all call; construction touches no device
/// (SEL-5). Sizes are bytes. A call that fails changes nothing. not_supported is a legal answer
/// where said. `stream` orders memory after work on it, in managers that know streams; others
/// ignore it (NBEP-7 has none). Pointers must end before the manager does; those that end later do
/// nothing.
class MemoryManager {
 public:
  virtual ~MemoryManager() = default;

  /// Before the first allocation, then any number of times, changing nothing (INI-1, INI-2).
  virtual Status initialize() = 0;
  /// Exactly `size` bytes (DEV-1). What size 0 gives is the manager's to document.
  virtual Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {}) = 0;
  virtual Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) = 0;
  /// Page-locks `range`, which `owner` keeps alive until the result ends (PIN-4).
  virtual Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                                    std::shared_ptr<const void> owner = {}) = 0;
  /// Not in NBEP-7; not_supported unless a manager offers it (BASE-4).
  virtual Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach);
  /// A handle to the memory that `memory` is in, with the offset of `memory` there (IPC-2); or
  /// not_supported.
  virtual Result<IpcHandle> get_ipc_handle(MemoryView memory) = 0;
  /// Or not_supported (INF-4).
  virtual Result<MemoryInfo> get_memory_info() = 0;
  /// Ends all memory of this manager: its pointers are dead from here on, and their finalizers do
  /// nothing. May come before initialize(), and again (RST-3).
  virtual void reset() noexcept = 0;
  [[nodiscard]] virtual DeferCleanup defer_cleanup() = 0;
  virtual int interface_version() const noexcept { return kInterfaceVersion; }

  /// Frees every pending deallocation now, unless cleanup is deferred. Nothing where there are
  /// none.
  virtual Status flush() { return {}; }
  /// Gives idle memory back to the device until no more than `keep` bytes of it are held. Nothing
  /// in managers that keep none.
  virtual Status trim([[maybe_unused]] std::uint64_t keep) { return {}; }
  /// Requests from here on, of any thread, are of that pool of the program, of a CUDA graph or a
  /// MemPool: what is free there serves no others. False in managers that have no private pools:
  /// they serve all requests alike.
  virtual bool use_pool([[maybe_unused]] PrivatePool pool) { return false; }
  /// No graph and no MemPool refers to the pool any more: its idle memory may be released, and is
  /// `at_once`.
  virtual void end_pool([[maybe_unused]] PrivatePool pool, [[maybe_unused]] bool at_once) {}
  /// Streams that the free of the memory at `ptr` will not name still use it, as after PyTorch's
  /// record_stream(). Freed, it serves nobody before complete_free() of that number, or before a
  /// wait for the device. False in managers that cannot keep it back: they take the free as it is.
  virtual bool delay_free([[maybe_unused]] DevicePtr ptr, [[maybe_unused]] std::uint64_t number) {
    return false;
  }
  /// Does nothing where the number is not known.
  virtual void complete_free([[maybe_unused]] std::uint64_t number) {}
  virtual ManagerState state() const { return {}; }
  /// What it counts, under PyTorch's and RMM's names; empty where it does not count.
  virtual MemoryStatistics statistics() const;
  /// All device memory that it holds, and what is where in it; nothing where it keeps no account of
  /// that.
  virtual std::optional<MemoryMap> memory_map() const;
  /// Lines for a person at the end of a run, each ended by a line feed; empty where there is
  /// nothing to say.
  virtual std::string report() const { return {}; }
};

}  // namespace emm
