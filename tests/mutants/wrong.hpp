#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "conformance/subject.hpp"
#include "driver/decorate/forwarding_driver.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"

namespace emm::mutants {

using conformance::Scope;

/// What a wrong manager does instead. Like std::function, for which a compiler takes three times as
/// long: the mutants have four hundred. Copies share what was captured.
template <typename Signature>
class Hook;
template <typename R, typename... Arguments>
class Hook<R(Arguments...)> {
 public:
  Hook() = default;
  Hook(std::nullptr_t) {}
  template <typename F>
  Hook(F function) : held_(static_cast<Held*>(new Holder<F>(std::move(function)))) {}

  explicit operator bool() const { return held_ != nullptr; }
  R operator()(Arguments... arguments) const {
    return held_->call(std::forward<Arguments>(arguments)...);
  }

 private:
  struct Held {
    virtual ~Held() = default;
    virtual R call(Arguments... arguments) = 0;
  };
  template <typename F>
  struct Holder final : Held {
    explicit Holder(F&& given) : function(std::move(given)) {}
    R call(Arguments... arguments) override {
      return function(std::forward<Arguments>(arguments)...);
    }
    F function;
  };
  std::shared_ptr<Held> held_;
};

/// The driver that a wrong manager stands on: each call that is set does something else than the
/// device's. `to` is the device's own.
class WrongDriver final : public ForwardingDriver {
 public:
  explicit WrongDriver(Driver& inner) noexcept : ForwardingDriver(inner, none()), to(inner) {}

  Driver& to;
  bool can_map = false;  ///< Says that the device maps host memory.
  Hook<Result<DevicePtr>(std::uint64_t)> on_mem_alloc;
  Hook<Status(DevicePtr)> on_mem_free;
  Hook<Status(DevicePtr, StreamHandle)> on_mem_free_async;
  Hook<Result<DevicePtr>(std::uint64_t, AttachFlags)> on_mem_alloc_managed;
  Hook<Result<HostPtr>(std::uint64_t, HostAllocFlags)> on_mem_host_alloc;
  Hook<Status(HostPtr)> on_mem_free_host;
  Hook<Status(HostRange, HostRegisterFlags)> on_mem_host_register;
  Hook<Status(HostPtr)> on_mem_host_unregister;
  Hook<Result<DevicePtr>(HostPtr)> on_mem_host_get_device_pointer;
  Hook<Result<MemoryInfo>()> on_mem_get_info;
  Hook<Result<AddressRange>(DevicePtr)> on_mem_get_address_range;
  Hook<Result<IpcMemHandle>(DevicePtr)> on_ipc_get_mem_handle;
  Hook<Status()> on_ctx_push_current;
  Hook<Result<ContextHandle>()> on_ctx_pop_current;
  Hook<Status()> on_primary_ctx_reset;
  Hook<Status(EventHandle)> on_event_destroy;
  Hook<Status(LibraryHandle)> on_library_unload;
  Hook<Result<PhysicalHandle>(std::uint64_t)> on_mem_create;
  Hook<Status(PhysicalHandle)> on_mem_release;
  Hook<Status(DevicePtr, std::uint64_t, PhysicalHandle)> on_mem_map;
  Hook<Status(DevicePtr, std::uint64_t)> on_mem_set_access;
  Hook<Status(DevicePtr, std::uint64_t)> on_mem_unmap;
  Hook<Status(StreamHandle)> on_stream_synchronize;
  Hook<Status(StreamHandle, EventHandle)> on_stream_wait_event;
  Hook<Status()> on_ctx_synchronize;

