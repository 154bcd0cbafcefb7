#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// DEV: memalloc.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr Clause kDeviceMemoryClauses[] = {
    {.id = "DEV-1",
     .rule = "memalloc gives exactly the size asked for, all of it usable, at an address that is "
             "not null.",
     .source = "NBEP 7; DOC",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/sizes suite/random suite/large suite/many suite/beyond_4GiB",
     .check =
         [](Bench& b) {
           for (const std::uint64_t size :
                {std::uint64_t{1}, std::uint64_t{255}, 4_KiB, 1_MiB + 1}) {
             const auto block = b.try_memalloc(size);
             if (!block && block.error().code == Errc::not_supported)
               return b.not_applicable(describe(block.error()));
             if (!b.expect_ok(text::format("memalloc({})", size), block)) return;
             b.expect_equal(text::format("the size of memalloc({})", size), block->size(), size);
             b.expect(block->alive(), text::format("memalloc({})", size), "the pointer is dead",
                      "alive");
             b.expect(block->address() != 0, text::format("memalloc({})", size), "null",
                      "an address");
             b.expect(b.fill(*block, 0x2b) && b.holds(*block, 0x2b),
                      text::format("all {} bytes written and read", size),
                      "not all of it is memory", "what was written");
           }
         }},

    {.id = "DEV-2",
     .rule = "Size 0 goes to the driver, and its answer comes back unchanged.",
     .source = "drv:891",
     .level = Level::should,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           const auto block = b.try_memalloc(0);
           b.expect_error("memalloc(0)", block, Errc::invalid_value);
           b.expect_equal("calls of cuMemAlloc", b.count(Call::mem_alloc), 1u);
         }},

    {.id = "DEV-3",
     .rule = "Where memory is out, the pending frees are made, oldest first, and the request once "
             "more; its answer is final.",
     .source = "drv:728-745; MEM; numba#2046",
     .level = Level::must,
     .scope = Scope::deflt,
     .may_fail_with = "DEV-7 suite/fill",
     .check =
         [](Bench& b) {
           auto pending = b.mapped_blocks(2, 64);
           for (auto& block : pending) block.drop();
           b.watch().forget();
           b.watch().fail(Call::mem_alloc, {2});
           const auto block = b.try_memalloc(4_KiB);
           b.expect_ok("memalloc, which ran out of memory once", block);
           b.expect_calls(
               "memalloc, which ran out of memory once, with two frees pending",
               {Call::mem_alloc, Call::mem_free_host, Call::mem_free_host, Call::mem_alloc});
           b.watch().forget();
           b.watch().fail(Call::mem_alloc, {2, 2});
           b.expect_error("memalloc, which ran out of memory twice", b.try_memalloc(4_KiB),
                          Errc::out_of_memory);
           b.expect_equal("calls of cuMemAlloc", b.count(Call::mem_alloc), 2u);
         }},

    {.id = "DEV-4",
     .rule = "Any other error is final: nothing is flushed, nothing tried again.",
     .source = "drv:744",
     .level = Level::should,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           b.mapped(64).drop();
           b.watch().forget();
           b.watch().fail(Call::mem_alloc, {700});
           const auto block = b.try_memalloc(4_KiB);
           b.expect(!block && block.error().native == 700, "memalloc, which failed with 700",
                    block ? "success" : answer_of(block.error()),
                    "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
           b.expect_calls("memalloc, which failed with 700", {Call::mem_alloc});
         }},

    {.id = "DEV-5",
     .rule = "While cleanup is deferred a request that is out of memory flushes nothing, and is "
             "still tried once more.",
     .source = "drv:738, 1016",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           const auto deferred = b.defer();
           b.mapped(64).drop();
           b.watch().forget();
           b.watch().fail(Call::mem_alloc_managed, {2, 2});
           b.expect_error("memallocmanaged, out of memory twice", b.try_managed(4_KiB),
                          Errc::out_of_memory);
           b.expect_calls("memallocmanaged, out of memory twice, while cleanup is deferred",
                          {Call::mem_alloc_managed, Call::mem_alloc_managed});
         }},

    {.id = "DEV-7",
     .rule = "A free that fails in that flush does not end the request (numba: it does, with the "
             "error of the free).",
     .source = "drv:738, 1019",
     .level = Level::quirk,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           b.mapped(64).drop();
           b.watch().forget();
           b.watch().fail(Call::mem_alloc, {2});
           b.watch().fail(Call::mem_free_host, {700});
           const auto block = b.try_memalloc(4_KiB);
           b.expect_equal("native error of memalloc whose flush failed with 700",
                          block ? 0 : block.error().native, b.is_numba() ? 700 : 0);
           b.expect_equal("calls of cuMemAlloc", b.count(Call::mem_alloc), b.is_numba() ? 1u : 2u);
         }},

    {.id = "DEV-8",
     .rule = "What is handed out is recorded until it ends.",
     .source = "drv:895-901",
     .level = Level::should,
     .scope = Scope::deflt,
     .may_fail_with = "accounts/live_bytes",
     .check =
         [](Bench& b) {
           auto block = b.memalloc(4_KiB);
           const auto other = b.memalloc(100);
           b.expect_equal("live bytes of blocks of 4096 and 100",
                          b.manager().state().live_bytes.value_or(0), 4196u);
           block.drop();
           b.expect_equal("live bytes after the larger ended",
                          b.manager().state().live_bytes.value_or(0), 100u);
         }},

    {.id = "DEV-9",
     .rule = "The end of device memory queues its free, and makes none itself.",
     .source = "drv:1316-1325",
     .level = Level::should,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           auto block = b.memalloc(4_KiB);
           const auto address = block.address();
           b.watch().forget();
           block.drop();
           b.expect_calls("the end of a block", {});
           b.expect_ok("flush()", b.manager().flush());
           b.expect_calls("flush()", {Call::mem_free});
           b.expect(b.decided() || b.watch().events()[0].pointer == address, "flush()",
                    "another address", "the block's");
         }},

    {.id = "DEV-10",
     .rule = "Each request is one driver allocation of exactly its size: nothing is rounded, "
             "nothing kept.",
     .source = "drv:891",
     .level = Level::should,
     .scope = Scope::deflt,
     .check =
         [](Bench& b) {
           b.manager();
           for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{513},
                                            std::uint64_t{513}, 4_KiB + 1, 2_MiB + 1, 33_MiB}) {
             b.watch().forget();
             auto block = b.memalloc(size);
             b.expect_calls(text::format("memalloc({})", size), {Call::mem_alloc});
             if (b.decided()) return;
             b.expect_equal("bytes asked of cuMemAlloc", b.watch().events()[0].size, size);
             block.drop();
             b.expect_ok("flush()", b.manager().flush());
           }
         }},

    {.id = "DEV-11",
     .rule = "The finalizer of memory that a reset ended frees nothing, whoever has its address by "
             "then.",
     .source = "DOC; rmm's comments; the tutorial",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "accounts/balance accounts/every_call_failed accounts/refused_frees RST-3 "
                      "RST-5 RST-7 threads/managers_apart reset/late_ends",
     .check =
         [](Bench& b) {
           auto stale = b.any(64_KiB);
           b.reset();
           if (b.is_numba() && stale.alive())
             return b.not_applicable("a reset leaves the memory of this manager alive");
           const auto next = b.any(64_KiB);
           b.fill(next, 0x77);
           // A thread of the manager's may still make the frees of the reset.
           b.expect_ok("flush()", b.manager().flush());
           b.watch().forget();
           stale.drop();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees by a finalizer after reset", b.ends(), 0u);
           b.expect(next.alive() && b.holds(next, 0x77), "a finalizer after reset",
                    "the next block is lost", "nothing is freed");
         }},
};

}  // namespace

extern constinit const ClauseGroup device_memory_clauses{"Device memory", kDeviceMemoryClauses};

}  // namespace emm
