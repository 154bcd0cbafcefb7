#include "emm/context.hpp"

#include <algorithm>
#include <vector>

#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

namespace emm {
namespace {

struct Living {
  std::mutex mutex;
  std::vector<Context*> contexts;
};

Living& living() {
  static auto& all = *new Living;
  return all;
}

}  // namespace

Context::Context(Driver& driver, Profile profile)
    : driver_(driver), profile_(profile), deallocations_(driver, {}, nullptr, profile) {}

Result<std::unique_ptr<Context>> Context::create(OpenedDevice& device, Clock& clock,
                                                 const ManagerFactory& factory,
                                                 ManagerObserver* observer, Profile profile) {
  std::unique_ptr<Context> context(new Context(*device.driver, profile));
  auto manager =
      factory.make({.driver = device.driver.get(),
                    .runtime = device.runtime.get(),
                    .clock = &clock,
                    .observer = observer,
                    .profile = profile,
                    .shown_ordinal = device.shown_ordinal >= 0 ? device.shown_ordinal
                                                               : device.driver->device_ordinal()});
  if (!manager) return std::move(manager).error();
  context->manager_ = *std::move(manager);
  const std::lock_guard lock(living().mutex);
  living().contexts.push_back(context.get());
  return context;
}

Context::~Context() {
  {
    const std::lock_guard lock(living().mutex);
    std::erase(living().contexts, this);
  }
  manager_.reset();
  if (profile_ == Profile::numba) return;
  unload_modules();
  if (!deallocations_.clear()) return;  // the queue counts failures; no caller is left to tell
}

Context* Context::find(const DeviceIdentity& identity) noexcept {
  const std::lock_guard lock(living().mutex);
  const auto found = std::find_if(
      living().contexts.begin(), living().contexts.end(),
      [&](Context* context) { return context->driver().device_identity() == identity; });
  return found == living().contexts.end() ? nullptr : *found;
}

Status Context::initialize() {
  auto done = manager_->initialize();
  if (done) initialized_.store(true, std::memory_order_release);
  return done;
}

Status Context::ensure_initialized() {
  if (initialized_.load(std::memory_order_acquire)) return {};
  return initialize();
}

Result<MemoryPointer> Context::memalloc(std::uint64_t size, StreamHandle stream) {
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->memalloc(size, stream);
}

Result<HostMemory> Context::memhostalloc(std::uint64_t size, HostAllocFlags flags) {
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->memhostalloc(size, flags);
}

Result<HostMemory> Context::mempin(HostRange range, HostRegisterFlags flags,
                                   std::shared_ptr<const void> owner) {
  if (flags.mapped && !driver_.can_map_host_memory()) {
    return fail(Errc::not_supported, "{} cannot map host memory", driver_.device_name());
  }
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->mempin(range, flags, std::move(owner));
}

Result<ManagedMemory> Context::memallocmanaged(std::uint64_t size, AttachFlags attach) {
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->memallocmanaged(size, attach);
}

Result<IpcHandle> Context::get_ipc_handle(MemoryView memory) {
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->get_ipc_handle(memory);
}

Result<MemoryInfo> Context::get_memory_info() {
  if (auto ready = ensure_initialized(); !ready) return std::move(ready).error();
  return manager_->get_memory_info();
}

void Context::reset() {
  manager_->reset();
  unload_modules();
  if (!deallocations_.clear()) return;  // the queue counts failures; reset() returns nothing
}

Context::Deferred Context::defer_cleanup() {
  auto manager = manager_->defer_cleanup();
  return {.manager = std::move(manager), .own = deallocations_.disable()};
}

Result<EventHandle> Context::create_event() {
  auto event = driver_.event_create();
  if (event) deallocations_.reserve_slot();
  return event;
}

// add() answers for the frees that it makes now, which may be others. The queue counts failures.
void Context::drop_event(EventHandle event) noexcept {
  if (!deallocations_.add(Call::event_destroy, event.value, {})) return;
}

Result<StreamHandle> Context::create_stream(StreamKind kind) {
  auto stream = driver_.stream_create(kind);
  if (stream) deallocations_.reserve_slot();
  return stream;
}

void Context::drop_stream(StreamHandle stream) noexcept {
  if (!deallocations_.add(Call::stream_destroy, stream.value, {})) return;
}

Result<LibraryHandle> Context::load_module(std::span<const std::byte> image) {
  auto library = driver_.library_load(image);
  if (!library) return library;
  deallocations_.reserve_slot();
  const std::lock_guard lock(mutex_);
  modules_.push_back(*library);
  return library;
}

void Context::unload_module(LibraryHandle library) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(modules_.begin(), modules_.end(), library);
    if (found == modules_.end()) return;
    modules_.erase(found);
  }
  if (!deallocations_.add(Call::library_unload, library.value, {})) return;
}

void Context::unload_modules() noexcept {
  std::list<LibraryHandle> modules;
  {
    const std::lock_guard lock(mutex_);
    modules.swap(modules_);
  }
  for (const auto library : modules) {
    if (!deallocations_.add(Call::library_unload, library.value, {})) continue;
  }
}

Status Context::push() {
  if (auto pushed = driver_.ctx_push_current(); !pushed) return pushed;
  auto ready = initialize();
  if (ready || profile_ == Profile::numba) return ready;
  if (auto popped = driver_.ctx_pop_current(); !popped) return std::move(popped).error();
  return ready;
}

Status Context::pop() {
  auto popped = driver_.ctx_pop_current();
  if (!popped) return std::move(popped).error();
  if (*popped != driver_.context_handle()) {
    return fail(Errc::invalid_context,
                "the context popped is not this one: expected pops in the reverse order of pushes");
  }
  return {};
}

Status Context::close() {
  reset();
  return driver_.primary_ctx_reset();
}

}  // namespace emm