  Result<DevicePtr> mem_alloc(std::uint64_t size) override {
    return on_mem_alloc ? on_mem_alloc(size) : to.mem_alloc(size);
  }
  Status mem_free(DevicePtr ptr) override {
    return on_mem_free ? on_mem_free(ptr) : to.mem_free(ptr);
  }
  Status mem_free_async(DevicePtr ptr, StreamHandle stream) override {
    return on_mem_free_async ? on_mem_free_async(ptr, stream) : to.mem_free_async(ptr, stream);
  }
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) override {
    return on_mem_alloc_managed ? on_mem_alloc_managed(size, attach)
                                : to.mem_alloc_managed(size, attach);
  }
  Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) override {
    return on_mem_host_alloc ? on_mem_host_alloc(size, flags) : to.mem_host_alloc(size, flags);
  }
  Status mem_free_host(HostPtr ptr) override {
    return on_mem_free_host ? on_mem_free_host(ptr) : to.mem_free_host(ptr);
  }
  Status mem_host_register(HostRange range, HostRegisterFlags flags) override {
    return on_mem_host_register ? on_mem_host_register(range, flags)
                                : to.mem_host_register(range, flags);
  }
  Status mem_host_unregister(HostPtr ptr) override {
    return on_mem_host_unregister ? on_mem_host_unregister(ptr) : to.mem_host_unregister(ptr);
  }
  Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) override {
    return on_mem_host_get_device_pointer ? on_mem_host_get_device_pointer(ptr)
                                          : to.mem_host_get_device_pointer(ptr);
  }
  bool can_map_host_memory() const noexcept override { return can_map || to.can_map_host_memory(); }
  Result<PhysicalHandle> mem_create(std::uint64_t size) override {
    return on_mem_create ? on_mem_create(size) : to.mem_create(size);
  }
  Status mem_release(PhysicalHandle handle) override {
    return on_mem_release ? on_mem_release(handle) : to.mem_release(handle);
  }
  Status mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                 PhysicalHandle handle) override {
    return on_mem_map ? on_mem_map(ptr, size, handle) : to.mem_map(ptr, size, offset, handle);
  }
  Status mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) override {
    return on_mem_set_access ? on_mem_set_access(ptr, size) : to.mem_set_access(ptr, size, access);
  }
  Status mem_unmap(DevicePtr ptr, std::uint64_t size) override {
    return on_mem_unmap ? on_mem_unmap(ptr, size) : to.mem_unmap(ptr, size);
  }
  Result<MemoryInfo> mem_get_info() override {
    return on_mem_get_info ? on_mem_get_info() : to.mem_get_info();
  }
  Result<AddressRange> mem_get_address_range(DevicePtr ptr) override {
    return on_mem_get_address_range ? on_mem_get_address_range(ptr) : to.mem_get_address_range(ptr);
  }
  Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr) override {
    return on_ipc_get_mem_handle ? on_ipc_get_mem_handle(ptr) : to.ipc_get_mem_handle(ptr);
  }
  Status ctx_push_current() override {
    return on_ctx_push_current ? on_ctx_push_current() : to.ctx_push_current();
  }
  Result<ContextHandle> ctx_pop_current() override {
    return on_ctx_pop_current ? on_ctx_pop_current() : to.ctx_pop_current();
  }
  Status primary_ctx_reset() override {
    return on_primary_ctx_reset ? on_primary_ctx_reset() : to.primary_ctx_reset();
  }
  Status event_destroy(EventHandle event) override {
    return on_event_destroy ? on_event_destroy(event) : to.event_destroy(event);
  }
  Status stream_synchronize(StreamHandle stream) override {
    return on_stream_synchronize ? on_stream_synchronize(stream) : to.stream_synchronize(stream);
  }
  Status stream_wait_event(StreamHandle stream, EventHandle event) override {
    return on_stream_wait_event ? on_stream_wait_event(stream, event)
                                : to.stream_wait_event(stream, event);
  }
  Status ctx_synchronize() override {
    return on_ctx_synchronize ? on_ctx_synchronize() : to.ctx_synchronize();
  }
  Status library_unload(LibraryHandle library) override {
    return on_library_unload ? on_library_unload(library) : to.library_unload(library);
  }

 private:
  static CallHook& none() noexcept;
};

/// A manager over another, in which each method that is set does something else. `up` is the other.
/// A probe is not wrong. What is not set is the other's.
class WrongManager final : public MemoryManager {
 public:
  ~WrongManager() override {
    if (on_ending) on_ending();
    up.reset();
  }

  std::unique_ptr<WrongDriver> driver;  ///< Null in a probe. Outlives `up`.
  ManagerContext context;               ///< As `up` was given it: its driver is `driver`.
  std::unique_ptr<MemoryManager> up;
  std::shared_ptr<void> memory;  ///< What the wrong one has to remember.

  Hook<Status()> on_initialize;
  Hook<Result<MemoryPointer>(std::uint64_t, StreamHandle)> on_memalloc;
  Hook<Result<HostMemory>(std::uint64_t, HostAllocFlags)> on_memhostalloc;
  Hook<Result<HostMemory>(HostRange, HostRegisterFlags, std::shared_ptr<const void>)> on_mempin;
  Hook<Result<ManagedMemory>(std::uint64_t, AttachFlags)> on_memallocmanaged;
  Hook<Result<IpcHandle>(MemoryView)> on_get_ipc_handle;
  Hook<Result<MemoryInfo>()> on_get_memory_info;
  Hook<void()> on_reset;
  Hook<DeferCleanup()> on_defer_cleanup;
  Hook<Status()> on_flush;
  Hook<Status(std::uint64_t)> on_trim;
  Hook<ManagerState()> on_state;
  Hook<MemoryStatistics()> on_statistics;
  Hook<void()> on_ending;  ///< Before `up` ends.
  int version = kInterfaceVersion;

