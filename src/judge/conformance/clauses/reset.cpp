#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "plugin/imported_manager.hpp"

// RST of a manager.

namespace emm {
namespace {

using namespace emm::conformance;

/// Memory of every kind that the manager offers. Each block has its own content.
class Everything {
 public:
  Everything(Bench& bench, std::uint64_t device_blocks) : b_(bench) {
    for (std::uint64_t i = 0; i < device_blocks; ++i) {
      const auto size = i % 5 == 4 ? 1_MiB + i * 4_KiB : i % 5 == 3 ? 300_KiB : 100 + i * 512;
      keep(b_.try_memalloc(size));
    }
    keep(b_.try_memalloc(20_MiB));
    for (std::uint64_t i = 0; i < 3; ++i) {
      keep(b_.try_managed(64_KiB + i));
      keep(b_.try_hosted(4_KiB + i, {.mapped = true}));
      keep(b_.try_hosted(4_KiB + i, {}));
      keep(b_.try_pin(b_.buffer(), {.mapped = i % 2 == 0}));
    }
  }
  bool is_whole() const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (!blocks_[i].alive() || !b_.holds(blocks_[i], mark(i))) return false;
    }
    return true;
  }
  std::vector<BenchMemory>& blocks() noexcept { return blocks_; }

 private:
  static std::uint8_t mark(std::size_t at) { return static_cast<std::uint8_t>(at % 250 + 1); }
  void keep(Result<BenchMemory> made) {
    if (!made) return;
    b_.fill(*made, mark(blocks_.size()));
    blocks_.push_back(*std::move(made));
  }

  Bench& b_;
  std::vector<BenchMemory> blocks_;
};

std::uint64_t held_on_host(Bench& b) {
  const auto& ledger = b.watch().ledger();
  return ledger.live(CallLedger::Kind::host).bytes +
         ledger.live(CallLedger::Kind::registered).bytes +
         ledger.live(CallLedger::Kind::managed).bytes;
}

/// Expects a region that a reset ended and that is pinned again to stay pinned when its first
/// pointer ends.
void judge_region_pinned_again(Bench& b) {
  const auto range = b.buffer();
  auto stale = b.try_pin(range);
  if (!stale) return;
  b.reset();
  b.expect_ok("flush()", b.manager().flush());
  const auto next = b.try_pin(range);
  if (!b.expect_ok("mempin of a region that a reset ended", next)) return;
  stale->drop();
  b.expect_ok("flush()", b.manager().flush());
  if (b.subject().standins != nullptr) return;
  const auto again = b.device().mem_host_register(range, {});
  b.expect(!again, "the late end of a region that a reset ended and that was pinned again",
           "cuMemHostUnregister was called: the region is no longer page-locked",
           "it is page-locked until its second pointer ends");
  if (again && !b.device().mem_host_unregister(range.pointer)) return;
}

/// Expects a token whose late free is still to come to name nothing that was handed out since,
/// however many blocks have come and gone.
void judge_stale_tokens(Bench& b) {
  const auto* plugin = dynamic_cast<const plugin::ImportedManager*>(&b.manager());
  if (plugin == nullptr) return;
  constexpr int kCycles = 70'000;  // more than 16 bits can number
  std::vector<BenchMemory> stale;
  std::vector<emm_token> tokens;
  for (int i = 0; i < 3; ++i) {
    auto block = b.try_memalloc(64);
    if (!block) return;
    stale.push_back(*std::move(block));
    tokens.push_back(plugin->last_token());
  }
  b.reset();
  b.expect_ok("initialize()", b.manager().initialize());
  const auto requests_before = b.driver_requests();
  std::optional<MemoryPointer> kept;
  for (int i = 0; i < kCycles; ++i) {
    kept.reset();  // first, so that a number that is free again is the next one's
    auto next = b.manager().memalloc(64);
    if (!next) return;
    const auto token = plugin->last_token();
    const bool is_stale = std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    if (!b.expect(token == 0 || !is_stale,
                  text::format("allocation {} after a reset that ended three blocks, whose late "
                               "frees are still to come",
                               i + 1),
                  text::format("token {} again, which is one of theirs", token),
                  "a token that none of them has"))
      return;
    kept = *std::move(next);
    // Memory of the driver for each block takes longer than all the rest.
    if (i == 700 && b.driver_requests() - requests_before >= 700) return;
    if (i % 4096 == 0) b.watch().forget();
  }
}

