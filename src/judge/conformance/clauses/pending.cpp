#include <algorithm>
#include <thread>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// PD and DFR: the queue of pending frees. It is observed through mapped host memory, whose frees
// wait in every manager that is host-only for host memory.

namespace emm {
namespace {

using namespace emm::conformance;

bool waits(Bench& b) {
  if (b.queue_waits()) return true;
  b.not_applicable(
      "as Numba, a host-only plugin's queue has no capacity, and a sized free does not wait");
  return false;
}

void drop(std::vector<BenchMemory>& blocks) {
  for (auto& block : blocks) block.drop();
}

std::vector<std::uint64_t> freed(Bench& b) {
  std::vector<std::uint64_t> addresses;
  for (const auto& event : b.watch().events()) {
    if (event.call == Call::mem_free_host) addresses.push_back(event.pointer);
  }
  return addresses;
}

constexpr Clause kPendingClauses[] = {
    {.id = "PD-1",
     .rule = "Pending frees are counted, and their bytes.",
     .source = "drv:975-1045",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "accounts/pending",
     .check =
         [](Bench& b) {
           const auto deferred = b.defer();
           b.mapped(64).drop();
           b.mapped(100).drop();
           const auto state = b.manager().state();
           if (!state.pending_count)
             return b.inconclusive("this manager does not say what is pending");
           b.expect_equal("pending frees after two ends", *state.pending_count, 2u);
           b.expect_equal("pending bytes after ends of 64 and 100", state.pending_bytes.value_or(0),
                          164u);
         }},

    {.id = "PD-2",
     .rule =
         "Neither a queue that is exactly at its count nor one exactly at its bytes is flushed.",
     .source = "drv:993-1009",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "PD-3 PD-9",
     .check =
         [](Bench& b) {
           if (!waits(b)) return;
           b.stub().total = 1000;
           auto blocks = b.mapped_blocks(10, 20);
           drop(blocks);
           b.expect_equal("frees at 10 items and 200 of 1000 bytes", b.ends(), 0u);
         }},

    {.id = "PD-3",
     .rule = "Ten pending frees wait; the eleventh makes all eleven.",
     .source = "cfg:471; T:test_max_pending_count",
     .level = Level::must,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           if (!waits(b)) return;
           auto blocks = b.mapped_blocks(11, 64);
           for (std::size_t i = 0; i < 10; ++i) blocks[i].drop();
           b.expect_equal("frees after ten ends", b.ends(), 0u);
           blocks[10].drop();
           b.expect_equal("frees after the eleventh end", b.ends(), 11u);
         }},

    {.id = "PD-4",
     .rule =
         "A fifth of the capacity in bytes, rounded down, waits; one byte more makes all frees.",
     .source = "cfg:476, drv:990; T:test_max_pending_bytes",
     .level = Level::must,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           if (!waits(b)) return;
           b.stub().total = 999;
           b.mapped(199).drop();
           b.expect_equal("frees at 199 of 999 bytes", b.ends(), 0u);
           b.mapped(1).drop();
           b.expect_equal("frees at 200 of 999 bytes", b.ends(), 2u);
         }},

