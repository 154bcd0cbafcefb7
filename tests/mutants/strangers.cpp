#include "strangers.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "driver/call.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "rule_breaks.hpp"

// Written from the contract's text and from what goes wrong in real managers, before anybody looked
// at the clauses.

namespace emm::mutants {
namespace {

using W = WrongManager&;

/// What any thread may count.
struct Count {
  std::mutex mutex;
  std::uint64_t n = 0;
  std::uint64_t next() {
    const std::lock_guard lock(mutex);
    return ++n;
  }
};
std::shared_ptr<Count> counts() { return std::make_shared<Count>(); }

/// What is alive, by address; any thread.
struct Live {
  std::mutex mutex;
  std::map<std::uint64_t, std::uint64_t> sizes;
};

Error native(std::int32_t code) { return driver_error(Call::mem_alloc, code); }

const Stranger kStrangers[] = {
    // Addresses, sizes and content.
    {"aligns 3000 bytes to 16", "default", [](W m) { misalign(m, 3000, 3001, 16); }},
    {"aligns to 128 from 1 MiB to 2 MiB", "pool", [](W m) { misalign(m, 1_MiB, 2_MiB, 128); }},
    {"aligns requests below 9 bytes to 8", "pool", [](W m) { misalign(m, 1, 9, 8); }},
    {"says the size that it rounded to", "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         return as(*std::move(memory), ptr, (size + 511) & ~std::uint64_t{511});
       };
     }},
    {"writes a zero behind blocks of odd sizes", "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory && size % 2 == 1)
           ignore(m.driver->to.memset_d8(memory->device_pointer() + size / 512 * 512 + 512, 0, 1));
         return memory;
       };
     }},
    {"clears a block when another of its size ends", "default",
     [](W m) {
       auto last = remembers(std::map<std::uint64_t, DevicePtr>());
       auto mutex = std::make_shared<std::mutex>();
       m.on_memalloc = [&m, last, mutex](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const std::lock_guard lock(*mutex);
         const auto ptr = memory->device_pointer();
         (*last)[size] = ptr;
         return in_shell(*std::move(memory), [&m, last, mutex, ptr](Shell& shell, StreamHandle on) {
           {
             const std::lock_guard ending(*mutex);
             auto& other = (*last)[shell.size];
             if (other && other.value != ptr.value)
               ignore(m.driver->to.memset_d8(other, 0, std::min<std::uint64_t>(shell.size, 64)));
           }
           shell.end(on);
         });
       };
     }},
    {"gives all requests of 1 byte one address", "default",
     [](W m) {
       auto one = remembers<std::optional<DevicePtr>>();
       m.on_memalloc = [&m, one](auto size, auto stream) -> Result<MemoryPointer> {
         if (size != 1 || !m.driver) return m.up->memalloc(size, stream);
         if (!*one) {
           auto ptr = m.driver->to.mem_alloc(1);
           if (!ptr) return std::move(ptr).error();
           *one = *ptr;
         }
         return MemoryPointer(**one, size);
       };
       m.on_ending = [&m, one] {
         if (*one && m.driver) ignore(m.driver->to.mem_free(**one));
       };
     }},
    {"rounds sizes near 2^64 to nothing much", "pool",
     [](W m) { round_largest_to_nothing(m, 511); }},
    {"gives what lies 1 byte into its neighbour from 16 MiB on", "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory || size < 16_MiB) return memory;
         const auto ptr = memory->device_pointer();
         return as(*std::move(memory), {ptr.value - 1}, size);
       };
     }},
    {"zeroes the last page of a block once it is flushed", "default",
     [](W m) {
       m.driver->on_mem_free = [&m](DevicePtr ptr) {
         const auto range = m.driver->to.mem_get_address_range({ptr.value - 1});
         if (range) ignore(m.driver->to.memset_d8(range->base, 0, 1));
         return m.driver->to.mem_free(ptr);
       };
     }},

    // Out of memory.
    {"leaks a block at the third out of memory", "default",
     [](W m) {
       auto outs = counts();
       m.on_memalloc = [&m, outs](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (!memory && memory.error().code == Errc::out_of_memory && outs->next() == 3 &&
             !m.driver->to.mem_alloc(4_KiB))
           outs->next();
         return memory;
       };
     }},
    {"refuses all after one out of memory", "default",
     [](W m) {
       auto out = remembers(false);
       m.on_memalloc = [&m, out](auto size, auto stream) -> Result<MemoryPointer> {
         if (*out) return native(2);
         auto memory = m.up->memalloc(size, stream);
         *out = !memory && memory.error().code == Errc::out_of_memory;
         return memory;
       };
     }},
    {"says invalid value where managed memory is out", "default",
     [](W m) {
       m.on_memallocmanaged = [&m](auto size, auto attach) -> Result<ManagedMemory> {
         auto memory = m.up->memallocmanaged(size, attach);
         if (!memory && memory.error().code == Errc::out_of_memory) return native(1);
         return memory;
       };
     }},
    {"loses the driver's code where memory is out", "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory && memory.error().code == Errc::out_of_memory)
           return Error{.code = Errc::driver_error, .message = "no memory"};
         return memory;
       };
     }},
    {"asks three times where memory is out", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory || memory.error().code != Errc::out_of_memory) return memory;
         return m.up->memalloc(size, stream);
       };
     }},
    {"ends a deferral where memory is out", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_memalloc = [&m, guards](auto size, auto stream) {
         const std::lock_guard lock(guards->mutex);
         auto memory = m.up->memalloc(size, stream);
         if (memory || memory.error().code != Errc::out_of_memory || guards->alive == 0)
           return memory;
         guards->real.end();
         memory = m.up->memalloc(size, stream);
         guards->real = m.up->defer_cleanup();
         return memory;
       };
     }},
    {"gives managed memory for device memory above 32 MiB", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         return size > 32_MiB ? m.driver->to.mem_alloc_managed(size, AttachFlags::global)
                              : m.driver->to.mem_alloc(size);
       };
     }},
    {"frees nothing before it asks for mapped memory again", "host-only",
     [](W m) {
       m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
         const auto held = m.up->defer_cleanup();
         return m.up->memhostalloc(size, flags);
       };
     }},
    {"frees nothing before it asks for managed memory again", "host-only",
     [](W m) {
       m.on_memallocmanaged = [&m](auto size, auto attach) -> Result<ManagedMemory> {
         const auto held = m.up->defer_cleanup();
         return m.up->memallocmanaged(size, attach);
       };
     }},

    // Deferring.
    {"flushes in a deferral what another thread frees", "default",
     [](W m) {
       auto by = remembers(std::this_thread::get_id());
       auto guards = count_guards(m);
       shell_memalloc(m, [&m, by, guards](Shell& shell, StreamHandle on) {
         const std::lock_guard lock(guards->mutex);
         shell.end(on);
         if (guards->alive == 0 || std::this_thread::get_id() == *by) return;
         guards->real.end();
         ignore(m.up->flush());
         guards->real = m.up->defer_cleanup();
       });
     }},
    {"forgets a deferral in a reset", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_reset = [&m, guards] {
         const std::lock_guard lock(guards->mutex);
         guards->real.end();
         m.up->reset();
       };
     }},
    {"ignores a deferral that ends on another thread", "default",
     [](W m) {
       const auto by = std::this_thread::get_id();
       auto kept = std::make_shared<std::vector<DeferCleanup>>();  // `Guards` has the lock
       count_guards(m, [&m, by, kept](Guards&, std::size_t) {
         if (std::this_thread::get_id() != by) kept->push_back(m.up->defer_cleanup());
       });
       m.on_ending = [kept] { kept->clear(); };
     }},
    {"flushes where a deferral ends", "default", [](W m) { flush_at_end_of_deferral(m, 0); }},
    {"flushes at initialize in a deferral", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_initialize = [&m, guards] {
         const std::lock_guard lock(guards->mutex);
         auto done = m.up->initialize();
         if (guards->alive != 0) {
           guards->real.end();
           ignore(m.up->flush());
           guards->real = m.up->defer_cleanup();
         }
         return done;
       };
     }},
    {"flushes where memory info is asked for", "default",
     [](W m) {
       m.on_get_memory_info = [&m] {
         ignore(m.up->flush());
         return m.up->get_memory_info();
       };
     }},
    {"flushes where an IPC handle is asked for", "default",
     [](W m) {
       m.on_get_ipc_handle = [&m](auto view) {
         ignore(m.up->flush());
         return m.up->get_ipc_handle(view);
       };
     }},
    {"ends small blocks at once in a deferral", "default",
     [](W m) {
       auto guards = count_guards(m);
       shell_memalloc(m, [&m, guards](Shell& shell, StreamHandle on) {
         const std::lock_guard lock(guards->mutex);
         shell.end(on);
         if (shell.size >= 64 || guards->alive == 0) return;
         guards->real.end();
         ignore(m.up->flush());
         guards->real = m.up->defer_cleanup();
       });
     }},
    {"unpins mapped regions late in a deferral", "default",
     [](W m) {
       auto waiting = PutOff<HostPtr>::make();
       auto guards = count_guards(m, [&m, waiting](Guards& now, std::size_t) {
         if (now.alive != 0) return;
         for (const auto ptr : waiting->take()) ignore(m.driver->to.mem_host_unregister(ptr));
       });
       m.driver->on_mem_host_unregister = [&m, guards, waiting](HostPtr ptr) -> Status {
         const std::lock_guard lock(guards->mutex);
         if (guards->alive == 0) return m.driver->to.mem_host_unregister(ptr);
         waiting->add(ptr);
         return {};
       };
     }},

    // The queue.
    {"lets eleven wait", "default",
     [](W m) {
       auto held = std::make_shared<std::vector<DeferCleanup>>();
       auto mutex = std::make_shared<std::recursive_mutex>();
       shell_memalloc(m, [&m, held, mutex](Shell& shell, StreamHandle on) {
         const std::lock_guard lock(*mutex);
         const auto waiting = m.up->state().pending_count.value_or(0);
         if (waiting == 10 && held->empty()) held->push_back(m.up->defer_cleanup());
         shell.end(on);
         if (waiting >= 11) held->clear(), ignore(m.up->flush());
       });
       m.on_ending = [held] { held->clear(); };
     }},
    {"flushes at the tenth", "default",
     [](W m) {
       shell_memalloc(m, [&m](Shell& shell, StreamHandle on) {
         shell.end(on);
         if (m.up->state().pending_count.value_or(0) == 10) ignore(m.up->flush());
       });
     }},
    {"flushes where as much waits as may", "default",
     [](W m) {
       shell_memalloc(m, [&m](Shell& shell, StreamHandle on) {
         shell.end(on);
         const auto info = m.driver->to.mem_get_info();
         if (info && m.up->state().pending_bytes.value_or(0) == info->total / 5)
           ignore(m.up->flush());
       });
     }},
    {"takes what is free for the capacity", "default",
     [](W m) {
       m.driver->on_mem_get_info = [&m]() -> Result<MemoryInfo> {
         auto info = m.driver->to.mem_get_info();
         if (info) info->total = info->free;
         return info;
       };
     }},
    {"frees the newest first", "default",
     [](W m) {
       auto collecting = remembers(false);
       auto waiting = PutOff<DevicePtr>::make();
       m.driver->on_mem_free = [&m, collecting, waiting](DevicePtr ptr) -> Status {
         if (!*collecting) return m.driver->to.mem_free(ptr);
         waiting->add(ptr);
         return {};
       };
       shell_memalloc(m, [&m, collecting, waiting](Shell& shell, StreamHandle on) {
         *collecting = true;
         shell.end(on);
         *collecting = false;
         const auto all = waiting->take();
         for (auto at = all.rbegin(); at != all.rend(); ++at) ignore(m.driver->to.mem_free(*at));
       });
     }},
    {"frees mapped memory at once", "default", [](W m) { free_host_at_once(m, true); }},
    {"frees managed memory at once", "default", free_managed_at_once},
    {"tries a free that failed again at the next flush", "default",
     [](W m) {
       auto failed = PutOff<DevicePtr>::make();
       m.driver->on_mem_free = [&m, failed](DevicePtr ptr) {
         for (const auto one : failed->take()) ignore(m.driver->to.mem_free(one));
         auto done = m.driver->to.mem_free(ptr);
         if (!done) failed->add(ptr);
         return done;
       };
     }},
    {"says one less of what waits", "default",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         if (state.pending_count.value_or(0) > 0) --*state.pending_count;
         return state;
       };
     }},
    {"flushes on any error of a request", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (!memory && memory.error().code != Errc::out_of_memory) ignore(m.up->flush());
         return memory;
       };
     }},

    // Reset and the end.
    {"forgets pinned regions in a reset", "default", leave_regions_in_reset},
    {"forgets pinned memory in a reset", "default",
     [](W m) {
       auto resetting = remembers(false);
       m.on_reset = [&m, resetting] {
         *resetting = true;
         m.up->reset();
         *resetting = false;
       };
       m.driver->on_mem_free_host = [&m, resetting](HostPtr ptr) -> Status {
         return *resetting ? Status() : m.driver->to.mem_free_host(ptr);
       };
     }},
    {"frees by address after a reset, whoever lives there", "default",
     [](W m) {
       auto live = std::make_shared<Live>();
       m.on_memalloc = [&m, live](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         auto* driver = &m.driver->to;
         auto shell = Shell{std::move(*memory).take_lifetime(), ptr.value, size,
                            [driver](Shell& ended, StreamHandle on) {
                              if (ended.up.free(on)) return;
                              ended.up = {};
                              ignore(driver->mem_free({ended.address}));
                            }};
         return MemoryPointer(ptr, size, in_shell(std::move(shell), Epoch::Mark()));
       };
     }},
    {"frees once more after a reset", "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory || size < 4096) return memory;
         const auto ptr = memory->device_pointer();
         auto* driver = &m.driver->to;
         auto shell = Shell{std::move(*memory).take_lifetime(), ptr.value, size,
                            [driver](Shell& ended, StreamHandle on) {
                              if (!ended.up.free(on)) ignore(driver->mem_free({ended.address}));
                            }};
         return MemoryPointer(ptr, size, in_shell(std::move(shell), Epoch::Mark()));
       };
     }},
    {"resets its newest block first", "default",
     [](W m) {
       auto resetting = remembers(false);
       auto order = PutOff<DevicePtr>::make();
       m.driver->on_mem_free = [&m, resetting, order](DevicePtr ptr) -> Status {
         if (!*resetting) return m.driver->to.mem_free(ptr);
         order->add(ptr);
         return {};
       };
       m.on_reset = [&m, resetting, order] {
         *resetting = true;
         m.up->reset();
         *resetting = false;
         const auto all = order->take();
         for (auto at = all.rbegin(); at != all.rend(); ++at) ignore(m.driver->to.mem_free(*at));
       };
     }},
    {"resets live memory before what waits", "default",
     [](W m) {
       auto waits = PutOff<DevicePtr>::make();
       auto before = std::make_shared<std::atomic<std::size_t>>(0);
       m.driver->on_mem_free = [&m, waits, before](DevicePtr ptr) -> Status {
         if (waits->size() < *before) return waits->add(ptr), Status();
         return m.driver->to.mem_free(ptr);
       };
       m.on_reset = [&m, waits, before] {
         auto held = m.up->defer_cleanup();
         *before = m.up->state().pending_count.value_or(0);
         held.end();
         m.up->reset();
         *before = 0;
         for (const auto ptr : waits->take()) ignore(m.driver->to.mem_free(ptr));
       };
     }},
    {"does nothing at a second reset", "default",
     [](W m) {
       m.on_reset = [&m, n = 0]() mutable {
         if (++n != 2) m.up->reset();
       };
     }},
    {"leaves the queue in a reset", "default",
     [](W m) {
       m.on_reset = [&m] {
         const auto held = m.up->defer_cleanup();
         m.up->reset();
       };
     }},
    {"keeps managed memory through a reset", "default",
     [](W m) {
       auto mutex = std::make_shared<std::mutex>();
       auto managed = std::make_shared<std::set<std::uint64_t>>();
       auto resetting = remembers(false);
       m.on_memallocmanaged = [&m, managed, mutex](auto size, auto attach) {
         auto memory = m.up->memallocmanaged(size, attach);
         const std::lock_guard lock(*mutex);
         if (memory) managed->insert(memory->device_pointer().value);
         return memory;
       };
       m.on_reset = [&m, resetting] {
         *resetting = true;
         m.up->reset();
         *resetting = false;
       };
       m.driver->on_mem_free = [&m, managed, mutex, resetting](DevicePtr ptr) -> Status {
         const std::lock_guard lock(*mutex);
         return *resetting && managed->erase(ptr.value) == 1 ? Status()
                                                             : m.driver->to.mem_free(ptr);
       };
     }},
    {"frees at its end what was freed last", "default",
     [](W m) {
       auto last = remembers<DevicePtr>();
       m.driver->on_mem_free = [&m, last](DevicePtr ptr) {
         *last = ptr;
         return m.driver->to.mem_free(ptr);
       };
       m.on_ending = [&m, last] {
         if (*last) ignore(m.driver->to.mem_free(*last));
       };
     }},
    {"calls the device for a block that ends after it", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         auto* driver = &m.driver->to;
         auto shell = Shell{std::move(*memory).take_lifetime(), ptr.value, size,
                            [driver](Shell& ended, StreamHandle on) {
                              if (ended.up.free(on)) return;
                              ended.up = {};
                              if (!driver->mem_get_info()) return;
                            }};
         return MemoryPointer(ptr, size, in_shell(std::move(shell), Epoch::Mark()));
       };
     }},
    {"takes 2 MiB at a reset before it was used", "default",
     [](W m) {
       auto used = remembers(false);
       m.on_initialize = [&m, used] {
         *used = true;
         return m.up->initialize();
       };
       m.on_reset = [&m, used] {
         if (!*used && !m.driver->to.mem_alloc(2_MiB)) *used = true;
         m.up->reset();
       };
     }},

    // Host memory.
    {"ends mapped memory twice", "default",
     [](W m) {
       m.driver->on_mem_free_host = [&m](HostPtr ptr) {
         auto done = m.driver->to.mem_free_host(ptr);
         ignore(m.driver->to.mem_free_host(ptr));
         return done;
       };
     }},
    {"says a host address a page further above 4096 bytes", "default",
     [](W m) {
       m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size <= 4096 ? size : size + 4096, flags);
         auto* mapped = memory && size > 4096 ? std::get_if<MappedMemory>(&*memory) : nullptr;
         if (mapped == nullptr) return memory;
         const HostRange range{mapped->host_pointer() + 4096, size};
         const auto device = mapped->device_pointer();
         return MappedMemory(range, device, std::move(*mapped).take_lifetime());
       };
     }},
    {"gives mapped memory no device address", "default",
     [](W m) {
       m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size, flags);
         auto* mapped = memory ? std::get_if<MappedMemory>(&*memory) : nullptr;
         if (mapped == nullptr) return memory;
         const HostRange range{mapped->host_pointer(), mapped->size()};
         return MappedMemory(range, {}, std::move(*mapped).take_lifetime());
       };
     }},
    {"takes the host address for the device's", "default", take_host_address_for_device},
    {"drops portable where wc is asked for too", "default",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m](auto size, HostAllocFlags flags) {
         if (flags.wc) flags.portable = false;
         return m.driver->to.mem_host_alloc(size, flags);
       };
     }},
    {"maps pinned memory too", "default",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m](auto size, HostAllocFlags flags) {
         flags.mapped = true;
         return m.driver->to.mem_host_alloc(size, flags);
       };
     }},
    {"gives pinned memory as mapped", "default", give_pinned_as_mapped},
    {"says the size of host memory in whole pages", "default",
     [](W m) {
       m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size, flags);
         auto* pinned = memory ? std::get_if<PinnedMemory>(&*memory) : nullptr;
         if (pinned == nullptr) return memory;
         const HostRange range{pinned->host_pointer(), (size + 4095) & ~std::uint64_t{4095}};
         return PinnedMemory(range, std::move(*pinned).take_lifetime());
       };
     }},
    {"leaves a region registered that cannot be mapped", "default", leave_unmappable_registered},
    {"pins whole pages", "default",
     [](W m) {
       m.driver->on_mem_host_register = [&m](HostRange range, HostRegisterFlags flags) {
         range.size = (range.size + 4095) & ~std::uint64_t{4095};
         return m.driver->to.mem_host_register(range, flags);
       };
     }},
    {"pins mapped regions portable", "default",
     [](W m) {
       m.driver->on_mem_host_register = [&m](HostRange range, HostRegisterFlags flags) {
         flags.portable |= flags.mapped;
         return m.driver->to.mem_host_register(range, flags);
       };
     }},
    {"says the page of a region that it pins", "default",
     [](W m) {
       m.on_mempin = [&m](HostRange range, auto flags, auto owner) -> Result<HostMemory> {
         auto memory = m.up->mempin(range, flags, owner);
         auto* pinned = memory ? std::get_if<PinnedMemory>(&*memory) : nullptr;
         if (pinned == nullptr) return memory;
         const auto page = reinterpret_cast<std::uint64_t>(range.pointer) & ~std::uint64_t{4095};
         return PinnedMemory({reinterpret_cast<HostPtr>(page), range.size},
                             std::move(*pinned).take_lifetime(), owner);
       };
     }},
    {"lets go of the owner of mapped regions", "default", [](W m) { let_owners_go(m, true); }},
    {"keeps the owner of a region until its end", "default", keep_owners},
    {"pins a region that is pinned without asking", "default",
     [](W m) {
       auto pinned = std::make_shared<std::set<HostPtr>>();
       auto mutex = std::make_shared<std::mutex>();
       m.driver->on_mem_host_register = [&m, pinned, mutex](HostRange range,
                                                            HostRegisterFlags flags) -> Status {
         const std::lock_guard lock(*mutex);
         if (pinned->count(range.pointer) != 0) return {};
         auto done = m.driver->to.mem_host_register(range, flags);
         if (done) pinned->insert(range.pointer);
         return done;
       };
       m.driver->on_mem_host_unregister = [&m, pinned, mutex](HostPtr ptr) -> Status {
         const std::lock_guard lock(*mutex);
         if (pinned->erase(ptr) == 0) return {};
         return m.driver->to.mem_host_unregister(ptr);
       };
     }},
    {"unpins with the next flush", "default",
     [](W m) {
       auto waiting = PutOff<HostPtr>::make();
       const auto unpin = [&m, waiting] {
         for (const auto ptr : waiting->take()) ignore(m.driver->to.mem_host_unregister(ptr));
       };
       m.driver->on_mem_host_unregister = [waiting](HostPtr ptr) -> Status {
         waiting->add(ptr);
         return {};
       };
       m.on_flush = [&m, unpin] {
         unpin();
         return m.up->flush();
       };
       m.on_ending = unpin;
     }},
    {"attaches managed memory to all from 1 MiB on", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, auto attach) {
         return m.driver->to.mem_alloc_managed(size, size >= 1_MiB ? AttachFlags::global : attach);
       };
     }},
    {"attaches managed memory to the host alone", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, auto) {
         return m.driver->to.mem_alloc_managed(size, AttachFlags::host);
       };
     }},

    // Questions.
    {"tells free for total and total for free", "default", swap_free_and_total},
    {"tells the memory of the first question for ever", "default",
     [](W m) {
       auto first = remembers<std::optional<MemoryInfo>>();
       m.on_get_memory_info = [&m, first]() -> Result<MemoryInfo> {
         if (!*first) {
           auto info = m.up->get_memory_info();
           if (!info) return info;
           *first = *info;
         }
         return **first;
       };
     }},
    {"tells the memory of another device", "default",
     [](W m) {
       m.on_get_memory_info = []() -> Result<MemoryInfo> {
         return MemoryInfo{.free = 16_GiB, .total = 24_GiB};
       };
     }},
    {"tells nothing for an error of memory info", "default",
     [](W m) {
       m.on_get_memory_info = [&m]() -> Result<MemoryInfo> {
         auto info = m.up->get_memory_info();
         return info ? info : Result<MemoryInfo>(MemoryInfo{});
       };
     }},
    {"tells no offset of the middle of a block", "default", export_no_offset},
    {"tells the offset in the block, not in the slab", "pool:backing=cumem",
     [](W m) {
       auto live = std::make_shared<Live>();
       m.on_memalloc = [&m, live](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         const std::lock_guard lock(live->mutex);
         if (memory) live->sizes[memory->device_pointer().value] = size;
         return memory;
       };
       change_exports(m, [live](MemoryView view, auto fields) {
         const std::lock_guard lock(live->mutex);
         auto at = live->sizes.upper_bound(view.device_pointer.value);
         if (at != live->sizes.begin())
           fields.offset = view.device_pointer.value - std::prev(at)->first;
         return fields;
       });
     }},
    {"tells the allocation's size for the view's", "default",
     [](W m) {
       change_exports(m, [&m](MemoryView view, auto fields) {
         if (const auto range = m.driver->to.mem_get_address_range(view.device_pointer))
           fields.size = range->size;
         return fields;
       });
     }},
    {"tells another device in a handle", "default",
     [](W m) {
       change_exports(m, [](auto, auto fields) {
         if (fields.source_info) ++fields.source_info->pci_bus_id;
         return fields;
       });
     }},
    {"tells no device in a handle", "default",
     [](W m) {
       change_exports(m, [](auto, auto fields) { return fields.source_info.reset(), fields; });
     }},
    {"gives the first handle for all blocks", "default",
     [](W m) {
       auto first = remembers<std::optional<IpcMemHandle>>();
       change_exports(m, [first](auto, auto fields) {
         if (!*first) *first = fields.handle;
         return fields.handle = **first, fields;
       });
     }},
    {"gives handles of memory that is gone", "default",
     [](W m) {
       auto last = remembers<std::optional<IpcHandle::Fields>>();
       m.on_get_ipc_handle = [&m, last](MemoryView view) -> Result<IpcHandle> {
         auto handle = m.up->get_ipc_handle(view);
         if (handle) *last = handle->fields();
         if (!handle && *last) return IpcHandle::exported(**last);
         return handle;
       };
     }},
    {"gives handles of virtual memory that nobody can open", "async",
     [](W m) {
       m.on_get_ipc_handle = [](MemoryView view) -> Result<IpcHandle> {
         return IpcHandle::exported(
             {.handle = {}, .size = view.size, .offset = 0, .source_info = {}});
       };
     }},
    {"says twice what is live", "pool",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         if (state.live_bytes) *state.live_bytes *= 2;
         return state;
       };
     }},
    {"says that less is reserved than is live", "pool",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         if (state.live_bytes && state.reserved_bytes) state.reserved_bytes = *state.live_bytes / 2;
         return state;
       };
     }},
    {"refuses a second initialize", "default",
     [](W m) {
       m.on_initialize = [&m, n = 0]() mutable -> Status {
         return ++n == 2 ? Status(Error{.code = Errc::invalid_value}) : m.up->initialize();
       };
     }},

    // Threads, streams and what is left behind.
    {"leaks what another thread ends", "default",
     [](W m) {
       const auto by = std::this_thread::get_id();
       m.driver->on_mem_free = [&m, by](DevicePtr ptr) -> Status {
         return std::this_thread::get_id() == by ? m.driver->to.mem_free(ptr) : Status();
       };
     }},
    {"leaks an event for each request", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         const auto event = m.driver->event_create();
         return m.up->memalloc(size, stream);
       };
     }},
    {"leaks a stream", "default",
     [](W m) {
       m.on_initialize = [&m, done = false]() mutable {
         if (!std::exchange(done, true)) {
           const auto stream = m.driver->stream_create();
         }
         return m.up->initialize();
       };
     }},
    {"pushes its context at each request", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         ignore(m.driver->ctx_push_current());
         return m.up->memalloc(size, stream);
       };
     }},
    {"keeps a block more for each 64 requests", "default",
     [](W m) {
       auto n = counts();
       m.on_memalloc = [&m, n](auto size, auto stream) {
         if (n->next() % 64 == 0 && !m.driver->mem_alloc(512)) n->next();
         return m.up->memalloc(size, stream);
       };
     }},
    {"does not wait for a stream from 1 MiB on", "pool:backing=cumem",
     [](W m) {
       auto large = remembers(false);
       m.on_memalloc = [&m, large](auto size, auto stream) {
         *large = size >= 1_MiB;
         return m.up->memalloc(size, stream);
       };
       m.driver->on_stream_synchronize = [&m, large](StreamHandle stream) -> Status {
         return *large ? Status() : m.driver->to.stream_synchronize(stream);
       };
       m.driver->on_stream_wait_event = [&m, large](StreamHandle stream,
                                                    EventHandle event) -> Status {
         return *large ? Status() : m.driver->to.stream_wait_event(stream, event);
       };
       m.driver->on_ctx_synchronize = [&m, large]() -> Status {
         return *large ? Status() : m.driver->to.ctx_synchronize();
       };
     }},
    {"gives what was freed on one stream to the next at once", "default",
     [](W m) {
       struct Idle {
         std::mutex mutex;
         std::multimap<std::uint64_t, std::pair<DevicePtr, Lifetime>> blocks;
       };
       auto idle = std::make_shared<Idle>();
       m.memory = idle;
       m.on_memalloc = [&m, idle = idle.get()](auto size, auto stream) -> Result<MemoryPointer> {
         const auto take = [&]() -> std::optional<MemoryPointer> {
           const std::lock_guard lock(idle->mutex);
           const auto found = idle->blocks.find(size);
           if (found == idle->blocks.end()) return std::nullopt;
           auto [ptr, lifetime] = std::move(found->second);
           idle->blocks.erase(found);
           return MemoryPointer(ptr, size, std::move(lifetime));
         };
         auto taken = take();
         auto memory =
             taken ? Result<MemoryPointer>(std::move(*taken)) : m.up->memalloc(size, stream);
         if (!memory) return memory;
         return in_shell(*std::move(memory), [idle](Shell& shell, StreamHandle) {
           const std::lock_guard lock(idle->mutex);
           idle->blocks.emplace(shell.size,
                                std::pair(DevicePtr{shell.address}, std::move(shell.up)));
         });
       };
       m.on_reset = [&m, idle = idle.get()] {
         {
           const std::lock_guard lock(idle->mutex);
           idle->blocks.clear();
         }
         m.up->reset();
       };
     }},
    {"holds a lock in memalloc that a flush takes", "default",
     [](W m) {
       auto mutex = std::make_shared<std::recursive_mutex>();
       m.on_memalloc = [&m, mutex](auto size, auto stream) {
         const std::lock_guard lock(*mutex);
         return m.up->memalloc(size, stream);
       };
       m.driver->on_mem_free = [&m, mutex](DevicePtr ptr) {
         const std::lock_guard lock(*mutex);
         return m.driver->to.mem_free(ptr);
       };
     }},
};

}  // namespace

std::span<const Stranger> all_strangers() { return kStrangers; }

conformance::Subject subject_of(const Stranger& stranger) {
  auto subject = subject_of(
      Mutant{.clause = {}, .wrong = stranger.wrong, .over = stranger.over, .make = stranger.make});
  subject.patience = std::chrono::seconds(2);
  return subject;
}

}  // namespace emm::mutants