/// Expects that a reset makes all memory available again, however much was live and whichever
/// thread requested it.
void judge_many_of_threads(Bench& b) {
  // Nearly all of the room, by four threads.
  constexpr std::size_t kBlocks = 960, kOfThread = kBlocks / 4;
  auto fresh = Bench::create(b.subject(), b.clause());
  if (!fresh) return b.inconclusive(describe(fresh.error()));
  auto& on = **fresh;
  on.untraceable();
  on.expect(true, {}, {}, {});
  on.leave_on_device(64_MiB);
  on.manager();
  std::vector<BenchMemory> stale;  // only the reset ends anything
  std::array<std::size_t, 2> served{};
  for (auto& count : served) {
    const auto ask = [&] {
      for (std::size_t i = 0; i < kOfThread; ++i) {
        auto block = on.try_memalloc(64_KiB);
        if (!block) return;
        stale.push_back(*std::move(block));
        ++count;
      }
    };
    ask();
    start_thread(ask).join();
    ask();
    start_thread(ask).join();
    // Any thread may reset.
    &count == &served[0] ? on.reset() : start_thread([&] { on.reset(); }).join();
    on.expect_ok("flush()", on.manager().flush());
    if (const auto live = on.manager().state().live_bytes)
      on.expect_equal(text::format("live bytes after a reset of {} blocks, half of them asked for "
                                   "by other threads",
                                   count),
                      *live, 0u);
  }
  on.expect(served[1] + served[0] / 16 >= served[0],
            text::format("a reset of {} blocks of 64 KiB, half of them asked for by other threads, "
                         "and the same requests again, with 64 MiB left on the device",
                         served[0]),
            text::format("{} are served", served[1]), text::format("{}", served[0]));
  b.take(on);
}

