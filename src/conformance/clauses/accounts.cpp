#include <algorithm>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "conformance/bench.hpp"

// Beyond the catalogue: what was taken from the device comes back, whatever fails.

namespace emm {
namespace {

using namespace emm::conformance;

/// Every operation, with what ends early, late, twice and never.
void use_everything(Bench& b) {
  const auto first = b.stream();
  const auto second = b.stream();
  auto kept = b.try_memalloc(600_KiB, first);
  auto large = b.try_memalloc(5_MiB, first);
  {
    const auto dropped = b.try_memalloc(700_KiB, second);
    const auto managed = b.try_managed(1000);
    const auto mapped = b.try_hosted(64, {.mapped = true});
    const auto pinned = b.try_hosted(64, {});
    const auto region = b.try_pin(b.buffer(), {.mapped = true});
    const auto unmapped = b.try_pin(b.buffer());
  }
  if (large) {
    const auto freed = large->free(second);
  }
  const auto other = b.try_memalloc(5_MiB, second);
  {
    const auto outer = b.defer();
    const auto inner = b.defer();
    const auto inside = b.try_memalloc(900_KiB);
    const auto host = b.try_hosted(64, {.mapped = true});
  }
  if (kept) {
    const auto handle = b.manager().get_ipc_handle(kept->view());
  }
  const auto info = b.manager().get_memory_info();
  const auto flushed = b.manager().flush();
  const auto late = b.try_hosted(64, {.mapped = true});
  if (const auto free_now = b.device().mem_get_info()) {
    // Memory that is out, so that the manager makes room.
    for (const auto size : {free_now->free + 2_MiB, std::min(free_now->free + 2_MiB, 10_MiB)})
      if (const auto out = b.try_memalloc(size)) continue;
  }
  b.reset();
  const auto after = b.try_memalloc(4_KiB);
}

std::uint64_t owed(Bench& b) {
  std::uint64_t count = 0;
  for (std::size_t kind = 0; kind < CallLedger::kKinds; ++kind) {
    count += b.watch().ledger().live(static_cast<CallLedger::Kind>(kind)).count;
  }
  return count;
}

std::uint64_t refused_ends(Bench& b) {
  std::uint64_t count = 0;
  for (const auto& event : b.watch().events())
    count += is_end(event.call) && event.native != 0 ? 1u : 0u;
  return count;
}

/// Fails each call that ends nothing, or each that does, in turn, on a device of its own each time.
void fail_in_turn(Bench& b, bool of_ends, std::int32_t native) {
  constexpr std::uint64_t kMost = 300;
  b.untraceable();
  for (std::uint64_t n = 1; n < kMost && !b.decided(); ++n) {
    auto fresh = Bench::create(b.subject(), "accounts/every_call_failed");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& trial = **fresh;
    trial.manager();
    if (trial.decided()) return b.inconclusive("initialize fails");
    trial.watch().fail_nth(n, native, of_ends);
    use_everything(trial);
    const auto reached = trial.watch().failed_nth();
    trial.watch().fail_nth(0, 0, of_ends);
    const auto flushed = trial.manager().flush();
    trial.end_manager();
    if (trial.watch().total() == 0)
      return b.inconclusive("the driver calls of this manager are not seen here");
    const auto done = text::format("every operation, driver call {} failing with {}", n, native);
    const auto& ledger = trial.watch().ledger();
    b.expect(owed(trial) <= refused_ends(trial), done, ledger.verdict(),
             "only what the driver refused to take back is left");
    b.expect(ledger.double_ends() == 0 && ledger.foreign_ends() == 0, done, ledger.verdict(),
             "each thing ended once");
    if (!reached) return;
  }
}

constexpr Clause kAccountsClauses[] = {
    {.id = "accounts/balance",
     .rule = "After every operation, and the manager's end, all that came from the device is back, "
             "once.",
     .source = "what a manager is for",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* accounts/every_call_failed accounts/refused_frees",
     .check =
         [](Bench& b) {
           use_everything(b);
           b.reset();
           if (b.is_numba()) b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("frees that the observer heard to have failed", b.observer().failures(),
                          0u);
           b.expect_balance("every operation, a reset, the manager's end");
         }},

    {.id = "accounts/calls",
     .rule = "The driver refuses no call of a manager, beside requests that are out of memory.",
     .source = "CUDA: an invalid call is a mistake of its caller",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* DEV-9 MAN-3 PD-15 PD-18 OBJ-1",
     .check =
         [](Bench& b) {
           for (int i = 0; i < 3 && !b.decided(); ++i) use_everything(b);
           const auto refused = b.watch().first_uninvited();
           b.expect(!refused, "every operation, three times", refused ? to_text(*refused) : "",
                    "calls that the driver makes");
         }},

    {.id = "accounts/reserved",
     .rule =
         "What a manager says is reserved is what it holds from the device; the largest request "
         "that it says to need nothing from the device needs nothing.",
     .source = "emm_plugin.h, emm_state; emm/memory_manager.hpp",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           constexpr auto kRounding = 2_MiB;
           b.expect(true, {}, {}, {});
           if (!b.manager().state().reserved_bytes)
             return b.not_applicable("this manager does not say what is reserved");
           const auto unit = std::min<std::uint64_t>(b.affordable(160_MiB) / 4, 40_MiB);
           std::vector<BenchMemory> blocks;
           std::uint64_t live = 0;
           const auto look = [&](std::string_view when) {
             const auto said = *b.manager().state().reserved_bytes;
             const auto rounded = b.held() + (blocks.size() + 4) * kRounding;
             // What the driver's own pools reserve is not seen.
             const auto& ledger = b.watch().ledger();
             const bool is_seen = b.watch().total() != 0 &&
                                  ledger.calls(Call::mem_alloc_async).made +
                                          ledger.calls(Call::mem_alloc_from_pool_async).made ==
                                      0;
             b.expect(said >= live && (!is_seen || said <= rounded),
                      text::format("reserved bytes {}", when), text::format("{}", said),
                      text::format("from {} to {}", live, rounded));
           };
           for (const auto size : {std::uint64_t{1000}, 3_MiB, unit, 70_KiB, unit / 2}) {
             auto block = b.memalloc(size);
             if (b.decided()) return;
             live += size;
             blocks.push_back(std::move(block));
             look("with memory alive");
           }
           while (blocks.size() > 1) {
             live -= blocks[1].size();
             blocks.erase(blocks.begin() + 1);
             look("after some was freed");
           }
           b.expect_ok("flush()", b.manager().flush());
           const auto largest = b.manager().state().largest_free_bytes.value_or(0);
           if (largest > 1_KiB && b.watch().total() != 0) {
             b.watch().forget();
             const auto block = b.try_memalloc(largest);
             b.expect(block && b.count(Call::mem_alloc) + b.count(Call::mem_create) +
                                       b.count(Call::runtime_malloc) ==
                                   0,
                      text::format("a request for the largest free {} bytes", largest),
                      block ? "the driver is asked for memory" : describe(block.error()),
                      "memory that the manager has");
           }
           blocks.clear();
           live = 0;
           b.expect_ok("flush()", b.manager().flush());
           if (b.manager().trim(0)) look("after all was freed, flush() and trim(0)");
         }},

