#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Managers that are wrong where several threads call, or several managers are.

namespace emm::mutants {
namespace {

using W = WrongManager&;

const StreamHandle kNoStream{};

const Mutant kThreadsMutants[] = {
    {"threads/accounts", "loses updates of live bytes", "cudart",
     [](W m) {
       auto live = std::make_shared<std::atomic<std::uint64_t>>(0);
       const auto add = [](std::atomic<std::uint64_t>& to, std::uint64_t bytes) {
         const auto seen = to.load();
         std::this_thread::yield();
         to.store(seen + bytes);
       };
       m.on_memalloc = [&m, live, add](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         add(*live, size);
         return in_shell(*std::move(memory), [live, add](Shell& shell, StreamHandle on) {
           if (shell.up.alive()) add(*live, 0 - shell.size);
           shell.end(on);
         });
       };
       m.on_memallocmanaged = [&m, live, add](auto size, auto attach) -> Result<ManagedMemory> {
         auto memory = m.up->memallocmanaged(size, attach);
         if (!memory) return memory;
         add(*live, size);
         return in_shell(*std::move(memory), [live, add](Shell& shell, StreamHandle on) {
           if (shell.up.alive()) add(*live, 0 - shell.size);
           shell.end(on);
         });
       };
       m.on_reset = [&m, live] {
         live->store(0);
         m.up->reset();
       };
       m.on_state = [&m, live] {
         auto state = m.up->state();
         state.live_bytes = live->load();
         return state;
       };
     }},
    {"threads/overlap", "gives two threads that ask at once one block", "cudart",
     [](W m) {
       struct Asking {
         std::atomic<int> threads{0};
         std::atomic<std::uint64_t> last{0};
       };
       auto asking = std::make_shared<Asking>();
       m.on_memalloc = [&m, asking](auto size, auto stream) -> Result<MemoryPointer> {
         const auto others = asking->threads.fetch_add(1);
         const auto last = asking->last.load();
         auto memory = m.up->memalloc(size, stream);
         if (memory) asking->last = memory->device_pointer().value;
         --asking->threads;
         if (!memory || others == 0 || last == 0 || size > 2_KiB) return memory;
         return as(*std::move(memory), {last}, size);
       };
     }},
    {"threads/ended", "frees what a thread ended when that thread asks again", "cudart",
     [](W m) {
       struct Kept {
         std::mutex mutex;
         std::vector<Lifetime> lifetimes;
         std::thread::id home = std::this_thread::get_id();
       };
       auto kept = std::make_shared<Kept>();
       m.memory = kept;
       auto* const all = kept.get();
       shell_memalloc(m, [all](Shell& shell, StreamHandle stream) {
         if (std::this_thread::get_id() == all->home) return shell.end(stream);
         const std::lock_guard lock(all->mutex);
         all->lifetimes.push_back(std::move(shell.up));
       });
       m.on_flush = [&m, all] {
         std::vector<Lifetime> ended;
         {
           const std::lock_guard lock(all->mutex);
           ended.swap(all->lifetimes);
         }
         ended.clear();
         return m.up->flush();
       };
       m.on_ending = [all] { all->lifetimes.clear(); };
     }},
    {"threads/frees", "forgets a free of host memory that comes while another is made", "cudart",
     [](W m) {
       auto busy = std::make_shared<std::atomic<int>>(0);
       if (!m.driver) return;
       m.driver->on_mem_free_host = [&m, busy](HostPtr ptr) {
         const auto others = busy->fetch_add(1);
         std::this_thread::yield();
         auto freed = others == 0 ? m.driver->to.mem_free_host(ptr) : Status();
         --*busy;
         return freed;
       };
     }},
    {"threads/slots", "refuses to initialize while another thread does", "cudart",
     [](W m) {
       auto busy = std::make_shared<std::atomic<int>>(0);
       m.on_initialize = [&m, busy]() -> Status {
         const auto others = busy->fetch_add(1);
         std::this_thread::sleep_for(std::chrono::microseconds(200));
         auto done = others == 0 ? m.up->initialize()
                                 : Status(Error{.code = Errc::invalid_value, .message = "busy"});
         --*busy;
         return done;
       };
     }},
    {"threads/managers_apart", "serves every device from the first one's", "cudart",
     [](W m) {
       static std::mutex mutex;
       static std::vector<WrongManager*> all;
       if (!m.driver) return;
       const std::lock_guard lock(mutex);
       all.push_back(&m);
       m.on_memalloc = [&m](auto size, auto stream) {
         auto* from = &m;
         {
           const std::lock_guard guard(mutex);
           for (auto* one : all) {
             if (m.driver->device_ordinal() > one->driver->device_ordinal()) from = one;
           }
         }
         return from->up->memalloc(size, stream);
       };
       m.on_ending = [&m] {
         const std::lock_guard guard(mutex);
         std::erase(all, &m);
       };
     }},
    {"threads/managers_apart", "abandons page-locked memory where another manager was reset",
     "cudart",
     [](W m) {
       static std::atomic<int> resets{0};
       auto own = std::make_shared<std::atomic<int>>(0);
       if (!m.driver) return;
       m.on_reset = [&m, own] {
         ++resets;
         ++*own;
         m.up->reset();
       };
       m.on_ending = [&m, own, before = resets.load()] {
         if (resets - before != *own) m.driver->on_mem_free_host = [](auto) { return Status(); };
       };
     }},
    {"threads/default_streams", "takes the per-thread default stream for the default stream",
     "pool",
     [](W m) {
       m.on_memalloc = [&m](auto size, auto stream) -> Result<MemoryPointer> {
         auto memory = m.up->memalloc(size, stream == kPerThreadStream ? kNoStream : stream);
         if (!memory) return memory;
         return in_shell(*std::move(memory), [](Shell& shell, StreamHandle on) {
           shell.end(on == kPerThreadStream ? kLegacyStream : on);
         });
       };
     }},
};

}  // namespace

std::span<const Mutant> threads_mutants() { return kThreadsMutants; }

}  // namespace emm::mutants
