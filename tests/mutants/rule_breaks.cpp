#include "rule_breaks.hpp"

#include <vector>

namespace emm::mutants {

using W = WrongManager&;

void misalign(W m, std::uint64_t from, std::uint64_t to, std::uint64_t by) {
  m.on_memalloc = [&m, from, to, by](auto size, auto stream) -> Result<MemoryPointer> {
    if (size < from || size >= to) return m.up->memalloc(size, stream);
    auto memory = m.up->memalloc(size + by, stream);
    if (!memory) return memory;
    const auto ptr = memory->device_pointer() + by;
    return as(*std::move(memory), ptr, size);
  };
}

void round_largest_to_nothing(W m, std::uint64_t by) {
  m.on_memalloc = [&m, by](auto size, auto stream) -> Result<MemoryPointer> {
    if (size < ~std::uint64_t{0} - by) return m.up->memalloc(size, stream);
    auto memory = m.up->memalloc(512, stream);
    if (!memory) return memory;
    const auto ptr = memory->device_pointer();
    return as(*std::move(memory), ptr, size);
  };
}

void flush_at_end_of_deferral(W m, std::uint64_t least) {
  count_guards(m, [&m, least](Guards& guards, std::size_t) {
    if (guards.alive > 0 || m.up->state().pending_count < least) return;
    guards.real.end();
    ignore(m.up->flush());
  });
}

void free_managed_at_once(W m) {
  shell_managed(m, [&m](Shell& shell, StreamHandle stream) {
    shell.end(stream);
    ignore(m.up->flush());
  });
}

void free_host_at_once(W m, bool mapped) {
  shell_hosted(m, mapped, [&m](Shell& shell, StreamHandle stream) {
    shell.end(stream);
    ignore(m.up->flush());
  });
}

void take_host_address_for_device(W m) {
  m.driver->on_mem_host_get_device_pointer = [&m](auto ptr) -> Result<DevicePtr> {
    auto device = m.driver->to.mem_host_get_device_pointer(ptr);
    if (device) device->value = reinterpret_cast<std::uint64_t>(ptr);
    return device;
  };
}

void give_pinned_as_mapped(W m) {
  m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
    auto memory = m.up->memhostalloc(size, flags);
    auto* pinned = memory ? std::get_if<PinnedMemory>(&*memory) : nullptr;
    if (pinned == nullptr) return memory;
    const HostRange range{pinned->host_pointer(), pinned->size()};
    return HostMemory(MappedMemory(range, {reinterpret_cast<std::uint64_t>(range.pointer)},
                                   std::move(*pinned).take_lifetime()));
  };
}

void keep_owners(W m) {
  auto owners = PutOff<std::shared_ptr<const void>>::make();
  m.memory = owners;
  m.on_mempin = [&m, owners = owners.get()](auto range, auto flags, auto owner) {
    owners->add(owner);
    return m.up->mempin(range, flags, std::move(owner));
  };
}

void let_owners_go(W m, bool of_mapped_alone) {
  m.on_mempin = [&m, of_mapped_alone](auto range, auto flags, auto owner) {
    if (!of_mapped_alone || flags.mapped) owner = nullptr;
    return m.up->mempin(range, flags, std::move(owner));
  };
}

void leave_regions_in_reset(W m) {
  auto resetting = remembers(false);
  m.driver->on_mem_host_unregister = [&m, resetting](HostPtr ptr) -> Status {
    return *resetting ? Status() : m.driver->to.mem_host_unregister(ptr);
  };
  m.on_reset = [&m, resetting] {
    *resetting = true;
    m.up->reset();
    *resetting = false;
  };
}

void leave_unmappable_registered(W m) {
  auto unmapped = remembers<HostPtr>(nullptr);
  m.driver->on_mem_host_get_device_pointer = [&m, unmapped](auto ptr) {
    auto device = m.driver->to.mem_host_get_device_pointer(ptr);
    if (!device) *unmapped = ptr;
    return device;
  };
  m.driver->on_mem_host_unregister = [&m, unmapped](auto ptr) {
    if (ptr == std::exchange(*unmapped, nullptr)) return Status();
    return m.driver->to.mem_host_unregister(ptr);
  };
}

void swap_free_and_total(W m) {
  m.on_get_memory_info = [&m]() -> Result<MemoryInfo> {
    auto info = m.up->get_memory_info();
    if (info) std::swap(info->free, info->total);
    return info;
  };
}

void change_exports(W m, Hook<IpcHandle::Fields(MemoryView, IpcHandle::Fields)> change) {
  m.on_get_ipc_handle = [&m, change = std::move(change)](MemoryView view) -> Result<IpcHandle> {
    auto handle = m.up->get_ipc_handle(view);
    if (!handle) return handle;
    return IpcHandle::exported(change(view, handle->fields()));
  };
}

void export_no_offset(W m) {
  change_exports(m, [](auto, auto fields) {
    fields.offset = 0;
    return fields;
  });
}

}  // namespace emm::mutants
