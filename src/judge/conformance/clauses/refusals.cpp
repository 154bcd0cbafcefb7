#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/combinations.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: who is refused. Every kind of memory is asked for where there is none,
// after every way to leave some idle or pending; and a manager's own limit is measured in small
// blocks.

namespace emm {
namespace refusals {
namespace {

using namespace emm::conformance;

struct Kind {
  std::string_view words;
  Call call;
  CallLedger::Kind ledger;
  Result<BenchMemory> (*make)(Bench& bench, std::uint64_t size);
};
constexpr Kind kKinds[] = {
    {"memhostalloc", Call::mem_host_alloc, CallLedger::Kind::host,
     [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {}); }},
    {"memhostalloc, mapped", Call::mem_host_alloc, CallLedger::Kind::host,
     [](Bench& b, std::uint64_t size) { return b.try_hosted(size, {.mapped = true}); }},
    {"memallocmanaged", Call::mem_alloc_managed, CallLedger::Kind::managed,
     [](Bench& b, std::uint64_t size) { return b.try_managed(size); }},
};
/// Device memory runs out by itself: nothing refuses it but the device.
constexpr std::string_view kDevice = "memalloc";

using Blocks = std::vector<BenchMemory>;
struct Way {
  std::string_view words;
  void (*leave)(Bench& bench, Blocks& blocks);
  bool has_faults = false;
  bool resets = false;
};
constexpr Way kWays[] = {
    {"freed", [](Bench&, Blocks& blocks) { blocks.clear(); }},
    {"freed and flushed",
     [](Bench& b, Blocks& blocks) {
       blocks.clear();
       static_cast<void>(b.manager().flush().has_value());
     }},
    {"freed on a stream",
     [](Bench& b, Blocks& blocks) {
       const auto stream = b.stream();
       for (auto& block : blocks) static_cast<void>(block.free(stream).has_value());
       blocks.clear();
     }},
    {"freed in a deferral that has ended",
     [](Bench& b, Blocks& blocks) {
       const auto deferred = b.defer();
       blocks.clear();
     }},
    {"freed in nested deferrals that have ended",
     [](Bench& b, Blocks& blocks) {
       auto outer = b.defer();
       const auto inner = b.defer();
       blocks.clear();
       outer.end();
     }},
    {"freed before and in a deferral that has ended, after a flush in it",
     [](Bench& b, Blocks& blocks) {
       blocks.pop_back();
       const auto deferred = b.defer();
       static_cast<void>(b.manager().flush().has_value());
       blocks.clear();
     }},
    {"freed after memory of every kind",
     [](Bench& b, Blocks& blocks) {
       for (const auto& kind : kKinds) {
         if (const auto other = kind.make(b, 64_KiB)) continue;
       }
       blocks.clear();
     }},
    {"freed by another thread",
     [](Bench&, Blocks& blocks) { start_thread([&] { blocks.clear(); }).join(); }},
    {"freed, then initialize()",
     [](Bench& b, Blocks& blocks) {
       blocks.clear();
       static_cast<void>(b.manager().initialize().has_value());
     }},
    {"freed after failed requests",
     [](Bench& b, Blocks& blocks) {
       for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed}) {
         b.watch().fail_always(call, kIllegalAddress);
       }
       for (const auto& kind : kKinds) {
         if (const auto made = kind.make(b, 20_MiB)) continue;
       }
       for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
         b.watch().fail_always(call, kOutOfMemory);
       for (const auto& kind : kKinds) {
         if (const auto made = kind.make(b, 20_MiB)) continue;
       }
       for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
         b.watch().fail_always(call, 0);
       blocks.clear();
     },
     true},
    {"ended by a reset",
     [](Bench& b, Blocks& blocks) {
       b.reset();
       blocks.clear();
     },
     false, true},
    {"ended by a reset in a deferral that has ended",
     [](Bench& b, Blocks& blocks) {
       const auto deferred = b.defer();
       b.reset();
       blocks.clear();
     },
     false, true},
};

constexpr std::array kFrees{Call::mem_free, Call::mem_free_async, Call::runtime_free,
                            Call::mem_free_host, Call::mem_unmap};

