#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "further_mutants.hpp"
#include "rule_breaks.hpp"

// Wrong deferrals. The manager below holds back its device frees inside a deferral, as a pool may
// do, and makes them when the last one ends.

namespace emm::mutants {
namespace {

using W = WrongManager&;

enum class Wrong : std::uint8_t {
  nothing,
  one_level,
  ends_with_reset,
  of_its_thread,
  flush_frees,
  flush_ends_it,
};

struct Deferring {
  std::mutex mutex;
  std::size_t depth = 0;
  std::thread::id owner;
  std::vector<Lifetime> waiting;
  std::uint64_t waiting_bytes = 0;
  std::size_t alive = 0;  // guards, however wrong the depth is
  DeferCleanup host;      // the upstream's, for memory of other kinds

  std::vector<Lifetime> take() {
    waiting_bytes = 0;
    return std::exchange(waiting, {});
  }
};

void leave_deferral(void* self) noexcept {
  auto& kept = *static_cast<Deferring*>(self);
  std::vector<Lifetime> ended;
  DeferCleanup host;
  const std::lock_guard lock(kept.mutex);
  if (kept.depth > 0) --kept.depth;
  if (kept.depth == 0) ended = kept.take();
  if (--kept.alive == 0) host = std::move(kept.host);
}

void defer(W m, Wrong wrong) {
  auto kept = std::make_shared<Deferring>();
  m.memory = kept;
  auto* const all = kept.get();
  shell_memalloc(m, [all, wrong](Shell& shell, StreamHandle stream) {
    {
      const std::lock_guard lock(all->mutex);
      const auto mine = wrong != Wrong::of_its_thread || all->owner == std::this_thread::get_id();
      if (all->depth > 0 && mine) {
        all->waiting_bytes += shell.size;
        all->waiting.push_back(std::move(shell.up));
        return;
      }
    }
    shell.end(stream);
  });
  m.on_defer_cleanup = [&m, all, wrong] {
    const std::lock_guard lock(all->mutex);
    all->depth = wrong == Wrong::one_level ? 1 : all->depth + 1;
    all->owner = std::this_thread::get_id();
    if (all->alive++ == 0) all->host = m.up->defer_cleanup();
    return DeferCleanup(leave_deferral, all);
  };
  m.on_flush = [&m, all, wrong] {
    std::vector<Lifetime> ended;
    {
      const std::lock_guard lock(all->mutex);
      if (wrong == Wrong::flush_ends_it) all->depth = 0;
      if (wrong == Wrong::flush_frees || all->depth == 0) ended = all->take();
    }
    ended.clear();
    return m.up->flush();
  };
  m.on_reset = [&m, all, wrong] {
    {
      const std::lock_guard lock(all->mutex);
      const auto ended = all->take();
      if (wrong == Wrong::ends_with_reset) all->depth = 0;
    }
    m.up->reset();
  };
  m.on_state = [&m, all] {
    auto state = m.up->state();
    const std::lock_guard lock(all->mutex);
    *state.live_bytes -= all->waiting_bytes;
    return state;
  };
  m.on_ending = [all] { all->waiting.clear(); };
}

/// Forgets each device free of a deferral after the first `most`.
void lose_after(W m, std::size_t most) {
  auto guards = count_guards(m);
  auto count = remembers<std::size_t>(0);
  shell_memalloc(m, [guards, count, most](Shell& shell, StreamHandle stream) {
    const auto number = [&] {
      const std::lock_guard lock(guards->mutex);
      return *count = guards->alive == 0 ? 0 : *count + 1;
    }();
    if (number <= most) return shell.end(stream);
    static std::mutex mutex;
    static auto& lost = *new std::vector<Lifetime>;
    const std::lock_guard lock_lost(mutex);
    lost.push_back(std::move(shell.up));
  });
}

const Mutant kRightManagers[] = {
    {"deferral/*", "holds back device frees until the last deferral ends", "cudart",
     [](W m) { defer(m, Wrong::nothing); }},
};

const Mutant kDeferralMutants[] = {
    {"deferral/nests", "knows one level of deferral", "cudart",
     [](W m) { defer(m, Wrong::one_level); }},
    {"deferral/apart", "flushes nothing while any manager defers", "default",
     [](W m) {
       static std::atomic<int> deferring{0};
       count_guards(m, [](Guards&, std::size_t) { --deferring; });
       m.on_defer_cleanup = [defer = m.on_defer_cleanup] {
         ++deferring;
         return defer();
       };
       m.on_flush = [&m] { return deferring > 0 ? Status() : m.up->flush(); };
     }},
    {"deferral/threads", "defers the frees of the thread that began the deferral", "cudart",
     [](W m) { defer(m, Wrong::of_its_thread); }},
    {"deferral/reset", "ends the deferral with a reset", "cudart",
     [](W m) { defer(m, Wrong::ends_with_reset); }},
    {"deferral/flush", "frees in a flush inside a deferral", "cudart",
     [](W m) { defer(m, Wrong::flush_frees); }},
    {"deferral/flush", "ends the deferral with a flush", "cudart",
     [](W m) { defer(m, Wrong::flush_ends_it); }},
    {"deferral/lasts", "flushes where memory information is asked for in a deferral", "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_get_memory_info = [&m, guards] {
         const std::lock_guard lock(guards->mutex);
         if (guards->alive > 0) {
           guards->real.end();
           ignore(m.up->flush());
           guards->real = m.up->defer_cleanup();
         }
         return m.up->get_memory_info();
       };
     }},
    {"deferral/no_sooner", "frees managed memory at once in a deferral", "cudart",
     [](W m) {
       auto guards = count_guards(m);
       shell_managed(m, [&m, guards](Shell& shell, StreamHandle) {
         const std::lock_guard lock(guards->mutex);
         shell.end();
         if (guards->alive == 0) return;
         guards->real.end();
         ignore(m.up->flush());
         guards->real = m.up->defer_cleanup();
       });
     }},
    {"deferral/told", "makes what waits where memory is asked for on a stream in a deferral",
     "default",
     [](W m) {
       auto guards = count_guards(m);
       m.on_memalloc = [&m, guards](auto size, auto stream) {
         const std::lock_guard lock(guards->mutex);
         if (guards->alive > 0 && stream.value != 0) {
           guards->real.end();
           ignore(m.up->flush());
           guards->real = m.up->defer_cleanup();
         }
         return m.up->memalloc(size, stream);
       };
     }},
    {"deferral/nothing_lost", "loses the 129th free of a deferral, and those after it", "pool",
     [](W m) { lose_after(m, 128); }},
    {"deferral/nothing_lost", "loses the 33rd free of a deferral, and those after it", "cudart",
     [](W m) { lose_after(m, 32); }},
    {"deferral/manager_end", "abandons what a deferral held back", "default",
     [](W m) {
       auto deferred = remembers(false);
       m.on_defer_cleanup = [&m, deferred] {
         *deferred = true;
         return m.up->defer_cleanup();
       };
       m.on_flush = [&m, deferred] {
         *deferred = false;
         return m.up->flush();
       };
       m.on_ending = [&m, deferred] {
         if (!*deferred) return;
         m.driver->on_mem_free_host = [](auto) { return Status(); };
         m.driver->on_mem_free = [](auto) { return Status(); };
       };
     }},
};

}  // namespace

std::span<const Mutant> right_managers() { return kRightManagers; }
std::span<const Mutant> deferral_mutants() { return kDeferralMutants; }

}  // namespace emm::mutants
