#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "base/result.hpp"
#include "driver/device_entry.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/pending_deallocs.hpp"

namespace emm {

/// numba's Context: one device's primary context, its manager, and a separate queue of pending
/// frees of events, streams and modules (OBJ-1). Delegates the manager's operations (CTX-1 to
/// CTX-6), and resets and closes in numba's order (RST-1, RST-11).
///
/// Each Context makes one manager from the factory (SEL-9). Any thread may call. Pointers must end
/// before the Context. The destructor ends the manager, then makes the frees of the queue and
/// unloads the modules that are left. Profile::numba abandons the queue, as numba does at exit
/// (ERR-3).
class Context {
 public:
  /// `device` must outlive the Context. Fails if the factory fails.
  static Result<std::unique_ptr<Context>> create(OpenedDevice& device, Clock& clock,
                                                 const ManagerFactory& factory,
                                                 ManagerObserver* observer = nullptr,
                                                 Profile profile = Profile::standard);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Finds the first Context in this process for the device that `identity` names. Null if there is
  /// none.
  static Context* find(const DeviceIdentity& identity) noexcept;

  // The manager's operations. Each first makes sure that initialize() has run (INI-1).
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {});
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags);
  /// Error not_supported, "<device> cannot map host memory", if the flags ask for a mapping that
  /// the device cannot make (CTX-3).
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner = {});
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach);
  Result<IpcHandle> get_ipc_handle(MemoryView memory);
  Result<MemoryInfo> get_memory_info();
  Status initialize();
  /// Resets the manager, then unloads modules, then makes the frees of this context's queue
  /// (RST-1). Events and streams live on (OBJ-4).
  void reset();
  /// Defers the cleanup of the manager, then of this context's queue. They end in reverse order
  /// (DFR-1).
  struct Deferred {
    DeferCleanup manager;
    DeferCleanup own;  ///< Declared last, so it ends first.
  };
  [[nodiscard]] Deferred defer_cleanup();

  // Events, streams and modules. A drop queues the destruction without a size (OBJ-2, OBJ-3).
  Result<EventHandle> create_event();
  void drop_event(EventHandle event) noexcept;
  Result<StreamHandle> create_stream(StreamKind kind = StreamKind::blocking);
  void drop_stream(StreamHandle stream) noexcept;
  Result<LibraryHandle> load_module(std::span<const std::byte> image);
  void unload_module(LibraryHandle library) noexcept;  ///< Does nothing if not loaded here.

  /// Calls cuCtxPushCurrent, then initialize(). If that fails, pops the context again (CTX-8); in
  /// Profile::numba the context stays.
  Status push();
  /// Pops the current context. Error invalid_context if that is not this one (CTX-10).
  Status pop();
  /// Resets, then calls cuDevicePrimaryCtxReset. The Context cannot be used afterwards (RST-11).
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