/// What a manager remembers of two resets, a deferral and a trim must not matter later.
void have_a_past(Bench& b) {
  if (b.is_numba()) return;  // its reset leaves memory live: RST-5
  for (int i = 0; i < 2; ++i) {
    Blocks blocks;
    const auto deferred = b.defer();
    for (const auto& kind : kKinds) {
      if (auto made = kind.make(b, 64_KiB)) blocks.push_back(*std::move(made));
    }
    if (auto made = b.try_memalloc(64_KiB)) blocks.push_back(*std::move(made));
    if (!blocks.empty()) blocks.pop_back();
    b.reset();
  }
  static_cast<void>(b.manager().trim(0).has_value());
}

/// A driver that has no memory of the kind until all is freed that was left of it. It may refuse
/// the first of these frees, and then has some once the others are made.
void refuse_until_freed(Bench& b, const Kind& kind, const Way& way, std::uint64_t asked,
                        bool refuses_free) {
  const auto alive = [&] { return b.watch().ledger().live(kind.ledger).count; };
  const auto before = alive();
  Blocks blocks;
  // A manager may keep no more than some MiB idle: the last block goes beyond.
  for (const auto size : {64_KiB, 200_KiB, 900_KiB, 64_KiB, 24_MiB}) {
    auto block = kind.make(b, size);
    if (!block) return;
    blocks.push_back(*std::move(block));
  }
  way.leave(b, blocks);
  const auto idle = alive();
  if (b.decided() || idle <= before) return;
  bool was_refused = false, refused_free = !refuses_free;
  const auto left = before + (refuses_free ? 1 : 0);
  b.watch().during = [&](const CallEvent& event) {
    if (was_refused && !refused_free &&
        std::find(kFrees.begin(), kFrees.end(), event.call) != kFrees.end()) {
      refused_free = true;
      b.watch().fail(event.call, {kIllegalAddress});
    }
    if (event.call != kind.call || alive() <= left) return;
    was_refused = true;
    b.watch().fail(kind.call, {kOutOfMemory});
  };
  const auto block = kind.make(b, asked);
  b.watch().during = nullptr;
  b.watch().fail(kind.call, {});
  if (refuses_free) b.watch().forgive();
  if (block || !was_refused) return;
  const auto done = text::format(
      "{}({}), which the driver refuses{}, after blocks of 64 KiB to 24 "
      "MiB of the kind were {}",
      kind.words, asked, refuses_free ? ", as it does the first free" : "", way.words);
  // Another answer is that of the free.
  if (!refuses_free && block.error().code != Errc::out_of_memory) return;
  b.expect(alive() <= left, done,
           text::format("{}; {} of {} allocations of the kind, pending or idle, are not released",
                        describe(block.error()), alive() - before, idle - before),
           "pending frees are made and idle memory is released, and the driver is asked again");
}

/// A device with no room but what the blocks leave.
void fill_and_free(Bench& b, const Way& way, bool has_past) {
  b.leave_on_device(64_MiB);
  b.manager();
  if (has_past) have_a_past(b);
  const auto size = std::min<std::uint64_t>(6_MiB, b.affordable(64_MiB) / 10) & ~(4_KiB - 1);
  for (const auto asked : {size, size / 2, 2 * size}) {
    Blocks blocks, kept;
    while (kept.size() + blocks.size() < 12) {
      auto block = b.try_memalloc(size);
      if (!block) break;
      (blocks.size() < 3 ? blocks : kept).push_back(*std::move(block));
    }
    if (blocks.size() < 3) return;
    way.leave(b, blocks);
    if (way.resets) kept.clear();
    auto made = b.try_memalloc(asked);
    b.gives(made, asked);
    if (b.decided()) return;
    if (asked != size) continue;
    if (made) made->drop();
    kept.clear();
    // Small blocks may come from elsewhere, for which large memory has to be released first.
    blocks.clear();
    for (std::uint64_t served = 0; served < 2 * size; served += size / 16) {
      auto small = b.try_memalloc(size / 16);
      if (!b.gives(small, size / 16)) return;
      blocks.push_back(*std::move(small));
    }
  }
}

