#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "driver/call.hpp"
#include "emm/epoch.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_observer.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Each breaks one rule. They are written from the rules, before the clauses.

namespace emm::mutants {
namespace {

using W = WrongManager&;

/// The end of a block for which `clears(size, ends so far)` holds writes to the newest other one.
void clear_newest_at_end(W m, bool (*clears)(std::uint64_t, std::uint64_t)) {
  auto newest = remembers<DevicePtr>();
  auto ends = remembers<std::uint64_t>();
  m.on_memalloc = [&m, newest, ends, clears](auto size, auto stream) -> Result<MemoryPointer> {
    auto memory = m.up->memalloc(size, stream);
    if (!memory) return memory;
    *newest = memory->device_pointer();
    return in_shell(*std::move(memory), [&m, newest, ends, clears](Shell& shell, StreamHandle on) {
      if (clears(shell.size, ++*ends) && newest->value != shell.address)
        ignore(m.driver->to.memset_d8(*newest, 0, 1));
      shell.end(on);
    });
  };
}

const Error kOutOfMemory = driver_error(Call::mem_alloc, 2);

const Mutant kMutants[] = {
    {"SEL-4", "says version 2", "default", [](W m) { m.version = 2; }},
    {"SEL-5", "asks the device while it is made", "default",
     [](W m) {
       if (m.driver && !m.driver->mem_get_info()) m.version = 0;
     }},
    {"BASE-4", "answers not_found to managed memory", "default",
     [](W m) { m.on_memallocmanaged = [](auto, auto) { return fault(Errc::not_found); }; }},
    {"BASE-7", "frees the first block of 1 MiB in a flush", "default",
     [](W m) {
       auto first = remembers<DevicePtr>();
       m.on_memalloc = [&m, first](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory && !*first && size == 1_MiB) *first = memory->device_pointer();
         return memory;
       };
       m.on_flush = [&m, first] {
         if (*first && m.driver->to.mem_free(*first)) *first = {};
         return m.up->flush();
       };
     }},
    {"BASE-10", "takes an address twice", "default",
     [](W m) {
       auto last = remembers<DevicePtr>();
       m.on_memallocmanaged = [&m, last](auto size, auto attach) -> Result<ManagedMemory> {
         auto memory = m.up->memallocmanaged(size, attach);
         if (!memory && memory.error().native == 0 && *last)
           return ManagedMemory(MemoryPointer(*last, size));
         if (memory) *last = memory->device_pointer();
         return memory;
       };
     }},
    {"INI-2", "starts anew at each initialize", "default",
     [](W m) {
       m.on_initialize = [&m, again = false]() mutable {
         if (std::exchange(again, true)) m.up->reset();
         return m.up->initialize();
       };
     }},
    {"INI-3", "asks for the total each time", "default",
     [](W m) {
       m.on_initialize = [&m] {
         const auto info = m.driver->mem_get_info();
         return m.up->initialize();
       };
     }},
    {"INI-4", "asks again for a total of 0", "default",
     [](W m) {
       // Threads initialize at once: the driver is given its hook by the first alone.
       auto again = std::make_shared<std::atomic<bool>>(false);
       auto given = std::make_shared<std::once_flag>();
       m.on_initialize = [&m, again, given]() -> Status {
         std::call_once(*given, [&] {
           m.driver->on_mem_get_info = [&m, again] {
             auto info = m.driver->to.mem_get_info();
             *again = info && info->total == 0;
             return info;
           };
         });
         if (*again) {
           const auto info = m.driver->to.mem_get_info();
         }
         return m.up->initialize();
       };
     }},
    {"INI-5", "sets no capacity", "default",
     [](W m) { m.on_initialize = [] { return Status(); }; }},
    {"INI-6", "leaves scratch memory where it was never used", "default",
     [](W m) {
       auto used = remembers(false);
       m.on_memalloc = [&m, used](auto size, auto stream) {
         *used = true;
         return m.up->memalloc(size, stream);
       };
       m.on_ending = [&m, used] {
         if (!*used && m.driver && !m.driver->mem_alloc(4_KiB)) *used = true;
       };
     }},