constexpr Clause kResetClauses[] = {
    {.id = "RST-2",
     .rule = "reset frees what is pending first, then what is alive, in the order in which it was "
             "handed out.",
     .source = "drv:840-847",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "ERR-2 errors/frees_told",
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
     .may_fail_with = "RST-7 reset/ends_all reset/late_ends accounts/refused_frees",
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
     .rule = "What reset ends is released once, whatever ends later.",
     .source = "drv:840-847",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "reset/ends_all",
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

    {.id = "reset/late_ends",
     .rule = "What ends after a reset ends nothing that was handed out since, of whatever kind.",
     .source = "emm_plugin.h: free() after reset(), which has ended the token, does nothing; RST-7",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "DEV-11 RST-7",
     .check =
         [](Bench& b) {
           if (b.is_numba()) return b.not_applicable("as Numba, pinned memory survives: RST-5");
           b.manager();
           judge_region_pinned_again(b);
           if (!b.decided()) b.apart(judge_stale_tokens);
           for (int round = 0; round < 3 && !b.decided(); ++round) {
             Everything stale(b, 40);
             b.reset();
             if (round == 1) b.expect_ok("initialize()", b.manager().initialize());
             Everything next(b, 40);
             b.expect_ok("flush()", b.manager().flush());
             b.watch().forget();
             const auto live_bytes = b.manager().state().live_bytes;
             for (std::size_t i = 0; i < stale.blocks().size(); ++i) {
               if (i % 3 == 0 && stale.blocks()[i].free())
                 b.expect(false, "free() of memory that a reset ended", "success", "an error");
               stale.blocks()[i].drop();
             }
             b.expect_ok("flush()", b.manager().flush());
             for (const auto call : {Call::mem_free, Call::runtime_free, Call::mem_free_async,
                                     Call::mem_free_host, Call::mem_host_unregister}) {
               b.expect(b.count(call) == 0, "ends of memory that a reset ended before",
                        text::format("{} calls of {}", b.count(call), call_info(call).cuda_name),
                        "none");
             }
             const auto live_after = b.manager().state().live_bytes;
             b.expect(live_after == live_bytes, "ends of memory that a reset ended before",
                      text::format("live bytes {}", live_after.value_or(0)),
                      text::format("{}, as before them", live_bytes.value_or(0)));
             b.expect(next.is_whole(), "ends of memory that a reset ended before",
                      "memory handed out since is lost", "it is as it was");
             for (const auto& block : next.blocks()) {
               if (block.host() == nullptr || b.subject().standins != nullptr) continue;
               const auto again = b.device().mem_host_register({block.host(), block.size()}, {});
               b.expect(!again, "ends of memory that a reset ended before",
                        "host memory that was pinned since is no longer page-locked",
                        "it is page-locked");
               if (again && !b.device().mem_host_unregister(block.host())) return;
             }
             const Everything more(b, 40);
             b.expect(next.is_whole() && more.is_whole(), "requests after that",
                      "live memory has other content", "what was written");
           }
         }},

    {.id = "reset/ends_all",
     .rule = "A reset ends memory of every kind: what it held can be had again, as often as one "
             "likes.",
     .source = "NBEP 7, reset; RST-5",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with =
         "RST-5 RST-7 accounts/reset_gives_back DEV-11 reset/late_ends accounts/live_bytes",
     .check =
         [](Bench& b) {
           if (b.is_numba()) return b.not_applicable("as Numba, pinned memory survives: RST-5");
           judge_many_of_threads(b);
           if (b.decided()) return;
           b.leave_on_device(96_MiB);
           b.manager();
           b.expect(true, {}, {}, {});
           std::uint64_t held = 0;
           std::list<Everything> stale;  // only the reset ends anything
           for (int round = 0; round < 6 && !b.decided(); ++round) {
             const auto range = b.buffer();
             stale.emplace_back(b, 60);
             // Any thread may pin, and any other reset.
             auto region = b.try_pin(range);
             if (region && round % 2 == 1) {
               region->drop();
               start_thread([&] { region = b.try_pin(range); }).join();
             }
             b.reset();
             b.expect_ok("flush()", b.manager().flush());
             if (region) {
               const auto again = b.try_pin(range);
               b.expect_ok("mempin of a region that a reset ended", again);
               b.reset();
             }
             if (round == 1) held = held_on_host(b);
             if (round > 1)
               b.expect(
                   held_on_host(b) <= held, text::format("{} resets", round + 1),
                   text::format("{} bytes of host and managed memory are held", held_on_host(b)),
                   text::format("{}, as after two", held));
             const auto large = b.try_memalloc(b.affordable(40_MiB) / 2);
             b.gives(large, b.affordable(40_MiB) / 2);
             if (large) b.reset();
           }
           // What ends inside a deferral serves no request there. So a manager that keeps host
           // memory keeps more from now on, at most as much as after the second round.
           for (int round = 0; round < 4 && !b.decided(); ++round) {
             const auto range = b.buffer();
             auto deferred = b.defer();
             stale.emplace_back(b, 60);
             const auto region = b.try_pin(range);
             b.reset();
             if (const auto live = b.manager().state().live_bytes)
               b.expect_equal("live bytes after a reset inside a deferral", *live, 0u);
             deferred.end();
             b.expect_ok("flush()", b.manager().flush());
             if (region) {
               const auto again = b.try_pin(range);
               b.expect_ok("mempin of a region that a reset inside a deferral ended", again);
               b.reset();
             }
             if (round == 1) held = held_on_host(b);
             if (round > 1)
               b.expect(
                   held_on_host(b) <= held,
                   text::format("{} resets inside deferrals, their ends and flush()", round + 1),
                   text::format("{} bytes of host and managed memory are held", held_on_host(b)),
                   text::format("{}, as after two", held));
           }
         }},

    {.id = "accounts/manager_end",
     .rule = "The end of a manager releases memory of every kind that is alive or pending.",
     .source = "emm_plugin.h: destroy frees what it still holds; ERR-3",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "ERR-3 ERR-4",
     .check =
         [](Bench& b) {
           if (b.is_numba())
             return b.not_applicable("as Numba, it abandons it to the driver: ERR-3");
           b.manager();
           const Everything alive(b, 60);
           Everything pending(b, 60);
           const auto large = b.try_memalloc(60_MiB);
           pending.blocks().clear();
           b.expect_balance("memory of every kind alive and freed, then the manager's end");
         }},

    {.id = "RST-8",
     .rule = "reset inside a deferral ends memory and frees none of it; the frees wait for a flush "
             "after.",
     .source = "drv:840-847, 1016",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "DFR-7 deferral/reset deferral/lasts deferral/no_sooner",
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
           b.expect_equal("frees of the block by flush() after it", b.count(Call::mem_free_host),
                          1u);
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
