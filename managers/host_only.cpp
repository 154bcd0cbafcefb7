#include "managers/host_only.hpp"

#include "base/text.hpp"
#include "driver/call.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<MemoryManager>> make_host_only(const ManagerContext& context,
                                                      Options options) {
  constexpr std::string_view kOwner = "manager host-only";
  const auto settings = HostOnlyManager::read_settings(context, options, kOwner);
  if (!settings) return settings.error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return std::make_unique<HostOnlyManager>(context, *settings);
}

std::uint64_t address_of(HostPtr pointer) noexcept {
  return reinterpret_cast<std::uint64_t>(pointer);
}
HostPtr pointer_of(std::uint64_t number) noexcept { return reinterpret_cast<HostPtr>(number); }

}  // namespace

extern constinit const ManagerEntry host_only_manager{
    .name = "host-only",
    .summary = "Page-locked and managed memory with deferred deallocation; declines device memory",
    .options = HostOnlyManager::kOptions,
    .promise = Promise::host_only,
    .device_memory = false,
    .variants = {"profile=numba"},
    .make = make_host_only,
};

Error address_is_alive(std::uint64_t address) {
  return fail(Errc::driver_error, "key already in dictionary: {}", text::hex(address));
}

Result<HostOnlyManager::Settings> HostOnlyManager::read_settings(const ManagerContext& context,
                                                                 Options& options,
                                                                 std::string_view owner) {
  Settings settings;
  const auto otherwise = context.profile == Profile::numba ? "numba" : "standard";
  const auto profile = options.choice("profile", otherwise, {"standard", "numba"});
  settings.profile = profile == "numba" ? Profile::numba : Profile::standard;
  settings.limits.count = options.count("count", settings.limits.count);
  settings.limits.ratio = options.number("ratio", settings.limits.ratio);
  if (!(settings.limits.ratio >= 0)) {
    return fail(Errc::usage, "{}: option 'ratio' is {}: expected a number from 0 up", owner,
                settings.limits.ratio);
  }
  const auto capacity = options.bytes("capacity", 0);
  if (options.has("capacity")) settings.capacity = capacity;
  return settings;
}

HostOnlyManager::HostOnlyManager(const ManagerContext& context, const Settings& settings)
    : driver_(context.driver),
      observer_(context.observer),
      profile_(settings.profile),
      deallocations_(context.driver, settings.limits, &observer_, settings.profile) {
  if (settings.capacity) deallocations_.set_memory_capacity(*settings.capacity);
}

HostOnlyManager::~HostOnlyManager() {
  if (profile_ == Profile::standard) HostOnlyManager::reset();
}

Status HostOnlyManager::initialize() {
  if (profile_ == Profile::numba || deallocations_.memory_capacity()) return {};
  const auto info = driver_->mem_get_info();
  if (!info) return info.error();
  deallocations_.set_memory_capacity(info->total);
  return {};
}

Result<MemoryPointer> HostOnlyManager::memalloc(std::uint64_t, StreamHandle) {
  return fail(Errc::not_supported, "the host-only manager has no device memory");
}

Result<HostMemory> HostOnlyManager::memhostalloc(std::uint64_t size, HostAllocFlags flags) {
  const auto attempt = [&] { return driver_->mem_host_alloc(size, flags); };
  const auto retries = flags.mapped || profile_ == Profile::standard;  // HST-3
  auto pointer = retries ? attempt_allocation(attempt) : attempt();
  if (!pointer) return std::move(pointer).error();

  const HostRange range{.pointer = *pointer, .size = size};
  const auto kind = flags.mapped ? MemoryKind::host_mapped : MemoryKind::host_pinned;
  DevicePtr on_device;
  if (flags.mapped) {
    auto address = driver_->mem_host_get_device_pointer(range.pointer);
    if (!address) {  // HST-7
      if (auto freed = driver_->mem_free_host(range.pointer); !freed) tell(freed.error());
      return std::move(address).error();
    }
    on_device = *address;
  }
  auto lifetime = hand_out({.address = address_of(range.pointer), .size = size, .kind = kind});
  if (!lifetime) return std::move(lifetime).error();
  if (flags.mapped) return HostMemory(MappedMemory(range, on_device, *std::move(lifetime)));
  return HostMemory(PinnedMemory(range, *std::move(lifetime)));
}

Result<HostMemory> HostOnlyManager::mempin(HostRange range, HostRegisterFlags flags,
                                           std::shared_ptr<const void> owner) {
  const auto attempt = [&] { return driver_->mem_host_register(range, flags); };
  const auto retries = flags.mapped || profile_ == Profile::standard;  // PIN-2
  if (auto done = retries ? attempt_allocation(attempt) : attempt(); !done)
    return std::move(done).error();

  const auto undo = [&](Error error) {  // PIN-8
    if (auto undone = driver_->mem_host_unregister(range.pointer); !undone) tell(undone.error());
    return error;
  };
  const auto kind = flags.mapped ? MemoryKind::pinned_mapped : MemoryKind::pinned;
  DevicePtr on_device;
  if (flags.mapped) {
    auto address = driver_->mem_host_get_device_pointer(range.pointer);
    if (!address) return undo(std::move(address).error());
    on_device = *address;
  }
  auto lifetime =
      hand_out({.address = address_of(range.pointer), .size = range.size, .kind = kind});
  if (!lifetime) return undo(std::move(lifetime).error());
  if (flags.mapped)
    return HostMemory(MappedMemory(range, on_device, *std::move(lifetime), std::move(owner)));
  return HostMemory(PinnedMemory(range, *std::move(lifetime), std::move(owner)));
}

