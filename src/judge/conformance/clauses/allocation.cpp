#include <algorithm>
#include <array>
#include <thread>

#include "base/host_memory.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: what RMM's suite expects of a memory resource. Content is checked
// throughout.

namespace emm {
namespace {

using namespace emm::conformance;

constexpr std::uint64_t kAlignment = 256;  // CUDA guarantees this for cuMemAlloc

/// A block and the byte that fills it.
struct Filled {
  BenchMemory block;
  std::uint8_t value = 0;
};

/// Allocates and frees at random, and checks the content of what it frees.
void churn(Bench& b, Prng& random, int steps, bool mixed,
           std::vector<StreamHandle> streams = {{}}) {
  std::vector<Filled> live;
  const auto look = [&](const Filled& one) {
    return b.expect(b.holds(one.block, one.value),
                    text::format("random requests, seed {}", b.seed()),
                    text::format("a live block of {} bytes has other content", one.block.size()),
                    "what was written");
  };
  for (int i = 0; i < steps && !b.decided(); ++i) {
    if (live.size() > 20 || (!live.empty() && random.chance(0.4))) {
      const auto at = static_cast<std::ptrdiff_t>(random.below(live.size()));
      auto one = std::move(live[static_cast<std::size_t>(at)]);
      live.erase(live.begin() + at);
      if (!look(one)) return;
      if (random.chance(0.5)) {
        b.expect_ok("free()", one.block.free(streams[random.below(streams.size())]));
      } else {
        one.block.drop();
      }
      continue;
    }
    const auto size = random.log_uniform(1, 1_MiB);
    const auto kind = mixed ? random.below(4) : 0;
    auto block = kind == 1   ? b.managed(size)
                 : kind == 2 ? b.mapped(size)
                 : kind == 3 ? b.pinned(size)
                             : b.any(size);
    const auto value = static_cast<std::uint8_t>(random.below(256));
    if (block.size() == 0) return;
    b.expect_ok("a block filled", b.try_fill(block, value));
    live.push_back({std::move(block), value});
  }
  for (const auto& one : live) look(one);
}

constexpr Clause kAllocationClauses[] = {
    {.id = "suite/alignment",
     .rule = "Device memory is aligned to 256 bytes, as cuMemAlloc's is.",
     .source = "rmm, mr_ref_test; CUDA C programming guide",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           std::vector<BenchMemory> blocks;
           for (const std::uint64_t size :
                {1u, 2u, 3u, 255u, 256u, 257u, 511u, 4097u, 65537u, 1048577u}) {
             blocks.push_back(b.memalloc(size));
             b.expect_equal(text::format("address of memalloc({}) modulo 256", size),
                            blocks.back().address() % kAlignment, 0u);
           }
         }},

    {.id = "suite/sizes",
     .rule = "Any size up to the device's is given whole: its first and its last byte are memory.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* accounts/every_call_failed accounts/refused_frees",
     .check =
         [](Bench& b) {
           const auto largest = b.affordable(64_MiB) / 2;
           for (std::uint64_t size = 1; size <= largest; size *= 2) {
             for (const auto exact : {size - size / 4, size, size + size / 4}) {
               auto block = b.any(exact);
               if (b.decided()) return;
               b.expect_equal("the size of a block", block.size(), exact);
               b.expect(b.fill(block, 0x3c) && b.holds(block, 0x3c),
                        text::format("{} bytes written and read", exact), "not all of it is memory",
                        "what was written");
             }
           }
         }},