void check_refusals(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  for (const auto& way : kWays) {
    if (b.is_numba() && way.resets) continue;
    for (const bool has_past : {false, true}) {
      if (!way.has_faults && !b.decided())
        b.apart([&](Bench& on) { fill_and_free(on, way, has_past); });
    }
    if (b.keeps_host_memory()) continue;
    for (const auto& kind : kKinds) {
      // Numba's code tries again for mapped memory alone: HST-3.
      if (b.is_numba() && kind.words != "memhostalloc, mapped") continue;
      for (const auto asked : {64_KiB, 150_KiB, 2_MiB, 40_MiB}) {
        if (b.decided()) return;
        b.apart([&](Bench& on) {
          if (asked == 150_KiB || asked == 40_MiB) have_a_past(on);
          refuse_until_freed(on, kind, way, asked, false);
        });
      }
      // Numba's flush stops at the first refused free: PD-11.
      if (!way.has_faults && !b.is_numba() && !b.decided())
        b.apart([&](Bench& on) { refuse_until_freed(on, kind, way, 40_MiB, true); });
    }
  }
}

// A manager's own limit.

struct Filled {
  std::uint64_t count = 0;
  std::uint64_t held = 0;      ///< Bytes taken from the device.
  std::uint64_t requests = 0;  ///< Requests that the driver has had.
  std::uint64_t apart = 0;     ///< The least distance of two blocks.
  bool is_refused = false;
  bool by_driver = false;  ///< The driver refused: its own pool has a limit.
};

/// Asks for blocks without the bench, which would take longer than the manager.
Filled fill_with(Bench& on, std::uint64_t size, std::uint64_t most) {
  // Requests after which the log of driver calls is emptied.
  constexpr std::uint64_t kLogged = 4'096;
  Filled filled;
  std::vector<MemoryPointer> blocks;
  std::vector<std::uint64_t> addresses;
  auto& manager = on.manager();
  const auto before = on.driver_requests();
  on.watch().forget();
  while (blocks.size() < most) {
    auto block = manager.memalloc(size);
    if (!block) {
      filled.is_refused = block.error().code == Errc::out_of_memory;
      const auto calls = on.watch().events();
      filled.by_driver = std::any_of(calls.begin(), calls.end(), [](const auto& event) {
        return event.native == kOutOfMemory;
      });
      const auto largest = manager.state().largest_free_bytes.value_or(0);
      if (filled.is_refused)
        on.expect_rule("accounts/reserved", largest < size,
                       text::format("memalloc({}), refused after {} of them", size, blocks.size()),
                       text::format("largest_free_bytes {}", largest), "less");
      break;
    }
    addresses.push_back(block->device_pointer().value);
    blocks.push_back(*std::move(block));
    if (blocks.size() % kLogged == 0) on.watch().forget();
  }
  filled.count = blocks.size();
  filled.held = on.held();
  filled.requests = on.driver_requests() - before;
  std::sort(addresses.begin(), addresses.end());
  for (std::size_t i = 1; i < addresses.size(); ++i) {
    const auto apart = addresses[i] - addresses[i - 1];
    filled.apart = filled.apart == 0 ? apart : std::min(filled.apart, apart);
  }
  while (!blocks.empty()) blocks.pop_back();
  return filled;
}

/// Asks for memory that the driver refuses, also in a deferral.
void ask_in_vain(Bench& on) {
  constexpr std::array kCalls{Call::mem_alloc,
                              Call::runtime_malloc,
                              Call::mem_create,
                              Call::mem_alloc_async,
                              Call::mem_alloc_from_pool_async,
                              Call::mem_alloc_managed};
  for (const auto call : kCalls) on.watch().fail_always(call, kOutOfMemory);
  for (const bool is_deferred : {false, true}) {
    auto deferred = is_deferred ? std::optional(on.manager().defer_cleanup()) : std::nullopt;
    for (int i = 0; i < 4; ++i) {
      static_cast<void>(on.manager().memalloc(6_MiB).has_value());
      static_cast<void>(on.manager().memallocmanaged(6_MiB, AttachFlags::global).has_value());
    }
  }
  for (const auto call : kCalls) on.watch().fail_always(call, 0);
  on.watch().forgive();
}

