#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.hpp"
#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/pending_deallocs.hpp"

namespace emm {

/// numba's Context: one device's primary context, the manager that serves it, and a queue of its
/// own for what is not memory (events, streams, modules: OBJ-1). Delegates the manager's operations
/// (CTX-1 to CTX-6), and resets and closes in numba's order (RST-1, RST-11).
///
/// One manager instance per Context, made in its constructor from the factory (SEL-9). Any thread
/// may call. Pointers must end before the Context does. Its end ends the manager, then frees what
/// its own queue holds and unloads what modules are left; in Profile::numba the queue is abandoned,
/// as at numba's exit (ERR-3).
class Context {
 public:
  /// `device` outlives this. Fails where the factory fails.
  static Result<std::unique_ptr<Context>> create(OpenedDevice& device, Clock& clock,
                                                 const ManagerFactory& factory,
                                                 ManagerObserver* observer = nullptr,
                                                 Profile profile = Profile::standard);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The Context, in this process, of the device that `identity` names; the first made where there
  /// are several. Null where there is none.
  static Context* find(const DeviceIdentity& identity) noexcept;

  // The manager's operations. Each makes sure that initialize() came first (INI-1).
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {});
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags);
  /// Error not_supported, "<device> cannot map host memory", where mapping is asked of one that
  /// cannot (CTX-3).
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner = {});
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach);
  Result<IpcHandle> get_ipc_handle(MemoryView memory);
  Result<MemoryInfo> get_memory_info();
  Status initialize();
  /// manager.reset(), then modules, then this context's own queue (RST-1). Events and streams live
  /// on (OBJ-4).
  void reset();
  /// Defers the manager's cleanup, then this queue's; ends in reverse (DFR-1).
  struct Deferred {
    DeferCleanup manager;
    DeferCleanup own;  ///< Declared last, so it ends first.
  };
  [[nodiscard]] Deferred defer_cleanup();

  // What is not memory. Dropping queues its end, unsized (OBJ-2, OBJ-3).
  Result<EventHandle> create_event();
  void drop_event(EventHandle event) noexcept;
  Result<StreamHandle> create_stream(StreamKind kind = StreamKind::blocking);
  void drop_stream(StreamHandle stream) noexcept;
  Result<LibraryHandle> load_module(std::span<const std::byte> image);
  void unload_module(LibraryHandle library) noexcept;  ///< Nothing where it is not loaded here.

  /// cuCtxPushCurrent, then initialize(); where that fails the context is popped again (CTX-8; in
  /// Profile::numba it stays).
  Status push();
  /// Error invalid_context where the popped one is not this (CTX-10).
  Status pop();
  /// Resets, then cuDevicePrimaryCtxReset: nothing works here afterwards (RST-11).
  Status close();

  MemoryManager& memory_manager() noexcept { return *manager_; }
  PendingDeallocs& deallocations() noexcept { return deallocations_; }
  Driver& driver() noexcept { return driver_; }

 private:
  Context(Driver& driver, Profile profile);
  Status ensure_initialized();
  void unload_modules() noexcept;

  Driver& driver_;
  Profile profile_;
  PendingDeallocs deallocations_;
  std::unique_ptr<MemoryManager> manager_;
  std::mutex mutex_;
  std::list<LibraryHandle> modules_;
  std::atomic<bool> initialized_{false};
};

}  // namespace emm
