#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// ERR: where and when memory ends: late, on another thread, while others wait, in another process.

namespace emm {
namespace {

using namespace emm::conformance;

// Every call by which device memory goes back to the driver, and every one by which it comes.
constexpr auto kDeviceFrees = {Call::mem_free, Call::runtime_free, Call::mem_free_async,
                               Call::mem_unmap};
constexpr auto kDeviceAllocations = {Call::mem_alloc,         Call::runtime_malloc,
                                     Call::mem_create,        Call::mem_alloc_async,
                                     Call::mem_alloc_managed, Call::mem_alloc_from_pool_async};

/// Does in a forked child what a program may do with its parent's memory.
[[noreturn]] void go_on_in_child(Bench& b, BenchMemory& block) {
  alarm(20);
  b.watch().fail_all(kNotInitialized);
  block.drop();
  const auto flushed = b.manager().flush();
  const auto next = b.manager().memalloc(4_KiB);
  b.manager().reset();
  _exit(0);
}

std::size_t frees_refused(Bench& b) {
  const auto events = b.watch().events();
  return static_cast<std::size_t>(
      std::count_if(events.begin(), events.end(),
                    [](const auto& event) { return is_end(event.call) && event.native != 0; }));
}

/// State of a free by another thread while one thread is in the driver. The manager's own threads
/// call the hook too.
struct FreeMeanwhile {
  std::mutex mutex;
  std::condition_variable changed;
  int to_come = 0;
  bool closed = false;  // the operation has returned
  bool started = false;
  bool done = false;
  bool in_time = true;
  std::string words;
  std::vector<BenchMemory> blocks;
  std::thread other;
  std::atomic<pid_t> other_id{0};
};

/// Answers whether a thread of this process has work, possibly without a processor yet on a busy
/// machine. 0 is a thread that has not begun.
bool has_work(pid_t thread) {
  if (thread == 0) return true;
  std::ifstream file(text::format("/proc/self/task/{}/stat", thread));
  std::string line;
  std::getline(file, line);
  const auto state = line.rfind(") ");  // after the name, which may contain anything
  return state != std::string::npos && state + 2 < line.size() && line[state + 2] == 'R';
}

enum class Where : std::uint8_t { in_driver, in_driver_flushing, at_host, in_own_thread };

/// Runs `operation`. When it is in the driver for the n-th time, counted from 1, or reports frees
/// to the host, or a thread of the manager's own is in the driver, another thread frees memory, and
/// then flushes or asks for the state. Returns false if the operation is never seen there.
bool run_with_free_meanwhile(Bench& b, Where where, const std::function<void()>& operation,
                             int n = 1) {
  const bool flushes = where == Where::in_driver_flushing;
  auto& hook = where == Where::at_host ? b.observer().during : b.watch().during;
  const auto state = std::make_shared<FreeMeanwhile>();
  state->to_come = n;
  // More than a manager may like to keep beside the others: that free may need another lock.
  constexpr int kSmall = 24;
  state->blocks.push_back(b.any(64_KiB));
  for (int i = 0; i < kSmall; ++i) {
    if (auto small = b.try_memalloc(4_KiB)) state->blocks.push_back(*std::move(small));
  }
  hook = [&b, where, flushes, n, state, home = std::this_thread::get_id()](const CallEvent& event) {
    // A flush may wait for frees that are in progress.
    if (flushes && (is_end(event.call) || std::this_thread::get_id() != home)) return;
    if (where == Where::in_own_thread && std::this_thread::get_id() == home) return;
    std::unique_lock lock(state->mutex);
    if (state->closed || state->started || --state->to_come != 0) return;
    state->started = true;
    state->words = text::format(
        "a free{} by another thread, while {} is in {}{}", flushes ? " and a flush()" : "",
        where == Where::in_own_thread ? "one of the manager's own" : "this one",
        where == Where::at_host ? "pending_added(), flushed() or free_failed()"
                                : call_info(event.call).cuda_name,
        n == 1                    ? std::string()
        : where == Where::at_host ? text::format(", call {}", n)
                                  : text::format(", its driver call {}", n));
    b.set_doing(state->words);
    state->other = start_thread([&b, where, flushes, to = state.get()] {
      to->other_id = gettid();
      for (auto& block : to->blocks) block.drop();
      const auto flushed = flushes ? b.manager().flush() : Status();
      if (where == Where::at_host) {
        static_cast<void>(b.manager().state());
        const auto info = b.manager().get_memory_info();
      }
      const std::lock_guard guard(to->mutex);
      to->done = true;
      to->changed.notify_all();
    });
    constexpr std::chrono::milliseconds kMost{3'000};  // a free takes microseconds
    constexpr int kTurnsMost = 3;                      // while other threads take the processor
    const auto patience = std::min(b.subject().patience, kMost);
    for (int turn = 0; turn < kTurnsMost && (turn == 0 || has_work(state->other_id)); ++turn) {
      state->in_time = state->changed.wait_for(lock, patience, [&] { return state->done; });
      if (state->in_time) break;
    }
  };
  operation();
  // The thread may come later than what woke it.
  for (int i = 0; i < 20 && where == Where::in_own_thread; ++i) {
    {
      const std::lock_guard lock(state->mutex);
      if (state->started) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  hook = nullptr;
  {
    const std::lock_guard lock(state->mutex);
    state->closed = true;
  }
  if (!state->started) return false;
  state->other.join();
  b.set_doing({});
  const std::lock_guard lock(state->mutex);
  b.expect(state->in_time, state->words, "it waits", "it is made");
  return true;
}

/// Makes a large block, managed memory and mapped memory, as far as the manager offers them. They
/// end with the array, the last one first.
std::array<Result<BenchMemory>, 3> make_each_kind(Bench& b) {
  return {b.try_memalloc(b.is_simulated() ? 20_MiB : 512_MiB), b.try_managed(64_KiB),
          b.try_hosted(64, {.mapped = true})};
}

constexpr Clause kEndingsClauses[] = {
    {.id = "ERR-2",
     .rule = "A free that the driver refuses raises nothing where memory ends; whoever observes "
             "the manager hears of it.",
     .source = "CPython, sys.unraisablehook",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "PD-11 errors/frees_told",
     .check =
         [](Bench& b) {
           if (b.is_numba()) return b.not_applicable("as Numba, a flush stops at the first: PD-11");
           std::size_t refused = 0;
           for (std::size_t round = 1; round <= 2; ++round) {
             auto block = b.any(64_KiB);
             auto mapped = b.mapped(64);
             auto region = b.pin(b.buffer());
             for (const auto call : kDeviceFrees) b.watch().fail(call, {700});
             for (const auto call : {Call::mem_free_host, Call::mem_host_unregister})
               b.watch().fail(call, {700});
             block.drop();
             mapped.drop();
             region.drop();
             b.reset();
             refused += frees_refused(b);
             b.watch().forget();
             b.expect(refused >= 2 * round, "frees of mapped memory and of a region",
                      "they are not made", "they are made, and refused");
             b.expect_equal("failures heard of, where a free of each kind is refused",
                            b.observer().failures(), refused);
             for (const auto call : kDeviceFrees) b.watch().fail(call, {});
           }
         }},

    {.id = "ERR-3",
     .rule = "The end of a manager frees what is pending and what is alive (numba abandons it to "
             "the driver).",
     .source = "drv:975-1045; MEM",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with =
         "deferral/manager_end accounts/manager_end threads/frees accounts/refused_frees",
     .check =
         [](Bench& b) {
           b.pinned(64).drop();
           const auto alive = b.mapped(64);
           b.watch().forget();
           b.end_manager();
           b.expect_equal("frees by the end of a manager, with one pending and one alive",
                          b.count(Call::mem_free_host), b.is_numba() ? 0u : 2u);
         }},

    {.id = "ERR-4",
     .rule = "A pointer that ends after its manager does nothing.",
     .source = "rmm#148, rmm#157",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "RST-5 reset/late_ends",
     .not_through_abi = "after destroy the host calls no slot",
     .check =
         [](Bench& b) {
           auto dropped = b.any(64_KiB);
           auto freed = b.any(100);
           auto mapped = b.try_hosted(64, {.mapped = true});
           auto region = b.try_pin(b.buffer());
           // Otherwise pinned memory is abandoned with its pointers: ERR-3.
           if (b.is_numba()) b.reset();
           b.end_manager();
           b.watch().forget();
           dropped.drop();
           for (auto* block : {&mapped, &region}) {
             if (*block) (*block)->drop();
           }
           const auto done = freed.free();
           b.expect_calls("pointers that end after their manager", {});
           b.expect(!freed.alive(), "a pointer after its manager's end", "alive", "dead");
         }},

    {.id = "ERR-5",
     .rule = "Memory may end on any thread, also on one that never called CUDA.",
     .source = "Python's finalizers",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "threads/default_streams",
     .check =
         [](Bench& b) {
           b.untraceable();
           auto kept = b.any(64_KiB);
           b.fill(kept, 5);
           auto ended = b.any(64_KiB);
           auto region = b.try_pin(b.buffer());
           start_thread([&] {
             ended.drop();
             if (region) region->drop();
           }).join();
           b.expect_ok("flush()", b.manager().flush());
           b.expect(b.holds(kept, 5), "memory ended by another thread", "other memory is lost",
                    "it is as it was");
           kept.drop();
           b.expect_balance("memory ended by another thread, then the manager's end");
         }},

    {.id = "ERR-6",
     .rule = "No lock that a free needs is held while the driver is called.",
     .source = "emm_plugin.h: While one runs, the manager holds no lock that free(), or a flush() "
               "after it, needs; numba-cuda#317, rmm#2026",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "errors/callbacks",
     .check =
         [](Bench& b) {
           b.untraceable();
           const auto request = [&b] {
             const auto large = b.try_memalloc(b.is_simulated() ? 40_MiB : 512_MiB);
             const auto managed = b.try_managed(64_KiB);
           };
           const auto request_small = [&b] {  // as many as a slab may hold
             std::vector<Result<MemoryPointer>> made;
             while (made.size() < 2'500)
               made.push_back(b.manager().memalloc(made.size() % 8 == 0 ? 20_KiB : 900));
           };
           const auto request_on_host = [&b] {
             const auto mapped = b.try_hosted(64, {.mapped = true});
             const auto region = b.try_pin(b.buffer());
           };
           const auto request_without_memory = [&b] {
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {2, 2, 2});
             const auto large = b.try_memalloc(b.is_simulated() ? 40_MiB : 512_MiB);
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {});
           };
           const auto end_all_kinds = [&b] {
             b.any(64_KiB).drop();
             { const auto made = make_each_kind(b); }
             if (!b.manager().flush()) return;
           };
           const std::array streams{b.stream(), b.stream()};
           const auto use_streams = [&] {
             auto block = b.try_memalloc(64_KiB, streams[0]);
             if (block && !block->free(streams[1])) return;
             const auto next = b.try_memalloc(64_KiB, streams[0]);
           };
           const auto use_streams_without_memory = [&] {
             std::array blocks{b.try_memalloc(3_MiB, streams[0]),
                               b.try_memalloc(3_MiB, streams[0])};
             for (auto& block : blocks) {
               if (block && !block->free(streams[1])) return;
             }
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {2, 2, 2});
             const auto next = b.try_memalloc(9_MiB, streams[0]);
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {});
           };
           const auto trim = [&b] {
             { const std::array idle{b.try_memalloc(3_MiB), b.try_memalloc(3_MiB)}; }
             if (!b.manager().trim(0)) return;
           };
           const auto leave_much = [&b] {  // more than lies beside live memory
             b.leave_idle(16, b.affordable(320_MiB) / 20);
           };
           const auto trim_idle = [&b] {
             if (!b.manager().trim(0)) return;
           };
           const auto ask = [&b] {
             if (!b.manager().get_memory_info()) return;
           };
           const auto kept = b.try_memalloc(64_KiB);
           const auto export_handle = [&] {
             if (kept && !b.manager().get_ipc_handle(kept->view())) return;
           };
           const auto leave_for_its_thread = [&] {  // more idle memory, and frees that wait
             leave_much();
             for (const auto size : {4_KiB, 200_KiB}) b.leave_idle(2'000, size);
             for (int i = 0; i < 30; ++i) b.try_hosted(64_KiB, {}).has_value();
           };
           bool any = run_with_free_meanwhile(b, Where::in_own_thread, leave_for_its_thread);
           any |= run_with_free_meanwhile(b, Where::in_driver_flushing, request);
           any |= run_with_free_meanwhile(b, Where::in_driver_flushing, request_on_host);
           const auto at_each_call = [&](const std::function<void()>& operation, int most,
                                         const std::function<void()>& prepare) {
             for (int n = 1; n <= most && !b.decided(); ++n) {
               prepare();
               if (!run_with_free_meanwhile(b, Where::in_driver, operation, n)) return;
               any = true;
             }
           };
           for (const auto& operation : std::initializer_list<std::function<void()>>{
                    request, request_on_host, request_without_memory, end_all_kinds, use_streams,
                    use_streams_without_memory, trim, ask, export_handle})
             at_each_call(operation, 12, [] {});
           // What the turn before left idle would serve without the driver.
           for (const auto& operation :
                std::initializer_list<std::function<void()>>{request, request_on_host})
             at_each_call(operation, 12, [&] {
               static_cast<void>(b.manager().flush().has_value());
               static_cast<void>(b.manager().trim(0).has_value());
             });
           for (const auto& operation :
                std::initializer_list<std::function<void()>>{trim_idle, request_without_memory})
             at_each_call(operation, 6, leave_much);
           any |= run_with_free_meanwhile(b, Where::in_driver, [&b] { b.reset(); });
           for (const auto& operation : std::initializer_list<std::function<void()>>{
                    request_small, request, request_on_host, trim, ask}) {
             for (int depth = 1; depth <= 2; ++depth) {
               static_cast<void>(b.manager().flush().has_value());
               static_cast<void>(b.manager().trim(0).has_value());
               const auto deferred = b.defer();
               const auto nested = depth > 1 ? std::optional(b.defer()) : std::nullopt;
               at_each_call(operation, 4, [] {});
             }
           }
           if (!any) b.inconclusive("the driver calls of this manager are not seen here");
         }},

    {.id = "errors/callbacks",
     .rule =
         "No lock that a slot needs is held while the host is told of frees, since the host may "
         "call back.",
     .source = "emm_plugin.h, emm_host_v1",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "ERR-6",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.expect(true, {}, {}, {});
           const auto free_all_kinds = [&b] {
             { const auto made = make_each_kind(b); }
             if (!b.manager().flush()) return;
           };
           const auto defer = [&] {
             const auto deferred = b.defer();
             const auto managed = b.try_managed(64_KiB);
           };
           const auto set_frees = [&b](std::initializer_list<std::int32_t> codes) {
             for (const auto call : kDeviceFrees) b.watch().fail(call, codes);
             b.watch().fail(Call::mem_free_host, codes);
           };
           const auto fail = [&] {
             set_frees({700});
             free_all_kinds();
             set_frees({});
           };
           const auto trim = [&] {
             b.leave_idle(1, 20_MiB);
             set_frees({700});
             static_cast<void>(b.manager().trim(0).has_value());
             set_frees({});
           };
           const auto run_out = [&] {
             set_frees({700});
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {2, 2, 2});
             static_cast<void>(b.try_memalloc(40_MiB).has_value());
             for (const auto call : kDeviceAllocations) b.watch().fail(call, {});
             set_frees({});
           };
           const auto run_out_idle = [&] {
             b.leave_idle(1, 20_MiB);
             run_out();
           };
           const auto run_out_pending = [&] {
             static_cast<void>(b.try_managed(64_KiB).has_value());
             static_cast<void>(b.try_hosted(64, {.mapped = true}).has_value());
             run_out();
           };
           const auto reset = [&] {
             const auto made = make_each_kind(b);
             b.reset();
           };
           for (const auto& operation : std::initializer_list<std::function<void()>>{
                    free_all_kinds, defer, fail, trim, run_out_idle, run_out_pending, reset}) {
             // Driver calls of an operation that the free may come between.
             constexpr int kMostCalls = 4;
             for (int n = 1; n <= kMostCalls && !b.decided(); ++n)
               if (!run_with_free_meanwhile(b, Where::at_host, operation, n)) break;
           }
         }},

    {.id = "ERR-7",
     .rule = "In a forked child, where the driver answers nothing, ends and requests neither crash "
             "nor hang.",
     .source = "drv:357-361; T:test_fork",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           auto block = b.any(64_KiB);
           // A manager's own thread, which its first free may begin, is not in the child.
           b.any(64_KiB).drop();
           static_cast<void>(b.manager().flush().has_value());
           if (b.decided()) return;
           const auto child = b.fork_process();
           if (child < 0) return b.inconclusive("this process cannot fork");
           if (child == 0) go_on_in_child(b, block);
           int status = 0;
           while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
           }
           b.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                    "the end of memory and a request in a forked child",
                    WIFSIGNALED(status) ? text::format("signal {}", WTERMSIG(status))
                                        : text::format("exit {}", WEXITSTATUS(status)),
                    "it goes on");
         }},
};

}  // namespace

extern constinit const ClauseGroup endings_clauses{"Late ends, threads, processes",
                                                   kEndingsClauses};

}  // namespace emm