  Status initialize() override { return on_initialize ? on_initialize() : up->initialize(); }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    return on_memalloc ? on_memalloc(size, stream) : up->memalloc(size, stream);
  }
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    return on_memhostalloc ? on_memhostalloc(size, flags) : up->memhostalloc(size, flags);
  }
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner) override {
    return on_mempin ? on_mempin(range, flags, std::move(owner))
                     : up->mempin(range, flags, std::move(owner));
  }
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach) override {
    return on_memallocmanaged ? on_memallocmanaged(size, attach)
                              : up->memallocmanaged(size, attach);
  }
  Result<IpcHandle> get_ipc_handle(MemoryView view) override {
    return on_get_ipc_handle ? on_get_ipc_handle(view) : up->get_ipc_handle(view);
  }
  Result<MemoryInfo> get_memory_info() override {
    return on_get_memory_info ? on_get_memory_info() : up->get_memory_info();
  }
  void reset() noexcept override { on_reset ? on_reset() : up->reset(); }
  DeferCleanup defer_cleanup() override {
    return on_defer_cleanup ? on_defer_cleanup() : up->defer_cleanup();
  }
  int interface_version() const noexcept override { return version; }
  MemoryStatistics statistics() const override {
    return on_statistics ? on_statistics() : up->statistics();
  }
  Status flush() override { return on_flush ? on_flush() : up->flush(); }
  Status trim(std::uint64_t keep) override { return on_trim ? on_trim(keep) : up->trim(keep); }
  ManagerState state() const override { return on_state ? on_state() : up->state(); }
};

struct Shell;
using OnEnd = Hook<void(Shell&, StreamHandle)>;
/// What happens, instead of the end of `up`, when a pointer ends.
struct Shell {
  Lifetime up;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  OnEnd on_end;

  void end(StreamHandle stream = {}) {
    if (!up.free(stream)) up = {};  // a reset was first
  }
};
Lifetime in_shell(Shell shell, Epoch::Mark mark);
/// Wraps the same memory so that its end is `on_end`'s business. Where no mark is given, a reset or
/// the manager's end ends it as it would have without.
MemoryPointer in_shell(MemoryPointer memory, OnEnd on_end);
ManagedMemory in_shell(ManagedMemory memory, OnEnd on_end);
HostMemory in_shell(HostMemory memory, OnEnd on_end, std::shared_ptr<const void> owner = {});

/// These wrap the memory of every request of `manager` of this kind in a shell.
void shell_memalloc(WrongManager& manager, OnEnd on_end);
void shell_managed(WrongManager& manager, OnEnd on_end);
void shell_hosted(WrongManager& manager, bool mapped, OnEnd on_end);
void shell_pinned(WrongManager& manager, OnEnd on_end);

/// How deferrals stand, of a manager whose guards are these.
struct Guards {
  std::recursive_mutex mutex;  ///< Of what follows; threads defer at once.
  std::size_t alive = 0;
  DeferCleanup real;
};
/// Counts the guards of `manager`, of which the upstream sees one. `on_leave` hears of the end of
/// each guard before the last one ends that: 0 for the guard that began last, else its number.
std::shared_ptr<Guards> count_guards(WrongManager& manager,
                                     Hook<void(Guards&, std::size_t)> on_leave = {});

/// One wrong manager: `clause` must fail on it, and of the others only those that may fail with it.
struct Mutant {
  std::string_view clause;
  std::string_view wrong;                         ///< What it does, in a sentence.
  std::string_view over = "default";              ///< The manager that it is made of, with options.
  void (*make)(WrongManager& manager) = nullptr;  ///< Null: the options are what is wrong.
};

std::span<const Mutant> all_mutants();

/// `factory`, with a wrong manager over each that it makes for a device.
ManagerFactory wrong_factory(ManagerFactory factory, Hook<void(WrongManager&)> make);

/// Who is judged when a mutant is.
conformance::Subject subject_of(const Mutant& mutant);

}  // namespace emm::mutants