    {.id = "suite/too_large",
     .rule = "A request that no device can serve is out of memory, and the manager serves on.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.manager();
           for (const auto size : {~std::uint64_t{0} - 254, ~std::uint64_t{0}}) {
             const auto block = b.try_memalloc(size);
             if (!block && block.error().code == Errc::not_supported)
               continue;  // perhaps no request is
             b.expect_out_of_memory(text::format("memalloc({}), with nothing alive", size), block,
                                    size);
           }
           const auto kept = b.memalloc(64_KiB);
           if (b.decided()) return;
           b.fill(kept, 6);
           const auto ooms = b.manager().statistics().num_ooms;
           std::uint64_t out = 0;
           for (const auto size : {std::uint64_t{1} << 50, (std::uint64_t{1} << 63) + 1,
                                   ~std::uint64_t{0} - 4095, ~std::uint64_t{0}}) {
             const auto block = b.try_memalloc(size);
             b.expect_out_of_memory(text::format("memalloc({})", size), block, size);
             if (!block && block.error().code == Errc::out_of_memory) ++out;
           }
           b.expect(b.holds(kept, 6), "requests that are too large", "other memory is lost",
                    "it is as it was");
           if (const auto counted = b.manager().statistics().num_ooms; ooms && counted)
             b.expect_equal("num_ooms of statistics() after requests that were out of memory",
                            *counted - *ooms, out);
           for (const auto size :
                {(std::uint64_t{1} << 63) + 1, ~std::uint64_t{0} - 4094, ~std::uint64_t{0}}) {
             b.expect(!b.try_hosted(size, {}), text::format("memhostalloc({})", size), "memory",
                      "an error");
             b.expect(!b.try_managed(size), text::format("memallocmanaged({})", size), "memory",
                      "an error");
           }
           b.expect_ok("memalloc(65536) after them", b.try_memalloc(64_KiB));
         }},

    {.id = "suite/large",
     .rule = "A request of many GiB is given whole, where the device has as much.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/too_large",
     .wants_all_memory = true,
     .check =
         [](Bench& b) {
           auto fresh = b.with_capacity("64GiB");
           if (!fresh) return b.inconclusive(describe(fresh.error()));
           auto& on = **fresh;
           const auto info = on.device().mem_get_info();
           if (!info || info->free < 24_GiB)
             return b.not_applicable("the device has less than 24 GiB free");
           for (const std::uint64_t size : {1_GiB + 1, 5_GiB, 17_GiB - 1}) {
             const auto block = on.memalloc(size);
             if (on.decided()) break;
             on.expect_equal("the size of a block", block.size(), size);
             for (const auto at : {std::uint64_t{0}, size / 2, size - 1}) {
               const auto written = on.device().memset_d8(block.device() + at, 0x3c, 1);
               on.expect(written.has_value(), text::format("byte {} of {} written", at, size),
                         "it is no memory", "it is memory");
             }
           }
           b.expect(true, {}, {}, {});
           b.take(on);
         }},

    {.id = "suite/random",
     .rule = "Through random requests and ends, live memory keeps its content.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/threads",
     .check = [](Bench& b) { churn(b, b.random(), 400, false); }},

    {.id = "suite/mixed",
     .rule = "So does memory of all kinds, side by side.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .check = [](Bench& b) { churn(b, b.random(), 300, true); }},

    {.id = "suite/threads",
     .rule = "Threads that ask at once get memory of their own.",
     .source = "rmm, mr_ref_multithreaded_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "threads/ended threads/overlap threads/accounts reset/ends_all threads/frees "
                      "threads/slots",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.manager();
           b.capacity();
           const OthersRun others(b);
           std::vector<std::thread> threads;
           for (std::uint64_t i = 0; i < 4; ++i) {
             threads.push_back(start_thread([&b, i] {
               Prng random(b.seed() + i);
               churn(b, random, 100, false);
             }));
           }
           for (auto& thread : threads) thread.join();
           b.expect_balance("four threads' requests and ends, then the manager's end");
         }},