    {.id = "accounts/live_bytes",
     .rule = "What a manager says is live is what was handed out and has not ended.",
     .source = "emm/memory_manager.hpp",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.manager();
           if (!b.manager().state().live_bytes)
             return b.not_applicable("this manager does not say what is live");
           auto first = b.any(1000);
           const auto second = b.managed(24);
           b.expect_equal("live bytes of blocks of 1000 and 24", *b.manager().state().live_bytes,
                          1024u);
           first.drop();
           b.expect_equal("live bytes after the first ended", *b.manager().state().live_bytes, 24u);
           b.reset();
           b.expect_equal("live bytes after reset", *b.manager().state().live_bytes, 0u);
         }},

    {.id = "accounts/every_call_failed",
     .rule = "Whichever driver call fails, nothing is leaked and nothing ended twice.",
     .source = "emm/memory_manager.hpp: a call that fails changes nothing",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("numba leaks where a call fails, by its quirks");
           fail_in_turn(b, false, 2);
           fail_in_turn(b, false, 700);
         }},

    {.id = "accounts/refused_frees",
     .rule = "A free that the driver refuses ends nothing but itself.",
     .source = "emm/memory_manager.hpp",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "ERR-2",
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("numba leaks where a call fails, by its quirks");
           fail_in_turn(b, true, 700);
         }},

    {.id = "accounts/reset_gives_back",
     .rule = "What reset ended can be had again.",
     .source = "emm/memory_manager.hpp; NBEP 7, reset",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("as Numba, a plugin's device memory survives a reset: RST-5");
           b.leave_on_device(64_MiB);
           const auto held = b.memalloc(40_MiB);
           if (b.decided()) return;
           b.reset();
           b.expect_ok("flush()", b.manager().flush());
           const auto again = b.try_memalloc(40_MiB);
           if (!b.expect_ok("40 of 64 MiB, after a reset of 40", again)) return;
           auto deferred = b.defer();
           b.reset();
           deferred.end();
           b.expect_ok("flush()", b.manager().flush());
           b.expect_ok("40 of 64 MiB, after a reset of 40 inside a deferral that has ended",
                       b.try_memalloc(40_MiB));
         }},

    {.id = "accounts/out_of_memory_deferred",
     .rule = "Memory that runs out inside nested deferrals costs nothing but the request.",
     .source = "NBEP 7, defer_cleanup; numba#2046",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto kept = b.any(1_MiB);
           b.fill(kept, 0x42);
           b.leave_on_device(64_MiB);
           {
             const auto outer = b.defer();
             b.any(40_MiB).drop();
             const auto inner = b.defer();
             b.any(1_MiB).drop();
             const auto refused = b.try_memalloc(100_MiB);
             if (!refused && refused.error().code != Errc::not_supported) {
               b.expect_error("a request for more than is left, inside two deferrals", refused,
                              Errc::out_of_memory);
             }
             b.expect(b.holds(kept, 0x42), "a request for more than is left, inside two deferrals",
                      "other memory is lost", "it is as it was");
           }
           b.expect_ok("flush()", b.manager().flush());
           auto next = b.any(32_MiB);
           b.expect(b.fill(next, 1), "32 of 64 MiB after the deferrals", "no memory", "memory");
           next.drop();
           b.expect(b.holds(kept, 0x42), "everything after", "the first block is lost",
                    "it is as it was");
         }},
};

}  // namespace

extern constinit const ClauseGroup accounts_clauses{"Beyond the catalogue: accounts",
                                                    kAccountsClauses};

}  // namespace emm
