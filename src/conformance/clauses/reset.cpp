#include "base/units.hpp"
#include "conformance/bench.hpp"

// RST of a manager.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr Clause kResetClauses[] = {
    {.id = "RST-2",
     .rule = "reset frees what is pending first, then what is alive, in the order in which it was "
             "handed out.",
     .source = "drv:840-847",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "ERR-2",
     .check =
         [](Bench& b) {
           auto waiting = b.mapped(64);
           auto live = b.mapped_blocks(3, 64);
           std::vector<std::uint64_t> order{waiting.address()};
           for (const auto& block : live) order.push_back(block.address());
           waiting.drop();
           b.reset();
           std::vector<std::uint64_t> freed;
           for (const auto& event : b.watch().events()) {
             if (event.call == Call::mem_free_host) freed.push_back(event.pointer);
           }
           b.expect_equal("frees by reset, with one pending and three alive", freed.size(), 4u);
           b.expect(freed == order, "reset, with one pending and three alive", "another order",
                    "pending, then as handed out");
         }},

    {.id = "RST-3",
     .rule = "reset may come before initialize, and again; the manager serves afterwards.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           for (int i = 0; i < 2; ++i) b.reset();
           b.expect_ok("initialize() after reset", b.uninitialized().initialize());
           {
             const auto block = b.any(64_KiB);
             b.reset();
             b.reset();
           }
           auto next = b.any(64_KiB);
           b.expect(next.alive() && b.fill(next, 1), "a request after four resets", "no memory",
                    "memory");
           next.drop();
           b.expect_balance("four resets, then the manager's end");
         }},

    {.id = "RST-5",
     .rule = "reset ends everything that the manager handed out (numba: unmapped page-locked "
             "memory lives on).",
     .source = "NBEP 7 against drv:840-847",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "RST-7",
     .check =
         [](Bench& b) {
           const auto block = b.any(64_KiB);
           const auto mapped = b.mapped(64);
           const auto pinned = b.pinned(64);
           const auto region = b.pin(b.buffer());
           b.watch().forget();
           b.reset();
           b.expect(!mapped.alive(), "reset", "mapped memory is alive", "dead");
           b.expect(!block.alive() || b.is_numba(), "reset", "device memory is alive", "dead");
           b.expect_equal("frees of one mapped and one pinned block", b.count(Call::mem_free_host),
                          b.is_numba() ? 1u : 2u);
           b.expect_equal("regions unpinned", b.count(Call::mem_host_unregister),
                          b.is_numba() ? 0u : 1u);
           b.expect(pinned.alive() == b.is_numba(), "reset", "pinned memory is not as it should be",
                    "dead; alive as numba");
         }},

    {.id = "RST-7",
     .rule = "What reset ends is given back once, whatever ends later.",
     .source = "drv:840-847",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           auto first = b.any(64_KiB);
           auto second = b.any(100);
           auto mapped = b.try_hosted(64, {.mapped = true});
           auto pinned = b.try_hosted(64, {});
           auto region = b.try_pin(b.buffer());
           b.reset();
           first.drop();
           for (auto* block : {&mapped, &pinned, &region}) {
             if (*block) (*block)->drop();
           }
           const auto freed = second.free();
           b.expect_balance("reset with memory alive, then its finalizers, then the manager's end");
         }},

    {.id = "RST-8",
     .rule = "reset inside a deferral ends memory and frees none of it; the frees wait for a flush "
             "after.",
     .source = "drv:840-847, 1016",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "DFR-7",
     .check =
         [](Bench& b) {
           const auto block = b.mapped(64);
           auto deferred = b.defer();
           b.watch().forget();
           b.reset();
           b.expect(!block.alive(), "reset inside a deferral", "the pointer is alive",
                    "it is dead");
           b.expect_equal("frees by it", b.ends(), 0u);
           deferred.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees by flush() after it", b.ends(), 1u);
         }},

    {.id = "RST-9",
     .rule = "Mapped memory that is looked at through a view when reset ends it is freed once "
             "(numba-cuda leaks it).",
     .source = "drv:1344, 1367; numba-cuda#529",
     .level = Level::quirk,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           auto stale = b.mapped(72);
           const auto view = stale.view().view(8);
           b.reset();
           const auto next = b.mapped(72);
           stale.drop();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees of one block that was reset", b.count(Call::mem_free_host), 1u);
           b.expect(next.alive(), "the end of memory that was reset", "the next block is dead",
                    "it is alive");
         }},
};

}  // namespace

extern constinit const ClauseGroup reset_clauses{"Reset", kResetClauses};

}  // namespace emm