    {"DEV-1", "says a byte less than was asked for", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         return as(*std::move(memory), ptr, size - 1);
       };
     }},
    {"DEV-1", "takes a byte less for 255", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         return m.driver->to.mem_alloc(size == 255 ? 254 : size);
       };
     }},
    {"DEV-2", "gives null for size 0", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         if (size == 0) return MemoryPointer();
         return m.up->memalloc(size, stream);
       };
     }},
    {"DEV-3", "flushes where memory is out, and gives up", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m, out = false](auto size) mutable -> Result<DevicePtr> {
         if (std::exchange(out, false)) return kOutOfMemory;
         auto ptr = m.driver->to.mem_alloc(size);
         out = !ptr && ptr.error().code == Errc::out_of_memory;
         return ptr;
       };
     }},
    {"DEV-4", "tries again whatever the error", "default",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory || memory.error().native != 700) return memory;
         return m.up->memalloc(size, stream);
       };
     }},
    {"DEV-5", "does not try again while cleanup is deferred", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.driver->on_mem_alloc_managed = [&m, guards, out = false](
                                            auto size, auto attach) mutable -> Result<DevicePtr> {
         if (std::exchange(out, false)) return kOutOfMemory;
         auto ptr = m.driver->to.mem_alloc_managed(size, attach);
         out = !ptr && guards->alive > 0;
         return ptr;
       };
     }},
    {"DEV-7", "a free that fails ends the request", "default",
     [](W m) {
       auto failed = remembers(false);
       m.driver->on_mem_free_host = [&m, failed](auto ptr) {
         auto freed = m.driver->to.mem_free_host(ptr);
         *failed = !freed;
         return freed;
       };
       m.driver->on_mem_alloc = [&m, failed](auto size) -> Result<DevicePtr> {
         if (failed->exchange(false)) return driver_error(Call::mem_free_host, 700);
         return m.driver->to.mem_alloc(size);
       };
     }},
    {"DEV-8", "forgets no end", "default",
     [](W m) {
       auto most = remembers<std::uint64_t>(0);
       m.on_state = [&m, most] {
         auto state = m.up->state();
         *most = std::max(*most, *state.live_bytes);
         state.live_bytes = *most;
         return state;
       };
     }},
    {"DEV-9", "frees device memory at once", "default",
     [](W m) {
       shell_memalloc(m, [&m, home = std::this_thread::get_id()](Shell& shell, StreamHandle) {
         shell.end();
         if (home == std::this_thread::get_id()) ignore(m.up->flush());
       });
     }},
    {"DEV-10", "rounds sizes up", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         return m.driver->to.mem_alloc(size < 1_MiB ? (size + 511) & ~std::uint64_t{511} : size);
       };
     }},
    {"DEV-11", "frees again what a reset has freed", "default",
     [](W m) {
       auto life = std::make_shared<Epoch>();
       m.memory = life;
       m.on_memalloc = [&m, life](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         const auto end = [&m, ptr](Shell& shell, StreamHandle) {
           if (shell.up.alive()) return shell.end();
           if (!m.driver->mem_free(ptr)) shell.up = {};
         };
         return MemoryPointer(
             ptr, size,
             in_shell(Shell{(*std::move(memory)).take_lifetime(), ptr.value, size, end},
                      life->mark()));
       };
       m.on_ending = [life] { life->advance(); };
     }},

    {"HST-1", "forgets portable", "default",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m](auto size, auto flags) {
         flags.portable = false;
         return m.driver->to.mem_host_alloc(size, flags);
       };
     }},
    {"HST-2", "maps all of it", "default", give_pinned_as_mapped},
    {"HST-3", "does not try again for unmapped memory", "default",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m, out = false](auto size,
                                                       auto flags) mutable -> Result<HostPtr> {
         if (std::exchange(out, false)) return kOutOfMemory;
         auto ptr = m.driver->to.mem_host_alloc(size, flags);
         out = !ptr && !flags.mapped && ptr.error().code == Errc::out_of_memory;
         return ptr;
       };
     }},
    {"HST-5", "frees pinned memory at once", "default", [](W m) { free_host_at_once(m, false); }},
    {"HST-6", "takes the host address for the device's", "default", take_host_address_for_device},
    {"HST-7", "leaks what cannot be mapped", "default",
     [](W m) {
       auto unmapped = remembers<HostPtr>(nullptr);
       m.driver->on_mem_host_get_device_pointer = [&m, unmapped](auto ptr) {
         auto device = m.driver->to.mem_host_get_device_pointer(ptr);
         if (!device) *unmapped = ptr;
         return device;
       };
       m.driver->on_mem_free_host = [&m, unmapped](auto ptr) {
         if (ptr == std::exchange(*unmapped, nullptr)) return Status();
         return m.driver->to.mem_free_host(ptr);
       };
     }},
    {"HST-8", "counts the ends of pinned memory, and not its bytes", "default",
     [](W m) {
       auto waiting = PutOff<Lifetime>::make();
       m.memory = waiting;
       shell_hosted(m, false, [waiting = waiting.get()](Shell& shell, StreamHandle) {
         waiting->add(std::move(shell.up));
         if (waiting->size() > 10) waiting->take();
       });
       m.on_flush = [&m, waiting = waiting.get()] {
         waiting->take();
         return m.up->flush();
       };
       m.on_ending = [waiting = waiting.get()] { waiting->take(); };
     }},
    {"HST-9", "a sized free takes the unsized ones along", "default",
     [](W m) {
       auto unsized = remembers(false);
       m.on_memhostalloc = [&m, unsized](auto size, auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size, flags);
         if (!memory) return memory;
         return in_shell(*std::move(memory),
                         [&m, unsized, mapped = flags.mapped](Shell& shell, StreamHandle) {
                           shell.end();
                           if (!mapped) *unsized = true;
                           if (mapped && unsized->exchange(false)) ignore(m.up->flush());
                         });
       };
     }},
    {"HST-11", "gives the host a copy of mapped memory", "default",
     [](W m) {
       auto copies = PutOff<std::unique_ptr<std::byte[]>>::make();
       m.memory = copies;
       m.on_memhostalloc = [&m, copies = copies.get()](auto size,
                                                       auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size, flags);
         if (!memory || !flags.mapped || size < 4_KiB) return memory;
         auto& mapped = std::get<MappedMemory>(*memory);
         auto copy = std::make_unique<std::byte[]>(size);
         auto* const begin = copy.get();
         copies->add(std::move(copy));
         const auto device = mapped.device_pointer();
         return HostMemory(MappedMemory({begin, size}, device, std::move(mapped).take_lifetime()));
       };
     }},

    {"PIN-1", "maps every region", "default",
     [](W m) {
       m.driver->on_mem_host_register = [&m](auto range, auto) {
         return m.driver->to.mem_host_register(range, {.mapped = true});
       };
     }},
    {"PIN-2", "does not try again for unmapped regions", "default",
     [](W m) {
       m.driver->on_mem_host_register = [&m, out = false](auto range,
                                                          auto flags) mutable -> Status {
         if (std::exchange(out, false)) return kOutOfMemory;
         auto done = m.driver->to.mem_host_register(range, flags);
         out = !done && !flags.mapped && done.error().code == Errc::out_of_memory;
         return done;
       };
     }},
    {"PIN-3", "maps regions that were only to be pinned", "default",
     [](W m) {
       m.on_mempin = [&m](auto range, auto flags, auto owner) {
         flags.mapped = true;
         return m.up->mempin(range, flags, std::move(owner));
       };
     }},
    {"PIN-4", "keeps owners for ever", "default", keep_owners},
    {"PIN-4", "lets the owner go at once", "default", [](W m) { let_owners_go(m, false); }},
    {"PIN-5", "unpins after the deferral", "default",
     [](W m) {
       auto waiting = PutOff<Lifetime>::make();
       auto guards = count_guards(m, [waiting](Guards& all, std::size_t) {
         if (all.alive == 0) waiting->take();
       });
       shell_pinned(m, [waiting, guards](Shell& shell, StreamHandle) {
         if (guards->alive == 0) return shell.end();
         waiting->add(std::move(shell.up));
       });
     }},
    {"PIN-7", "pins twice what is pinned", "default",
     [](W m) {
       m.on_mempin = [&m](auto range, auto flags, auto owner) -> Result<HostMemory> {
         auto memory = m.up->mempin(range, flags, owner);
         if (memory || memory.error().code != Errc::already_registered) return memory;
         return HostMemory(PinnedMemory(range, {}, owner));
       };
     }},
    {"PIN-8", "leaves registered what cannot be mapped", "default", leave_unmappable_registered},
    {"PIN-10", "unpins before the next pin", "default",
     [](W m) {
       auto waiting = PutOff<Lifetime>::make();
       shell_pinned(m,
                    [waiting](Shell& shell, StreamHandle) { waiting->add(std::move(shell.up)); });
       m.on_mempin = [pin = m.on_mempin, waiting](auto range, auto flags, auto owner) {
         waiting->take();
         return pin(range, flags, owner);
       };
       m.on_ending = [waiting] { waiting->take(); };
     }},

    {"MAN-1", "attaches all managed memory to all streams", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, auto) {
         return m.driver->to.mem_alloc_managed(size, AttachFlags::global);
       };
     }},
    {"MAN-2", "does not try again for managed memory", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m, out = false](
                                            auto size, auto attach) mutable -> Result<DevicePtr> {
         if (std::exchange(out, false)) return kOutOfMemory;
         auto ptr = m.driver->to.mem_alloc_managed(size, attach);
         out = !ptr && ptr.error().code == Errc::out_of_memory;
         return ptr;
       };
     }},
    {"MAN-3", "frees managed memory at once", "default", free_managed_at_once},
    {"MAN-4", "gives device memory for managed", "default",
     [](W m) {
       m.on_memallocmanaged = [&m](auto size, auto attach) -> Result<ManagedMemory> {
         if (size != 256 || attach != AttachFlags::global)
           return m.up->memallocmanaged(size, attach);
         auto memory = m.up->memalloc(size);
         if (!memory) return std::move(memory).error();
         return ManagedMemory(*std::move(memory));
       };
     }},

    {"PD-1", "does not count pending bytes", "default",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         state.pending_bytes = 0;
         return state;
       };
     }},
    {"PD-2", "flushes at the tenth", "default:count=9"},
    {"PD-2", "flushes at a fifth", "default:ratio=0.1999"},
    {"PD-3", "flushes at the twelfth", "default:count=11"},
    {"PD-4", "rounds the limit up", "default:ratio=0.2003"},
    {"PD-6", "asks for the capacity when it is first needed", "default",
     [](W m) {
       m.on_memhostalloc = [&m](auto size, auto flags) -> Result<HostMemory> {
         if (auto ready = m.up->initialize(); !ready) return std::move(ready).error();
         return m.up->memhostalloc(size, flags);
       };
     }},
    {"PD-8", "frees the youngest first", "default",
     [](W m) {
       static thread_local std::vector<HostPtr>* waiting = nullptr;  // several may flush at once
       m.driver->on_mem_free_host = [&m](auto ptr) {
         if (waiting == nullptr) return m.driver->to.mem_free_host(ptr);
         waiting->insert(waiting->begin(), ptr);
         return Status();
       };
       m.on_flush = [&m] {
         std::vector<HostPtr> all;
         waiting = &all;
         auto done = m.up->flush();
         waiting = nullptr;
         for (const auto ptr : all) {
           if (auto freed = m.driver->to.mem_free_host(ptr); !freed) done = freed;
         }
         return done;
       };
     }},
    {"PD-9", "goes on counting after a flush by bytes", "default",
     [](W m) {
       auto sum = remembers<std::uint64_t>(0);
       shell_hosted(m, true, [&m, sum](Shell& shell, StreamHandle) {
         *sum += shell.size;
         shell.end();
         if (*sum > 400 && shell.size == 200) ignore(m.up->flush());
       });
     }},
    {"PD-11", "stops a flush at the first failure", "default",
     [](W m) {
       auto left = PutOff<HostPtr>::make();
       auto failed = remembers(false);
       m.driver->on_mem_free_host = [&m, left, failed](auto ptr) {
         if (*failed) {
           left->add(ptr);
           return Status();
         }
         auto freed = m.driver->to.mem_free_host(ptr);
         *failed = !freed;
         return freed;
       };
       m.on_flush = [&m, left, failed] {
         *failed = false;
         for (const auto ptr : left->take()) {
           if (auto freed = m.driver->mem_free_host(ptr); !freed) return freed;
         }
         return m.up->flush();
       };
       m.on_ending = [&m] { ignore(m.flush()); };
     }},
    {"PD-12", "the inner guard ends the outer", "default",
     [](W m) { count_guards(m, [](Guards& all, std::size_t) { all.real.end(); }); }},
    {"PD-13", "frees inside a deferral what is over the count", "default",
     [](W m) {
       auto guards = count_guards(m);
       auto count = remembers(0);
       shell_hosted(m, true, [&m, guards, count](Shell& shell, StreamHandle) {
         const std::lock_guard lock(guards->mutex);
         shell.end();
         if (guards->alive == 0 || ++*count <= 10) return;
         guards->real.end();
         ignore(m.up->flush());
         guards->real = m.up->defer_cleanup();
       });
     }},
    {"PD-14", "flushes ten or more at the end of a deferral", "default",
     [](W m) { flush_at_end_of_deferral(m, 10); }},
    {"PD-15", "waits for the device in a flush of nothing", "default",
     [](W m) {
       m.on_flush = [&m] {
         if (m.up->state().pending_count == 0u) return m.driver->ctx_synchronize();
         return m.up->flush();
       };
     }},
    {"PD-16", "tells nobody of queued frees", "default",
     [](W m) {
       struct Quiet final : ManagerObserver {
         ManagerObserver* to = nullptr;
         void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
           to->flushed(count, bytes);
         }
         void free_failed(const Error& error) noexcept override { to->free_failed(error); }
       };
       if (m.context.observer == nullptr) return;
       auto quiet = std::make_shared<Quiet>();
       quiet->to = std::exchange(m.context.observer, quiet.get());
       m.memory = quiet;
       m.up = *find_manager("default")->make(m.context);
     }},
    {"PD-17", "frees twice what another thread ends", "default",
     [](W m) {
       m.driver->on_mem_free_host = [&m, home = std::this_thread::get_id()](auto ptr) {
         auto freed = m.driver->to.mem_free_host(ptr);
         if (freed && home != std::this_thread::get_id()) return m.driver->to.mem_free_host(ptr);
         return freed;
       };
     }},
    {"PD-18", "ends managed memory as if it were the host's", "default",
     [](W m) {
       auto managed = std::make_shared<std::set<std::uint64_t>>();
       auto mutex = std::make_shared<std::mutex>();
       m.driver->on_mem_alloc_managed = [&m, managed, mutex](auto size, auto attach) {
         auto ptr = m.driver->to.mem_alloc_managed(size, attach);
         const std::lock_guard lock(*mutex);
         if (ptr) managed->insert(ptr->value);
         return ptr;
       };
       m.driver->on_mem_free = [&m, managed, mutex](auto ptr) {
         std::unique_lock lock(*mutex);
         const bool is_managed = managed->count(ptr.value) != 0;
         lock.unlock();
         if (is_managed) return m.driver->to.mem_free_host(reinterpret_cast<HostPtr>(ptr.value));
         return m.driver->to.mem_free(ptr);
       };
     }},

    {"DFR-2", "gives nothing after a nested deferral", "default",
     [](W m) {
       auto nested = remembers(false);
       count_guards(m, [nested](Guards& all, std::size_t) { *nested = *nested || all.alive > 0; });
       m.on_memalloc = [&m, nested](auto size, auto stream) -> Result<MemoryPointer> {
         if (*nested) return fault(Errc::not_initialized);
         return m.up->memalloc(size, stream);
       };
       m.on_memallocmanaged = [&m, nested](auto size, auto attach) -> Result<ManagedMemory> {
         if (*nested) return fault(Errc::not_initialized);
         return m.up->memallocmanaged(size, attach);
       };
       m.on_memhostalloc = [&m, nested](auto size, auto flags) -> Result<HostMemory> {
         if (*nested) return fault(Errc::not_initialized);
         return m.up->memhostalloc(size, flags);
       };
     }},
    {"DFR-3", "does not defer managed memory", "default",
     [](W m) {
       auto guards = count_guards(m);
       shell_managed(m, [&m, guards](Shell& shell, StreamHandle) {
         const std::lock_guard lock(guards->mutex);
         if (guards->alive == 0) return shell.end();
         guards->real.end();
         shell.end();
         ignore(m.up->flush());
         guards->real = m.up->defer_cleanup();
       });
     }},
    {"DFR-7", "frees by a reset inside a deferral", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_reset = [&m, guards] {
         const std::lock_guard lock(guards->mutex);
         guards->real.end();
         m.up->reset();
         if (guards->alive > 0) guards->real = m.up->defer_cleanup();
       };
     }},
    {"DFR-8", "a guard that ends out of turn ends all", "default",
     [](W m) {
       count_guards(m, [](Guards& all, std::size_t number) {
         if (number != 0) all.real.end();
       });
     }},

    {"RST-2", "frees the youngest first in a reset", "default",
     [](W m) {
       auto resetting = remembers(false);
       auto waiting = PutOff<HostPtr>::make();
       m.driver->on_mem_free_host = [&m, resetting, waiting](HostPtr ptr) -> Status {
         if (!*resetting) return m.driver->to.mem_free_host(ptr);
         waiting->add(ptr);
         return {};
       };
       m.on_reset = [&m, resetting, waiting] {
         *resetting = true;
         m.up->reset();
         *resetting = false;
         const auto all = waiting->take();
         for (auto at = all.rbegin(); at != all.rend(); ++at)
           ignore(m.driver->to.mem_free_host(*at));
       };
     }},
    {"RST-3", "cannot be initialized after a reset", "default",
     [](W m) {
       auto broken = remembers(true);
       auto ready = remembers(false);
       m.on_reset = [&m, broken, ready] {
         *broken = !*ready;
         m.up->reset();
       };
       *broken = false;
       m.on_initialize = [&m, broken, ready]() -> Status {
         if (*broken) return fault(Errc::not_initialized);
         *ready = true;
         return m.up->initialize();
       };
     }},
    {"RST-5", "leaves regions registered", "default", leave_regions_in_reset},
    {"RST-7", "frees the last block twice in a reset", "default",
     [](W m) {
       auto last = remembers<DevicePtr>();
       m.on_memalloc = [&m, last](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory && size == 100) *last = memory->device_pointer();
         return memory;
       };
       m.on_reset = [&m, last] {
         m.up->reset();
         if (*last && !m.driver->mem_free(*last)) *last = {};
       };
     }},
    {"RST-8", "flushes in a reset inside a deferral", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_reset = [&m, guards] {
         const std::lock_guard lock(guards->mutex);
         m.up->reset();
         guards->real.end();
         ignore(m.up->flush());
         if (guards->alive > 0) guards->real = m.up->defer_cleanup();
       };
     }},
    {"RST-9", "frees again mapped memory that a reset has freed", "default",
     [](W m) {
       auto life = std::make_shared<Epoch>();
       m.memory = life;
       m.on_memhostalloc = [&m, life](auto size, auto flags) -> Result<HostMemory> {
         auto memory = m.up->memhostalloc(size, flags);
         if (!memory || !flags.mapped || size != 72) return memory;
         auto& mapped = std::get<MappedMemory>(*memory);
         const HostRange range{mapped.host_pointer(), size};
         const auto device = mapped.device_pointer();
         const auto end = [&m, range](Shell& shell, StreamHandle) {
           if (shell.up.alive()) return shell.end();
           if (!m.driver->mem_free_host(range.pointer)) shell.up = {};
         };
         return HostMemory(MappedMemory(
             range, device,
             in_shell(Shell{std::move(mapped).take_lifetime(), 0, size, end}, life->mark())));
       };
       m.on_ending = [life] { life->advance(); };
     }},

    {"INF-1", "takes free for total", "default", swap_free_and_total},
    {"INF-2", "keeps a page to itself", "default",
     [](W m) {
       m.on_get_memory_info = [&m]() -> Result<MemoryInfo> {
         auto info = m.up->get_memory_info();
         if (info) info->free -= 4_KiB;
         return info;
       };
     }},
    {"INF-4", "answers not_found", "cudart",
     [](W m) { m.on_get_memory_info = [] { return fault(Errc::not_found); }; }},
    {"INF-5", "knows nothing after a reset", "default",
     [](W m) {
       auto reset = remembers(false);
       m.on_reset = [&m, reset] {
         m.up->reset();
         *reset = true;
       };
       m.on_get_memory_info = [&m, reset]() -> Result<MemoryInfo> {
         if (*reset) return fault(Errc::not_initialized);
         return m.up->get_memory_info();
       };
     }},
    {"IPC-2", "exports a slice as if it began where the allocation does", "default",
     export_no_offset},
    {"IPC-2", "tells sizes in whole pages", "default",
     [](W m) {
       change_exports(m, [](MemoryView view, auto fields) {
         fields.size = (view.size + 4095) & ~std::uint64_t{4095};
         return fields;
       });
     }},
    {"IPC-3", "asks for the handle of the address itself", "default",
     [](W m) {
       auto asked = remembers<DevicePtr>();
       m.driver->on_mem_get_address_range = [&m, asked](auto ptr) {
         *asked = ptr;
         return m.driver->to.mem_get_address_range(ptr);
       };
       m.driver->on_ipc_get_mem_handle = [&m, asked](auto) {
         return m.driver->to.ipc_get_mem_handle(*asked);
       };
     }},
    {"IPC-4", "exports slabs, without offsets", "pool:backing=cumem", export_no_offset},

    {"ERR-2", "tells nobody of frees that failed", "default",
     [](W m) {
       struct Proud final : ManagerObserver {
         ManagerObserver* to = nullptr;
         void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override {
           to->pending_added(dtor, size);
         }
         void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
           to->flushed(count, bytes);
         }
       };
       auto proud = std::make_shared<Proud>();
       proud->to = std::exchange(m.context.observer, proud.get());
       m.memory = proud;
       m.up = *find_manager("default")->make(m.context);
     }},
    {"ERR-2", "takes no notice of a refused free in stream order", "async",
     [](W m) {
       m.driver->on_mem_free_async = [&m](auto ptr, auto stream) {
         const auto unheard = m.driver->to.mem_free_async(ptr, stream);
         return Status();
       };
     }},
    {"ERR-3", "abandons what is pending at its end", "default",
     [](W m) {
       m.on_ending = [&m] {
         if (m.driver) m.driver->on_mem_free_host = [](auto) { return Status(); };
       };
     }},
    {"ERR-4", "frees what ends after it", "default",
     [](W m) {
       auto over = remembers(false);
       m.on_ending = [over] { *over = true; };
       m.on_memalloc = [&m, over](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         const auto ptr = memory->device_pointer();
         const auto end = [over, ptr, driver = &m.driver->to](Shell& shell, StreamHandle) {
           if (shell.up.alive()) return shell.end();
           if (*over && !driver->mem_free(ptr)) shell.up = {};
         };
         return MemoryPointer(
             ptr, size, in_shell(Shell{(*std::move(memory)).take_lifetime(), 0, size, end}, {}));
       };
     }},
    {"ERR-5", "frees twice what another thread ends", "default",
     [](W m) {
       shell_memalloc(m, [&m, home = std::this_thread::get_id()](Shell& shell, StreamHandle) {
         const auto twice = home != std::this_thread::get_id() && shell.size == 64_KiB;
         if (twice && !m.driver->mem_free({shell.address})) return;
         shell.end();
       });
     }},
    {"ERR-6", "holds its lock while it calls the driver", "default",
     [](W m) {
       auto lock = std::make_shared<std::recursive_mutex>();
       shell_memalloc(m, [lock](Shell& shell, StreamHandle) {
         const std::lock_guard guard(*lock);
         shell.end();
       });
       m.on_memalloc = [lock, memalloc = m.on_memalloc](auto size, auto stream) {
         const std::lock_guard guard(*lock);
         return memalloc(size, stream);
       };
       m.on_flush = [&m, lock] {
         const std::lock_guard guard(*lock);
         return m.up->flush();
       };
     }},
    {"errors/callbacks", "tells of frees under the lock of its memory information", "default",
     [](W m) {
       struct Locking final : ManagerObserver {
         std::recursive_mutex mutex;
         ManagerObserver* to = nullptr;
         void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override {
           to->pending_added(dtor, size);
         }
         void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
           const std::lock_guard lock(mutex);
           to->flushed(count, bytes);
         }
         void free_failed(const Error& error) noexcept override { to->free_failed(error); }
       };
       if (m.context.observer == nullptr) return;
       auto locking = std::make_shared<Locking>();
       locking->to = std::exchange(m.context.observer, locking.get());
       m.memory = locking;
       m.up = *find_manager("default")->make(m.context);
       m.on_get_memory_info = [&m, locking] {
         const std::lock_guard lock(locking->mutex);
         return m.up->get_memory_info();
       };
     }},
    {"ERR-7", "aborts where a free fails", "default",
     [](W m) {
       m.driver->on_mem_free = [&m](auto ptr) {
         auto freed = m.driver->to.mem_free(ptr);
         if (!freed && freed.error().native == 3) std::_Exit(1);
         return freed;
       };
     }},

    {"suite/alignment", "aligns to 128", "cudart",
     [](W m) {
       misalign(m, 0, 1_GiB, 128);
       m.on_state = [] { return ManagerState(); };
     }},
    {"suite/sizes", "takes a page less than 9 to 15 MiB", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         return m.driver->to.mem_alloc(size >= 9_MiB && size <= 15_MiB ? size - 4_KiB : size);
       };
     }},
    {"suite/too_large", "rounds the largest sizes up to nothing", "default",
     [](W m) { round_largest_to_nothing(m, 4095); }},
    {"suite/random", "gives blocks of about 900,000 bytes twice", "default",
     [](W m) {
       auto last = std::make_shared<std::pair<std::mutex, DevicePtr>>();
       m.on_memalloc = [&m, last](auto size, auto stream) -> Result<MemoryPointer> {
         if (size < 800'000 || size > 1'000'000) return m.up->memalloc(size, stream);
         const std::lock_guard lock(last->first);
         if (last->second) return MemoryPointer(std::exchange(last->second, {}), size);
         auto memory = m.up->memalloc(1'000'000, stream);
         if (!memory) return memory;
         last->second = memory->device_pointer();
         return MemoryPointer(last->second, size, (*std::move(memory)).take_lifetime());
       };
     }},
    {"suite/mixed", "takes a page less of managed memory from 100,000 bytes up", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, auto attach) {
         return m.driver->to.mem_alloc_managed(size > 100'000 ? size - 4_KiB : size, attach);
       };
     }},
    {"suite/threads", "leaks what another thread asks for", "default",
     [](W m) {
       m.on_memalloc = [&m, home = std::this_thread::get_id()](
                           auto size, auto stream) -> Result<MemoryPointer> {
         if (home == std::this_thread::get_id()) return m.up->memalloc(size, stream);
         auto ptr = m.driver->mem_alloc(size);
         if (!ptr) return std::move(ptr).error();
         return MemoryPointer(*ptr, size);
       };
     }},
    {"suite/cross_thread_free", "takes memory where another thread ends a small block", "default",
     [](W m) {
       shell_memalloc(m, [&m, home = std::this_thread::get_id()](Shell& shell, StreamHandle) {
         const auto takes = home != std::this_thread::get_id() && shell.size == 4_KiB;
         if (takes && !m.driver->mem_alloc(512)) return;
         shell.end();
       });
     }},
    {"suite/cross_stream_free", "gives twice what was freed on another stream", "default",
     [](W m) {
       auto again = std::make_shared<std::vector<DevicePtr>>();
       auto born = std::make_shared<std::map<std::uint64_t, StreamHandle>>();
       shell_memalloc(m, [again, born](Shell& shell, StreamHandle stream) {
         if (stream.value == 0 || (*born)[shell.address] == stream) return shell.end();
         again->insert(again->end(), 2, DevicePtr{shell.address});
       });
       m.on_memalloc = [again, born, memalloc = m.on_memalloc](
                           auto size, auto stream) -> Result<MemoryPointer> {
         if (stream.value != 0 && !again->empty()) {
           const auto ptr = again->back();
           again->pop_back();
           return MemoryPointer(ptr, size);
         }
         auto memory = memalloc(size, stream);
         if (memory && stream.value != 0) (*born)[memory->device_pointer().value] = stream;
         return memory;
       };
     }},
    {"stream/reuse_waits", "gives at once 48 MiB that were freed on a stream", "cudart",
     [](W m) {
       auto idle = std::make_shared<std::vector<std::pair<DevicePtr, Lifetime>>>();
       m.on_memalloc = [&m, idle](auto size, auto stream) -> Result<MemoryPointer> {
         if (size != 48_MiB) return m.up->memalloc(size, stream);
         auto memory = idle->empty() ? m.up->memalloc(size, stream)
                                     : MemoryPointer(idle->back().first, size,
                                                     std::move(idle->back().second));
         if (!memory) return memory;
         if (!idle->empty()) idle->pop_back();
         const auto ptr = memory->device_pointer();
         return in_shell(*std::move(memory), [idle, ptr](Shell& shell, StreamHandle on) {
           if (on.value == 0) return shell.end(on);
           idle->emplace_back(ptr, std::move(shell.up));
         });
       };
       m.on_ending = [idle] { idle->clear(); };
     }},
    {"suite/fill", "keeps all that ends once the device was full", "default",
     [](W m) {
       auto full = remembers(false);
       m.driver->on_mem_alloc = [&m, full](auto size) {
         auto ptr = m.driver->to.mem_alloc(size);
         if (!ptr && size == 4_MiB) *full = true;
         return ptr;
       };
       shell_memalloc(m, [full](Shell& shell, StreamHandle) {
         if (!*full) shell.end();
       });
     }},
    {"suite/fill", "gives managed memory where the device is full", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         auto ptr = m.driver->to.mem_alloc(size);
         return ptr || size != 4_MiB ? ptr
                                     : m.driver->to.mem_alloc_managed(size, AttachFlags::global);
       };
     }},
    {"suite/steady", "keeps blocks of a little more than 3 MiB", "default",
     [](W m) {
       shell_memalloc(m, [](Shell& shell, StreamHandle) {
         if (shell.size < 3_MiB || shell.size > 3_MiB + 32_KiB) shell.end();
       });
     }},
    {"live/overlap_address", "lets a block begin in the last of another", "pool:backing=cumem",
     [](W m) {
       m.on_memalloc = [&m, n = 0](auto size, auto stream) mutable -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory || ++n % 9 != 0 || size < 512 || size > 200'000) return memory;
         const auto ptr = memory->device_pointer();
         return as(*std::move(memory), {ptr.value - 512}, size);
       };
     }},
    {"live/overlap_content", "clears a little before each block too", "pool:backing=cumem",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) {
         auto memory = m.up->memalloc(size, stream);
         if (memory && size % 37 == 1 &&
             !m.driver->to.memset_d8({memory->device_pointer().value - 512}, 0, 512))
           return memory;
         return memory;
       };
     }},

    {"accounts/balance", "asks twice for managed memory of 1000 bytes", "default",
     [](W m) {
       m.driver->on_mem_alloc_managed = [&m](auto size, auto attach) {
         if (size == 1000 && !m.driver->to.mem_alloc_managed(size, attach))
           return m.driver->to.mem_alloc_managed(size, attach);
         return m.driver->to.mem_alloc_managed(size, attach);
       };
     }},
    {"accounts/peaks", "forgets the peak with each free", "pool",
     [](W m) {
       auto peak = remembers<std::uint64_t>(0);
       m.on_statistics = [&m, peak] {
         auto counted = m.up->statistics();
         const auto now = counted.requested_bytes.current.value_or(0);
         counted.requested_bytes.peak = *peak;
         *peak = now;
         return counted;
       };
     }},
    {"accounts/live_bytes", "counts what it has reset", "default",
     [](W m) {
       auto reset = remembers<std::uint64_t>(0);
       m.on_reset = [&m, reset] {
         *reset += m.up->state().live_bytes.value_or(0);
         m.up->reset();
       };
       m.on_state = [&m, reset] {
         auto state = m.up->state();
         *state.live_bytes += *reset;
         return state;
       };
     }},
    {"accounts/every_call_failed", "takes memory for a region that was refused", "default",
     [](W m) {
       m.driver->on_mem_host_register = [&m](auto range, auto flags) {
         auto done = m.driver->to.mem_host_register(range, flags);
         if (!done && done.error().code != Errc::already_registered &&
             !m.driver->to.mem_host_alloc(64, {}))
           return done;
         return done;
       };
     }},
    {"accounts/refused_frees", "loses the free after one that failed", "default",
     [](W m) {
       m.driver->on_mem_free = [&m, lose = false](auto ptr) mutable {
         if (std::exchange(lose, false)) return Status();
         auto freed = m.driver->to.mem_free(ptr);
         lose = !freed;
         return freed;
       };
     }},
    {"reset/late_ends", "clears the newest managed memory where one ends that a reset ended",
     "default",
     [](W m) {
       auto life = std::make_shared<Epoch>();
       auto newest = remembers<DevicePtr>();
       m.on_memallocmanaged = [&m, life, newest](auto size, auto attach) -> Result<ManagedMemory> {
         auto memory = m.up->memallocmanaged(size, attach);
         if (!memory) return memory;
         *newest = memory->device_pointer();
         auto up = std::move(memory->memory()).take_lifetime();
         const auto end = [&m, newest](Shell& shell, StreamHandle on) {
           if (!shell.up.alive()) ignore(m.driver->to.memset_d8(*newest, 0, 1));
           shell.end(on);
         };
         return ManagedMemory(
             MemoryPointer(*newest, size,
                           in_shell(Shell{std::move(up), newest->value, size, end}, life->mark())));
       };
       m.on_ending = [life] { life->advance(); };
     }},
    {"reset/ends_all", "takes 64 KiB of managed memory at each reset, and frees it at its end",
     "default",
     [](W m) {
       auto taken = PutOff<DevicePtr>::make();
       m.on_reset = [&m, taken] {
         m.up->reset();
         if (const auto more = m.driver->mem_alloc_managed(64_KiB, AttachFlags::global))
           taken->add(*more);
       };
       m.on_ending = [&m, taken] {
         for (const auto one : taken->take()) ignore(m.driver->mem_free(one));
       };
     }},
    {"accounts/manager_end", "leaves managed memory at its end where there is much", "default",
     [](W m) {
       auto left = std::make_shared<int>();
       m.driver->on_mem_free = [&m, left](auto ptr) {
         return *left == 1 ? Status() : m.driver->to.mem_free(ptr);
       };
       m.on_ending = [&m, left] {
         const auto live = m.up->state().live_bytes;
         if (live && *live > 20_MiB) *left = 1;
       };
     }},
    {"accounts/reserved", "leaves out half of what it holds", "pool",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         if (state.reserved_bytes) *state.reserved_bytes /= 2;
         return state;
       };
     }},
    {"accounts/reserved", "adds to its largest free block what streams work on", "pool",
     [](W m) {
       auto freed = std::make_shared<std::atomic<std::uint64_t>>(0);
       shell_memalloc(m, [freed](Shell& shell, StreamHandle stream) {
         if (stream.value != 0) *freed += shell.size;
         shell.end(stream);
       });
       m.on_state = [&m, freed] {
         auto state = m.up->state();
         if (state.largest_free_bytes) *state.largest_free_bytes += *freed;
         return state;
       };
     }},
    {"accounts/reset_gives_back", "keeps large blocks through a reset", "default",
     [](W m) {
       auto life = std::make_shared<Epoch>();
       m.on_memalloc = [&m, life](auto size, auto stream) -> Result<MemoryPointer> {
         if (size != 48_MiB) return m.up->memalloc(size, stream);
         auto ptr = m.driver->mem_alloc(size);
         if (!ptr) return std::move(ptr).error();
         const auto end = [&m](Shell& shell, StreamHandle) {
           if (!m.driver->mem_free({shell.address})) shell.up = {};
         };
         return MemoryPointer(*ptr, size, in_shell(Shell{{}, ptr->value, size, end}, life->mark()));
       };
       m.on_ending = [life] { life->advance(); };
     }},
    {"accounts/out_of_memory_deferred", "calls it invalid to run out of memory in a deferral",
     "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_memalloc = [&m, guards](auto size, auto stream) -> Result<MemoryPointer> {
         const std::lock_guard lock(guards->mutex);
         auto memory = m.up->memalloc(size, stream);
         if (!memory && guards->alive > 0) return fault(Errc::invalid_value);
         return memory;
       };
     }},

    {"suite/large", "cuts what is above 1 GiB", "default",
     [](W m) {
       m.driver->on_mem_alloc = [&m](auto size) {
         return m.driver->to.mem_alloc(std::min<std::uint64_t>(size, 1_GiB));
       };
     }},
    {"suite/many", "has no more than 100 blocks", "default",
     [](W m) {
       auto alive = std::make_shared<std::atomic<int>>();
       m.on_memalloc = [&m, alive](auto size, auto stream) -> Result<MemoryPointer> {
         if (alive->load() >= 100) return kOutOfMemory;
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         ++*alive;
         return in_shell(*std::move(memory),
                         [alive](Shell& shell, StreamHandle on) { --*alive, shell.end(on); });
       };
     }},
    {"suite/serves", "refuses every third request of 256 KiB", "default",
     [](W m) {
       m.on_memalloc = [&m, n = 0](auto size, auto stream) mutable -> Result<MemoryPointer> {
         if (size == 256_KiB && ++n % 3 == 0) return kOutOfMemory;
         return m.up->memalloc(size, stream);
       };
     }},
    {"suite/sweep", "clears the newest block where one of a power of two and a byte ends",
     "default",
     [](W m) {
       clear_newest_at_end(m, [](std::uint64_t size, std::uint64_t) {
         return size > 1_MiB && std::has_single_bit(size - 1);
       });
     }},
    {"suite/fragments", "clears the newest block at every 1009th end", "default",
     [](W m) {
       clear_newest_at_end(m, [](std::uint64_t, std::uint64_t ends) { return ends % 1009 == 0; });
     }},
    {"suite/serves", "keeps the pinned blocks that end where the driver has no more", "default",
     [](W m) {
       struct Idle {
         std::mutex mutex;
         std::vector<Lifetime> blocks;
       };
       auto idle = std::make_shared<Idle>();
       m.memory = idle;
       shell_hosted(m, false, [all = idle.get()](Shell& shell, StreamHandle) {
         const std::lock_guard lock(all->mutex);
         all->blocks.push_back(std::move(shell.up));
       });
       m.on_ending = [all = idle.get()] { all->blocks.clear(); };
     }},
    {"suite/beyond_4GiB", "clears the newest block for one of more than 8 GiB", "default",
     [](W m) {
       auto newest = remembers<DevicePtr>();
       m.on_memalloc = [&m, newest](auto size, auto stream) {
         if (size > 8_GiB && *newest) ignore(m.driver->to.memset_d8(*newest, 0, 1));
         auto memory = m.up->memalloc(size, stream);
         if (memory) *newest = memory->device_pointer();
         return memory;
       };
     }},
    {"suite/beyond_4GiB", "takes sizes of page-locked memory for numbers of 32 bits", "default",
     [](W m) {
       m.driver->on_mem_host_alloc = [&m](auto size, auto flags) {
         return m.driver->to.mem_host_alloc(static_cast<std::uint32_t>(size), flags);
       };
     }},
    {"suite/size_zero", "clears the newest block for a request for 0 bytes", "cudart",
     [](W m) {
       auto newest = remembers<DevicePtr>();
       m.on_memalloc = [&m, newest](auto size, auto stream) {
         if (size == 0 && *newest) ignore(m.driver->to.memset_d8(*newest, 0, 1));
         auto memory = m.up->memalloc(size, stream);
         if (memory && size != 0) *newest = memory->device_pointer();
         return memory;
       };
     }},
    {"errors/passed_on", "calls any failure out of memory", "cudart",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory && memory.error().native != 0) return kOutOfMemory;
         return memory;
       };
     }},
    {"errors/out_of_memory", "does not know why a region is refused", "default",
     [](W m) {
       m.on_mempin = [&m](auto range, auto flags, auto owner) -> Result<HostMemory> {
         auto memory = m.up->mempin(range, flags, std::move(owner));
         if (!memory && memory.error().code == Errc::out_of_memory)
           return driver_error(Call::mem_host_register, 999);
         return memory;
       };
     }},
    {"errors/options", "takes any option", "default", [](W) {}},
    {"errors/frees_told", "tells twice of each free that failed", "default",
     [](W m) {
       struct Insistent final : ManagerObserver {
         ManagerObserver* to = nullptr;
         void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override {
           to->pending_added(dtor, size);
         }
         void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
           to->flushed(count, bytes);
         }
         void free_failed(const Error& error) noexcept override {
           to->free_failed(error);
           to->free_failed(error);
         }
       };
       auto insistent = std::make_shared<Insistent>();
       insistent->to = std::exchange(m.context.observer, insistent.get());
       m.memory = insistent;
       m.up = *find_manager("default")->make(m.context);
     }},
    {"errors/frees_told", "takes no notice of regions that cannot be unpinned", "pool",
     [](W m) {
       m.driver->on_mem_host_unregister = [&m](auto pointer) {
         ignore(m.driver->to.mem_host_unregister(pointer));
         return Status();
       };
     }},
    {"errors/words", "says the words of the last failure of any thread", "default",
     [](W m) {
       struct Last {
         std::mutex mutex;
         std::string words;
       };
       auto last = std::make_shared<Last>();
       m.on_memalloc = [&m, last](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (memory) return memory;
         auto error = memory.error();
         {
           const std::lock_guard lock(last->mutex);
           last->words = text::format("{} bytes are too many", size);
         }
         std::this_thread::yield();
         const std::lock_guard lock(last->mutex);
         error.message = last->words;
         return error;
       };
     }},
    {"errors/initialize", "calls any failure of its beginning unknown", "cudart",
     [](W m) {
       m.on_initialize = [&m] {
         const auto done = m.up->initialize();
         return done ? done : Status(Error{.code = Errc::driver_error, .native = 999});
       };
     }},
    {"accounts/pending", "counts the pending frees of every manager", "default",
     [](W m) {
       static std::mutex mutex;
       static std::set<WrongManager*> all;
       if (!m.driver) return;
       {
         const std::lock_guard lock(mutex);
         all.insert(&m);
       }
       m.on_state = [&m] {
         auto state = m.up->state();
         const std::lock_guard lock(mutex);
         for (auto* other : all)
           if (other != &m) *state.pending_count += *other->up->state().pending_count;
         return state;
       };
       m.on_ending = [&m] {
         const std::lock_guard lock(mutex);
         all.erase(&m);
       };
     }},
    {"accounts/pending", "counts the bytes that are pending in KiB", "default",
     [](W m) {
       m.on_state = [&m] {
         auto state = m.up->state();
         if (state.pending_bytes) *state.pending_bytes /= 1_KiB;
         return state;
       };
     }},
    {"accounts/trim", "releases nothing where it is told to trim", "pool",
     [](W m) { m.on_trim = [](auto) { return Status(); }; }},
    {"accounts/trim", "keeps 20 MiB more than it is told", "pool",
     [](W m) { m.on_trim = [&m](auto keep) { return m.up->trim(keep + 20_MiB); }; }},
    {"accounts/host_heap", "remembers each size that it was ever asked for", "cudart",
     [](W m) {
       auto all = std::make_shared<std::list<std::array<std::uint64_t, 8>>>();
       auto mutex = std::make_shared<std::mutex>();
       m.on_memalloc = [&m, all, mutex](auto size, auto stream) {
         {
           const std::lock_guard lock(*mutex);
           all->push_back({size});
         }
         return m.up->memalloc(size, stream);
       };
     }},
    {"accounts/calls", "waits for a stream that is not there", "default",
     [](W m) {
       m.on_flush = [&m] {
         ignore(m.driver->to.stream_synchronize({0xdead}));
         return m.up->flush();
       };
     }},
    {"abi/answers", "writes more of its state than there is room for", "default",
     [](W m) {
       m.on_state = [&m] {
         if (m.context.observer != nullptr) m.context.observer->call_failed(fault(Errc::internal));
         return m.up->state();
       };
     }},
    {"random/model", "nests deferrals two deep", "default",
     [](W m) {
       count_guards(m, [](Guards& guards, std::size_t) {
         if (guards.alive == 2) guards.real.end();  // the third's end ends all
       });
     }},
    {"random/program", "is of version 2 once it is initialized", "default",
     [](W m) {
       m.on_initialize = [&m] {
         m.version = 2;
         return m.up->initialize();
       };
     }},
    {"random/program", "leaks what ends on a stream", "default",
     [](W m) {
       shell_memalloc(m, [](Shell& shell, StreamHandle on) {
         if (on.value == 0) return shell.end(on);
         static std::mutex mutex;
         static auto& kept = *new std::vector<Lifetime>;
         const std::lock_guard lock(mutex);
         kept.push_back(std::move(shell.up));
       });
     }},
    {"stream/own_writes", "clears memory on the default stream, whatever stream it is asked for on",
     "cudart",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (memory) ignore(m.driver->to.memset_d8_async(memory->device_pointer(), 0, size, {}));
         return memory;
       };
     }},
    {"stream/hazards", "frees on the default stream what a stream works on", "async",
     [](W m) {
       m.driver->on_mem_free_async = [&m](DevicePtr ptr, StreamHandle) {
         return m.driver->to.mem_free_async(ptr, {});
       };
     }},
};

}  // namespace

std::span<const Mutant> all_mutants() {
  static const auto all = [] {
    std::vector<Mutant> mutants(std::begin(kMutants), std::end(kMutants));
    for (const auto more : {deferral_mutants(), memory_info_mutants(), flags_mutants(),
                            threads_mutants(), states_mutants()})
      mutants.insert(mutants.end(), more.begin(), more.end());
    return mutants;
  }();
  return all;
}

}  // namespace emm::mutants