Result<ManagedMemory> HostOnlyManager::memallocmanaged(std::uint64_t size, AttachFlags attach) {
  auto ptr = attempt_allocation([&] { return driver_->mem_alloc_managed(size, attach); });
  if (!ptr) return std::move(ptr).error();
  auto lifetime = hand_out({.address = ptr->value, .size = size, .kind = MemoryKind::managed});
  if (!lifetime) return std::move(lifetime).error();
  return ManagedMemory(MemoryPointer(*ptr, size, *std::move(lifetime)));
}

Result<IpcHandle> HostOnlyManager::get_ipc_handle(MemoryView) {
  return fail(Errc::not_supported, "the host-only manager exports no memory");
}

Result<MemoryInfo> HostOnlyManager::get_memory_info() { return driver_->mem_get_info(); }

void HostOnlyManager::reset() noexcept {
  std::unique_lock lock(mutex_);
  epoch_.advance();
  const auto mark = records_.mark();
  while (const auto record = records_.take_first(mark)) {
    lock.unlock();
    end(*record);
    lock.lock();
  }
  lock.unlock();
  if (!deallocations_.clear()) return;  // the observer knows; reset() returns nothing
}

DeferCleanup HostOnlyManager::defer_cleanup() { return deallocations_.disable(); }

Status HostOnlyManager::flush() { return deallocations_.clear(); }

ManagerState HostOnlyManager::state() const {
  const std::lock_guard lock(mutex_);
  return {.live_bytes = records_.device_bytes(),
          .reserved_bytes = driver_->held_bytes(),
          .largest_free_bytes = {},
          .pending_count = deallocations_.size(),
          .pending_bytes = deallocations_.bytes()};
}

bool HostOnlyManager::survives_reset(MemoryKind kind) const noexcept {
  return profile_ == Profile::numba &&
         (kind == MemoryKind::host_pinned || kind == MemoryKind::pinned);
}

Result<Lifetime> HostOnlyManager::hand_out(const LiveRecord& record) {
  const auto queued = record.kind != MemoryKind::pinned && record.kind != MemoryKind::pinned_mapped;
  if (queued) deallocations_.reserve_slot();
  const auto survives = survives_reset(record.kind);
  const std::lock_guard lock(mutex_);
  const auto cookie = (survives ? unrecorded_ : records_).add(record);
  if (!cookie) {
    if (queued) deallocations_.release_slot();
    return address_is_alive(record.address);
  }
  const Finalizer finalizer{
      .run = survives ? finalize_unrecorded : finalize_recorded, .self = this, .cookie = *cookie};
  return Lifetime(finalizer, (survives ? life_ : epoch_).mark());
}

void HostOnlyManager::finalize_recorded(void* self, std::uint64_t cookie, StreamHandle) noexcept {
  auto& manager = *static_cast<HostOnlyManager*>(self);
  std::unique_lock lock(manager.mutex_);
  const auto record = manager.records_.take(cookie);
  lock.unlock();
  if (record) manager.end(*record);
}

void HostOnlyManager::finalize_unrecorded(void* self, std::uint64_t cookie, StreamHandle) noexcept {
  auto& manager = *static_cast<HostOnlyManager*>(self);
  std::unique_lock lock(manager.mutex_);
  const auto record = manager.unrecorded_.take(cookie);
  lock.unlock();
  if (record) manager.end(*record);
}

// add() answers for whichever frees the queue makes at that moment, so its answer is dropped. The
// observer hears of failures.
void HostOnlyManager::end(const LiveRecord& record) noexcept {
  switch (record.kind) {
    case MemoryKind::device:
    case MemoryKind::managed:
      if (!deallocations_.add(Call::mem_free, record.address, record.size)) return;
      return;
    case MemoryKind::host_mapped:
      if (!deallocations_.add(Call::mem_free_host, record.address, record.size)) return;
      return;
    case MemoryKind::host_pinned: {
      std::optional<std::uint64_t> counted;
      if (profile_ == Profile::standard) counted = record.size;  // HST-8
      if (!deallocations_.add(Call::mem_free_host, record.address, counted)) return;
      return;
    }
    case MemoryKind::pinned_mapped:
    case MemoryKind::pinned:
      if (auto done = driver_->mem_host_unregister(pointer_of(record.address)); !done)
        tell(done.error());
      return;
  }
}

}  // namespace emm
