#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.hpp"
#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Managers that are wrong in some state alone, or in two at once.

namespace emm::mutants {
namespace {

using W = WrongManager&;

const Error kNoMemory{.code = Errc::out_of_memory, .native = 2};
const Error kRefused{.code = Errc::invalid_value, .native = 1};

struct Idle {
  std::mutex mutex;
  std::vector<Lifetime> blocks;
};

const Mutant kStatesMutants[] = {
    {"states/operations", "gives no managed memory after a reset inside a deferral", "cudart",
     [](W m) {
       auto guards = count_guards(m);
       auto refuses = std::make_shared<std::atomic<bool>>(false);
       m.on_reset = [&m, guards, refuses] {
         {
           const std::lock_guard lock(guards->mutex);
           *refuses = guards->alive > 0;
         }
         m.up->reset();
       };
       m.on_memallocmanaged = [&m, refuses](auto size, auto attach) -> Result<ManagedMemory> {
         if (*refuses) return kRefused;
         return m.up->memallocmanaged(size, attach);
       };
     }},
    {"states/before_initialize", "cannot be initialized after a trim", "default",
     [](W m) {
       auto is_ready = std::make_shared<std::atomic<bool>>(false);
       auto is_spoilt = std::make_shared<std::atomic<bool>>(false);
       m.on_trim = [&m, is_ready, is_spoilt](auto keep) {
         if (!*is_ready) *is_spoilt = true;
         return m.up->trim(keep);
       };
       m.on_initialize = [&m, is_ready, is_spoilt]() -> Status {
         if (*is_spoilt) return kRefused;
         *is_ready = true;
         return m.up->initialize();
       };
     }},
    {"states/forks", "ends a forked child that trims", "default",
     [](W m) {
       m.on_trim = [&m, pid = getpid()](auto keep) {
         if (getpid() != pid) std::_Exit(1);
         return m.up->trim(keep);
       };
     }},
    {"states/streams", "frees on the default stream what a stream works on, inside a deferral",
     "async",
     [](W m) {
       auto guards = count_guards(m);
       m.driver->on_mem_free_async = [&m, guards](DevicePtr ptr, StreamHandle stream) {
         const std::lock_guard lock(guards->mutex);
         return m.driver->to.mem_free_async(ptr, guards->alive > 0 ? StreamHandle{} : stream);
       };
     }},
    {"states/refusals", "keeps freed managed memory where the driver has no more", "default",
     [](W m) {
       auto idle = std::make_shared<Idle>();
       m.memory = idle;
       shell_managed(m, [all = idle.get()](Shell& shell, StreamHandle) {
         const std::lock_guard lock(all->mutex);
         all->blocks.push_back(std::move(shell.up));
       });
       m.on_ending = [all = idle.get()] { all->blocks.clear(); };
     }},
    {"suite/limit", "counts each block as 4 KiB at least in a limit of 8 MiB", "cudart",
     [](W m) {
       auto counted = std::make_shared<std::atomic<std::uint64_t>>(0);
       m.on_memalloc = [&m, counted](auto size, auto stream) -> Result<MemoryPointer> {
         const auto rounded = std::max<std::uint64_t>(size, 4_KiB);
         if (*counted + rounded > 8_MiB) return kNoMemory;
         auto memory = m.up->memalloc(size, stream);
         if (!memory) return memory;
         *counted += rounded;
         return in_shell(*std::move(memory), [counted, rounded](Shell& shell, StreamHandle on) {
           *counted -= rounded;
           shell.end(on);
         });
       };
       m.on_reset = [&m, counted] {
         *counted = 0;
         m.up->reset();
       };
     }},
};

}  // namespace

std::span<const Mutant> states_mutants() { return kStatesMutants; }

}  // namespace emm::mutants