/// No state changes a limit, whatever that counts.
void expect_same_limit(Bench& on) {
  struct State {
    std::string_view words;
    void (*enter)(Bench& bench);
  };
  static constexpr State kStates[] = {
      {"requests that the driver refuses, also in a deferral", ask_in_vain},
      {"a reset", [](Bench& b) { b.reset(); }},
      {"nested deferrals", [](Bench& b) {
         const auto outer = b.defer();
         const auto inner = b.defer();
         const auto block = b.try_memalloc(70_KiB);
       }}};
  struct Blocks {
    std::uint64_t size, most;
  };
  // What is rounded to powers of two takes nearly twice as much.
  constexpr std::array kBlocks{Blocks{1'025, 20'000}, Blocks{128_KiB + 1, 4'096}};
  std::array<std::uint64_t, kBlocks.size()> before{};
  for (std::size_t i = 0; i < kBlocks.size(); ++i)
    before[i] = fill_with(on, kBlocks[i].size, kBlocks[i].most).count;
  {
    // What it says of the limit it says in a deferral too.
    const auto deferred = on.defer();
    static_cast<void>(fill_with(on, kBlocks.back().size, kBlocks.back().most));
  }
  for (const auto& state : kStates) {
    if (on.is_numba() && state.words == "a reset") continue;  // it leaves memory live: RST-5
    state.enter(on);
    for (std::size_t i = 0; i < kBlocks.size(); ++i) {
      if (i == 0 && state.words != "a reset") continue;  // they take long
      const auto after = fill_with(on, kBlocks[i].size, kBlocks[i].most).count;
      on.expect(after + before[i] / 16 >= before[i],
                text::format("{}, where {} blocks of {} bytes were served before", state.words,
                             before[i], kBlocks[i].size),
                text::format("{} are served", after), "as many");
    }
  }
}

/// Blocks of a size that nothing rounds to itself, and blocks while frees of page-locked memory
/// wait: as many bytes are served as of the pieces that the limit was measured with.
void expect_limit_of_bytes(Bench& on, std::uint64_t piece, const Filled& pieces) {
  constexpr auto kOdd = 3_MiB + 1;
  const auto limit = pieces.count * piece;
  if (!on.is_too_large(kOdd) && limit >= 16 * kOdd) {
    const auto odd = fill_with(on, kOdd, 2 * limit / kOdd);
    const auto served = odd.count * kOdd;
    // What it takes of the device may be limited, too, and is rounded up, to whole segments.
    const auto slack = std::max(2 * kOdd, limit / 8);
    const auto is_less = [&](std::uint64_t bytes, const Filled& than, std::uint64_t other,
                             const Filled& of) {
      return than.is_refused && !than.by_driver && bytes + slack < other &&
             than.held + slack < of.held;
    };
    on.expect(!is_less(served, odd, limit, pieces) && !is_less(limit, pieces, served, odd),
              text::format("blocks of {} bytes asked for, where {} blocks of {} bytes are served "
                           "until one is refused",
                           kOdd, pieces.count, piece),
              text::format("{} bytes are served, with {} held of the device; of the others {}, "
                           "with {}",
                           served, odd.held, limit, pieces.held),
              "a limit of bytes as they were requested, the same for blocks of any size");
  }
  const auto deferred = on.defer();
  constexpr auto kPinned = 8_MiB;
  for (std::uint64_t bytes = 0; bytes < std::min(limit / 4, 256_MiB); bytes += kPinned) {
    auto made = on.try_hosted(kPinned, {});
    if (!made) break;
  }
  const auto waiting = fill_with(on, piece, pieces.count);
  on.expect(
      waiting.count + 1 >= pieces.count,
      text::format("frees of page-locked memory wait in a deferral, where {} blocks of {} bytes "
                   "were served before",
                   pieces.count, piece),
      text::format("{} are served", waiting.count), "as many: they take nothing of the device");
}

/// A manager may also limit what it takes of the device. Small blocks then cost what they are
/// rounded up to, and only a refusal that this does not explain is wrong.
void check_limit(Bench& b) {
  b.untraceable();
  if (!b.capacity().limit || b.refuses_early())
    return b.not_applicable("this manager has no limit of its own");
  if (!b.limits_requested())
    return b.not_applicable("the library that it models limits what it takes of the device");
  // A limit that is a part of the device is met on a small one sooner.
  const auto* const room = b.capacity().of_total != 0 ? "1GiB" : "4GiB";
  auto roomy = b.with_capacity(room);
  auto fresh = b.with_capacity(room);
  if (!roomy || !fresh) return b.inconclusive("a second device cannot be made");
  // Blocks: more than a limit of 16 bits, or of a table, would allow.
  constexpr std::uint64_t kMost = 200'000;
  std::uint64_t piece = 1_MiB;
  auto large = fill_with(**roomy, piece, 1'024);
  if (large.count == 0) large = fill_with(**roomy, piece = 64_KiB, 1'024);
  if (!large.is_refused || large.count == 0 || (*b.capacity().limit > 1_GiB && large.by_driver))
    return b.not_applicable("this manager has no limit of its own");
  const auto limit = large.count * piece;
  ask_in_vain(**roomy);
  const auto later = fill_with(**roomy, piece, 1'024);
  b.expect(later.count + 1 >= large.count,
           text::format("requests that the driver refuses, also in a deferral, where {} blocks of "
                        "{} bytes were served until one was refused",
                        large.count, piece),
           text::format("{} are served", later.count), "as many: a call that fails takes nothing");
  if (!b.decided()) expect_limit_of_bytes(**roomy, piece, later);
  b.take(**roomy);
  if (b.decided()) return;
  auto& on = **fresh;
  on.expect(true, {}, {}, {});
  on.untraceable();
  const auto small = fill_with(on, 1, std::min(kMost, limit / 2));
  if (on.watch().total() == 0) return b.not_applicable("its driver calls are not seen here");
  expect_same_limit(on);
  const auto in_use = small.count * std::max<std::uint64_t>(small.apart, 1);
  const auto makes_physical = on.watch().ledger().calls(Call::mem_create).made != 0;
  std::string why;
  if (small.by_driver) {
    // A pool of CUDA's counts what its own blocks take, and the manager cannot tell it otherwise.
  } else if (small.requests > small.count / 2 && !makes_physical) {
    why = "each of them is a request of the driver";
  } else if (small.held > in_use + in_use / 4 + 64_KiB) {
    why = text::format("the manager holds {} bytes, of which they take {}", small.held, in_use);
  } else if (small.held < large.held / 4) {
    why = text::format("the manager holds {} bytes, and took {} for large blocks", small.held,
                       large.held);
  }
  b.expect(!small.is_refused || why.empty(),
           text::format("blocks of 1 byte asked for, where {} blocks of {} bytes are served until "
                        "one is refused",
                        large.count, piece),
           text::format("refused with {} bytes alive; {}", small.count, why),
           text::format("a limit of bytes as they were requested: {}", limit));
  b.take(on);
}

constexpr Clause kRefusalsClauses[] = {
    {.id = "states/refusals",
     .rule = "Device, managed and page-locked memory is out only where neither pending frees nor "
             "idle memory of the kind would serve, in whatever state it was freed: the request "
             "flushes them, and the driver is asked again.",
     .source = "HST-3, MAN-2, DEV-3; suite/serves",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check = check_refusals},

    {.id = "suite/limit",
     .rule = "A limit counts the bytes that are alive, as they were requested: neither blocks nor "
             "what their sizes are rounded up to.",
     .source = "emm_plugin.h, memalloc: a manager may limit the bytes that are alive, as they were "
               "requested, not the number of blocks",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check = check_limit},
};

}  // namespace
}  // namespace refusals

extern constinit const conformance::ClauseGroup refusals_clauses{
    "Beyond the catalogue: refusals and limits", refusals::kRefusalsClauses};

namespace conformance {

void for_each_refusal_cell(const CombinationCell& cell) {
  for (const auto& way : refusals::kWays) {
    if (!way.has_faults) cell("states/refusals", way.words, refusals::kDevice);
    for (const auto& kind : refusals::kKinds) cell("states/refusals", way.words, kind.words);
  }
}

}  // namespace conformance
}  // namespace emm