    {.id = "suite/cross_thread_free",
     .rule = "Memory of one thread may be ended by another while the first asks for more.",
     .source = "rmm, mr_ref_multithreaded_test",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           std::vector<BenchMemory> handed;
           for (int i = 0; i < 100; ++i) handed.push_back(b.any(4_KiB));
           b.capacity();
           const OthersRun others(b);
           auto other = start_thread([&] { handed.clear(); });
           std::vector<Filled> own;
           for (int i = 0; i < 50; ++i) {
             own.push_back({b.any(4_KiB), static_cast<std::uint8_t>(i)});
             b.fill(own.back().block, own.back().value);
           }
           other.join();
           for (const auto& one : own) {
             b.expect(b.holds(one.block, one.value), "memory asked for while another thread frees",
                      "other content", "what was written");
           }
           own.clear();
           b.expect_balance("one thread's memory ended by another, then the manager's end");
         }},

    {.id = "suite/cross_stream_free",
     .rule = "Memory may be asked for on one stream and freed on another.",
     .source = "rmm, mr_ref_multithreaded_test, cccl_mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/hazards suite/beyond_4GiB threads/default_streams",
     .not_of_class = "its memory has no streams",
     .check =
         [](Bench& b) {
           const std::vector<StreamHandle> streams{{}, b.stream(), b.stream()};
           std::vector<Filled> live;
           for (std::uint8_t i = 0; i < 60; ++i) {
             live.push_back({b.memalloc(64_KiB, streams[i % 3u]), i});
             if (b.decided()) return;
             b.fill(live.back().block, i);
             if (live.size() < 8) continue;
             b.expect(b.holds(live.front().block, live.front().value), "memory of three streams",
                      "other content", "what was written");
             b.expect_ok("free() on another stream",
                         live.front().block.free(streams[(i + 1u) % 3u]));
             live.erase(live.begin());
           }
         }},

    {.id = "stream/reuse_waits",
     .rule = "Memory freed on one stream is given to another only after the first was waited for.",
     .source = "emm/memory_manager.hpp: stream orders memory after work on it",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/hazards",
     .not_of_class = "its memory has no streams",
     .check =
         [](Bench& b) {
           constexpr std::uint64_t kSize = 48_MiB;  // two slabs of 32 MiB may hold it
           const std::array<StreamHandle, 2> streams{b.stream(), b.stream()};
           b.leave_on_device(80_MiB);
           auto block = b.memalloc(kSize, streams[0]);
           for (std::size_t i = 0; i < 2 && !b.decided(); ++i) {
             const auto address = block.address();
             b.watch().forget();
             b.expect_ok("free() on a stream", block.free(streams[i]));
             block = b.memalloc(kSize, streams[1 - i]);
             const auto calls = b.watch().events();
             const auto waits = [&](const CallEvent& event) {
               return event.call == Call::ctx_synchronize ||
                      (event.call == Call::stream_synchronize &&
                       event.pointer == streams[i].value) ||
                      event.call == Call::event_synchronize ||
                      event.call == Call::stream_wait_event || event.call == Call::mem_free ||
                      event.call == Call::runtime_free || event.call == Call::mem_free_async ||
                      // A query that finds all work done shows that no wait is needed.
                      ((event.call == Call::event_query || event.call == Call::stream_query) &&
                       event.native == 0 && event.result == 1);
             };
             if (b.watch().total() == 0)
               return b.inconclusive("the driver calls of this manager are not seen here");
             b.expect(
                 block.address() != address || std::any_of(calls.begin(), calls.end(), waits),
                 "48 MiB freed on one stream and asked for on another, with no room for both",
                 "nothing waits for the first",
                 "a wait for it, by stream, event or context, or a query that says it is done");
           }
         }},

    {.id = "suite/fill",
     .rule = "Memory can be had up to the device's limit, and again after it was freed.",
     .source = "rmm, mr_ref_test; numba, deallocation tests",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "DEV-1 PIN-5 PIN-10 stream/reuse_waits suite/steady suite/serves suite/many "
                      "suite/fragments suite/sweep reset/ends_all reset/late_ends "
                      "stream/hazards accounts/balance accounts/host_heap accounts/live_bytes "
                      "accounts/pending accounts/peaks accounts/trim accounts/reserved "
                      "accounts/out_of_memory_deferred memory_info/true threads/accounts "
                      "threads/ended threads/frees",
     .check =
         [](Bench& b) {
           if (b.refuses_early())
             return b.not_applicable(
                 "like the library that it models, it refuses before the device is full");
           b.capacity();
           // Blocks of two pages, so that a device fills in few requests.
           constexpr std::uint64_t kPiece = 4_MiB;
           // A real device has more than it reports.
           const auto most = (96_MiB + (b.is_simulated() ? 24_MiB : 1_GiB)) / kPiece;
           // A real device may keep a segment of what was freed.
           constexpr auto kKept = 32_MiB / kPiece;
           b.leave_on_device(96_MiB);
           const auto fill_up = [&](std::vector<BenchMemory>& blocks) {
             while (blocks.size() < most) {
               auto block = b.try_memalloc(kPiece);
               if (!block)
                 return b.expect_error("a request that finds the device full", block,
                                       Errc::out_of_memory);
               blocks.push_back(*std::move(block));
             }
             return b.expect(
                 false,
                 text::format("96 MiB left on the device, {} blocks of 4 MiB asked for", most),
                 "all given", "out of memory");
           };
           if (auto first = b.memalloc(kPiece); b.decided()) return;
           std::vector<BenchMemory> once;
           if (!fill_up(once)) return;
           const auto fewest = std::min(96_MiB, b.limit().value_or(96_MiB)) * 2 / 3 / kPiece;
           b.expect(once.size() >= fewest, "96 MiB left on the device, filled with blocks of 4 MiB",
                    text::format("{} blocks", once.size()), text::format("{} or more", fewest));
           const auto had = once.size();
           once.clear();
           std::vector<BenchMemory> again;
           if (!fill_up(again)) return;
           b.expect(
               b.is_simulated() ? again.size() == had : again.size() + kKept >= had,
               "96 MiB left on the device, filled a second time",
               text::format("{}: {} of {} blocks fit again", kMemoryNotReleased, again.size(), had),
               "all of them");
         }},

    {.id = "suite/steady",
     .rule = "Memory that was freed serves again: a program that holds little never runs out.",
     .source = "rmm, pool_mr_tests; numba, deallocation tests",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "accounts/trim threads/ended accounts/reserved",
     .check =
         [](Bench& b) {
           b.leave_on_device(64_MiB);
           for (int i = 0; i < 200 && !b.decided(); ++i) {
             auto block = b.try_memalloc(3_MiB + static_cast<std::uint64_t>(i % 7) * 4_KiB);
             if (!block &&
                 (block.error().code == Errc::not_supported || (i == 0 && b.refuses_early())))
               return b.not_applicable(describe(block.error()));
             b.expect_ok("the next of 200 blocks of 3 MiB, one at a time, 64 MiB being left",
                         block);
             if (block && i % 2 == 0) b.expect_ok("free()", block->free());
           }
         }},

    {.id = "live/overlap_address",
     .rule = "No two live blocks share an address.",
     .source = "what memory is",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with =
         "* suite/sizes suite/random suite/mixed suite/threads suite/cross_thread_free "
         "suite/cross_stream_free live/overlap_content stream/hazards threads/overlap "
         "accounts/every_call_failed accounts/refused_frees threads/managers_apart "
         "threads/default_streams stream/own_writes",
     .check =
         [](Bench& b) {
           std::vector<BenchMemory> blocks;
           for (int i = 0; i < 120 && !b.decided(); ++i) {
             blocks.push_back(b.any(b.random().log_uniform(1, 256_KiB)));
             if (i % 3 == 2)
               blocks.erase(blocks.begin() +
                            static_cast<std::ptrdiff_t>(b.random().below(blocks.size())));
           }
           std::sort(blocks.begin(), blocks.end(),
                     [](const auto& x, const auto& y) { return x.address() < y.address(); });
           for (std::size_t i = 1; i < blocks.size(); ++i) {
             const auto end = blocks[i - 1].address() + blocks[i - 1].size();
             b.expect(
                 blocks[i].address() >= end, text::format("80 live blocks, seed {}", b.seed()),
                 text::format("{} begins inside {} of {} bytes", text::hex(blocks[i].address()),
                              text::hex(blocks[i - 1].address()), blocks[i - 1].size()),
                 "disjoint ranges");
           }
         }},

    {.id = "live/overlap_content",
     .rule = "What is written to one live block changes no other.",
     .source = "what memory is",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/random suite/mixed suite/threads suite/size_zero suite/beyond_4GiB "
                      "reset/late_ends accounts/trim",
     .check =
         [](Bench& b) {
           std::vector<BenchMemory> blocks;
           for (std::uint8_t i = 0; i < 60; ++i) {
             blocks.push_back(b.any(1 + i * std::uint64_t{37}));
             b.fill(blocks.back(), i);
           }
           for (std::size_t i = 0; i < blocks.size() && !b.decided(); ++i) {
             b.expect(b.holds(blocks[i], static_cast<std::uint8_t>(i)),
                      "60 blocks, each filled with its number",
                      text::format("block {} of {} bytes holds others", i, blocks[i].size()),
                      "each its own");
           }
         }},
};

}  // namespace

extern constinit const ClauseGroup allocation_clauses{"Beyond the catalogue: allocation",
                                                      kAllocationClauses};

}  // namespace emm