    {.id = "PD-6",
     .rule = "Without a capacity any sized free is made at once.",
     .source = "drv:990",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           auto memory = b.uninitialized().memhostalloc(64, {.mapped = true});
           if (!memory) return b.inconclusive(describe(memory.error()));
           std::get<MappedMemory>(*memory) = MappedMemory({}, {}, {});
           b.expect_equal("frees by an end before initialize()", b.ends(), 1u);
         }},

    {.id = "PD-8",
     .rule = "Pending frees are made in the order in which they were asked for.",
     .source = "drv:1011-1022",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "PD-11 deferral/threads",
     .check =
         [](Bench& b) {
           auto blocks = b.mapped_blocks(3, 64);
           const std::vector<std::uint64_t> order{blocks[2].address(), blocks[0].address(),
                                                  blocks[1].address()};
           auto deferred = b.defer();
           for (const std::size_t i : {2u, 0u, 1u}) blocks[i].drop();
           deferred.end();
           b.watch().forget();
           b.expect_ok("flush()", b.manager().flush());
           b.expect(freed(b) == order, "three ends, the third block's first, and a flush",
                    "another order", "the order of the ends");
         }},

    {.id = "PD-9",
     .rule = "A flush makes every pending free, and counting starts again from nothing.",
     .source = "drv:1011-1022",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           if (!waits(b)) return;
           b.stub().total = 1000;
           for (int i = 0; i < 3; ++i) b.mapped(60).drop();
           b.mapped(21).drop();
           b.expect_equal("frees at 201 of 1000 bytes", b.ends(), 4u);
           b.mapped(200).drop();
           b.expect_equal("frees at 200 bytes after that", b.ends(), 4u);
         }},

    {.id = "PD-11",
     .rule = "A free that fails is out of the queue, and the flush goes on (numba: it stops, and "
             "the rest waits).",
     .source = "drv:1016-1021",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "ERR-2",
     .check =
         [](Bench& b) {
           auto blocks = b.mapped_blocks(3, 64);
           auto deferred = b.defer();
           drop(blocks);
           deferred.end();
           b.watch().forget();
           b.watch().fail(Call::mem_free_host, {0, 700});
           b.expect(!b.manager().flush(), "flush(), whose second free fails", "success",
                    "its error");
           b.expect_equal("frees tried by it", b.ends(), b.is_numba() ? 2u : 3u);
           b.expect_equal("failures that the observer heard of", b.observer().failures(), 1u);
           b.expect_ok("flush() again", b.manager().flush());
           b.expect_equal("frees tried by both", b.ends(), 3u);
         }},

    {.id = "PD-12",
     .rule = "Deferrals nest: nothing is freed until the last has ended.",
     .source = "drv:1025-1035; T:test_nested_defer_cleanup",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "DFR-8 deferral/nests",
     .check =
         [](Bench& b) {
           auto outer = b.defer();
           auto inner = b.defer();
           b.mapped(64).drop();
           inner.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees by flush() inside the outer deferral", b.ends(), 0u);
           outer.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees by flush() after it", b.ends(), 1u);
         }},

    {.id = "PD-13",
     .rule = "While deferred, frees are queued and counted, and crossing a limit makes none.",
     .source = "drv:1025-1035",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "PD-14 deferral/apart deferral/lasts deferral/nests deferral/no_sooner",
     .check =
         [](Bench& b) {
           b.stub().total = 1000;
           auto blocks = b.mapped_blocks(15, 64);
           const auto deferred = b.defer();
           drop(blocks);
           b.expect_equal("frees by 15 ends of 64 bytes, over both limits", b.ends(), 0u);
         }},

    {.id = "PD-14",
     .rule = "The end of a deferral makes no free; the next that crosses a limit makes all.",
     .source = "drv:1025-1035; T:test_defer_cleanup",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           auto blocks = b.mapped_blocks(16, 64);
           auto deferred = b.defer();
           for (std::size_t i = 0; i < 15; ++i) blocks[i].drop();
           deferred.end();
           b.expect_equal("frees by the end of a deferral of 15", b.ends(), 0u);
           blocks[15].drop();
           b.expect_equal("frees by the next end", b.ends(), 16u);
         }},

    {.id = "PD-15",
     .rule = "A flush of an empty queue does nothing.",
     .source = "drv:1011-1022",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           b.expect_ok("flush() of nothing", b.manager().flush());
           b.mapped(64).drop();
           b.expect_ok("flush()", b.manager().flush());
           b.watch().forget();
           b.expect_ok("flush(), again", b.manager().flush());
           b.expect_calls("flush(), again", {});
         }},

    {.id = "PD-16",
     .rule = "Whoever observes a manager hears of each free that is queued, with its size, and of "
             "each flush.",
     .source = "drv:1001, 1019",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "accounts/pending",
     .check =
         [](Bench& b) {
           b.mapped(64).drop();
           b.expect_ok("flush()", b.manager().flush());
           const auto added = b.observer().added();
           const auto flushes = b.observer().flushes();
           b.expect(
               added.size() == 1 && added[0].first == Call::mem_free_host && added[0].second == 64u,
               "the end of mapped memory of 64 bytes",
               text::format("{} queued frees heard of", added.size()),
               "one cuMemFreeHost of 64 bytes");
           b.expect(flushes.size() == 1 && flushes[0].count == 1 && flushes[0].bytes == 64u,
                    "its flush", text::format("{} flushes heard of", flushes.size()),
                    "one, of one free and 64 bytes");
         }},

    {.id = "PD-17",
     .rule = "Threads that end memory and flush at once have each free made once.",
     .source = "drv:1017",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "threads/frees threads/slots",
     .check =
         [](Bench& b) {
           // Threads that free at the same time.
           constexpr std::size_t kThreads = 4;
           b.untraceable();
           b.manager();
           std::vector<std::vector<BenchMemory>> blocks;
           for (std::size_t i = 0; i < kThreads; ++i) blocks.push_back(b.mapped_blocks(50, 64));
           std::vector<std::thread> threads;
           for (auto& own : blocks) {
             threads.push_back(start_thread([&b, &own] {
               for (auto& block : own) {
                 block.drop();
                 if (!b.manager().flush()) return;
               }
             }));
           }
           for (auto& thread : threads) thread.join();
           b.expect_equal("frees of 200 blocks by four threads", b.count(Call::mem_free_host),
                          200u);
           b.expect_equal("of these, refused as made before", b.watch().ledger().double_ends(), 0u);
         }},

    {.id = "PD-18",
     .rule = "Device and managed memory end by cuMemFree, page-locked memory by cuMemFreeHost.",
     .source = "drv:1316-1405",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with =
         "MAN-3 DFR-2 accounts/balance accounts/every_call_failed accounts/refused_frees "
         "deferral/nothing_lost deferral/manager_end flags/memallocmanaged reset/ends_all "
         "accounts/manager_end accounts/pending accounts/trim threads/frees deferral/no_sooner",
     .check =
         [](Bench& b) {
           auto deferred = b.defer();
           b.managed(64).drop();
           b.mapped(64).drop();
           b.pinned(64).drop();
           deferred.end();
           b.watch().forget();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_calls("managed, mapped and pinned memory freed",
                          {Call::mem_free, Call::mem_free_host, Call::mem_free_host});
         }},

    {.id = "DFR-2",
     .rule = "defer_cleanup gives a guard; guards nest, and memory is given and taken back inside.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "deferral/nests deferral/threads",
     .check =
         [](Bench& b) {
           b.manager();
           {
             const auto outer = b.defer();
             auto first = b.any(64_KiB);
             const auto inner = b.defer();
             const auto second = b.any(64_KiB);
             b.fill(second, 4);
             first.drop();
             b.expect(b.holds(second, 4), "memory freed inside two deferrals",
                      "other memory is lost", "it is as it was");
           }
           b.expect_ok("flush()", b.manager().flush());
           b.expect(static_cast<bool>(b.try_managed(64)) || static_cast<bool>(b.try_memalloc(64)) ||
                        static_cast<bool>(b.try_hosted(64, {})),
                    "a request after both", "nothing is given any more", "memory");
           b.expect_balance("the manager's end after deferrals");
         }},

    {.id = "DFR-3",
     .rule = "defer_cleanup holds back the frees of page-locked and managed memory.",
     .source = "drv:850; NBEP 7 for subclasses",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "PD-18 deferral/lasts deferral/no_sooner deferral/told",
     .check =
         [](Bench& b) {
           const auto deferred = b.defer();
           b.mapped(64).drop();
           b.managed(64).drop();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees while cleanup is deferred", b.ends(), 0u);
         }},

    {.id = "DFR-7",
     .rule = "Inside a deferral neither memory that is out nor reset frees anything; unpinning is "
             "still immediate.",
     .source = "drv:728-745, 840-847, 1351-1371",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "RST-8 deferral/reset deferral/lasts deferral/no_sooner",
     .check =
         [](Bench& b) {
           const auto deferred = b.defer();
           auto region = b.pin(b.buffer());
           b.mapped(64).drop();
           b.watch().forget();
           region.drop();
           b.expect_calls("unpinning inside a deferral", {Call::mem_host_unregister});
           b.watch().fail(Call::mem_host_alloc, {2, 2});
           const auto refused = b.try_hosted(64, {.mapped = true});
           b.reset();
           b.expect_equal("frees by memory that is out, and by a reset",
                          b.count(Call::mem_free_host), 0u);
         }},

    {.id = "DFR-8",
     .rule =
         "A guard ends one level, once, in whatever order guards end; and frees nothing by itself.",
     .source = "drv:1025-1035; T:test_exception",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "deferral/nests deferral/threads",
     .check =
         [](Bench& b) {
           auto first = b.defer();
           auto second = b.defer();
           b.mapped(64).drop();
           first.end();
           first.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees after the first guard ended, twice", b.ends(), 0u);
           second.end();
           b.expect_equal("frees by the end of the second", b.ends(), 0u);
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees by flush() after both", b.ends(), 1u);
         }},
};

}  // namespace

extern constinit const ClauseGroup pending_clauses{"Pending frees and deferral", kPendingClauses};

}  // namespace emm
