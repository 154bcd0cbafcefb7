#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: flags of host and managed memory and of registered regions, for every
// manager that offers them. The driver's allocation around a block must have exactly the flags that
// were asked for, whether it was made for this block or for an earlier one.

namespace emm {
namespace {

using namespace emm::conformance;

std::string listed(std::uint64_t bits, std::initializer_list<std::string_view> names) {
  std::string out;
  auto bit = std::uint64_t{1};
  for (const auto name : names) {
    if ((bits & bit) != 0) out += text::format("{}{}", out.empty() ? "" : " and ", name);
    bit <<= 1;
  }
  return text::format("{} ({})", bits, out.empty() ? "none" : out);
}
std::string host_flags(std::uint64_t bits) {
  return listed(bits, {"portable", "mapped", "write-combined"});
}
std::string register_flags(std::uint64_t bits) {
  return listed(bits, {"portable", "mapped", "io", "read-only"});
}

/// Lists the numbers below `count`, in a different order each round.
std::vector<unsigned> in_some_order(Bench& b, unsigned count, int round) {
  std::vector<unsigned> order;
  for (unsigned i = 0; i < count; ++i) order.push_back(i);
  if (round == 1) std::reverse(order.begin(), order.end());
  if (round < 2) return order;
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[b.random().below(i)]);
  return order;
}

constexpr int kRounds = 4;  // each in another order, by chance

/// If `refuses`, makes the device refuse the next call of a kind. The manager may make room and try
/// again.
class RefusedOnce {
 public:
  RefusedOnce(Bench& bench, Call call, bool refuses, std::int32_t code = kOutOfMemory)
      : b_(bench), call_(call) {
    if (refuses) b_.watch().fail(call_, {code});
  }
  ~RefusedOnce() { b_.watch().fail(call_, {}); }
  RefusedOnce(const RefusedOnce&) = delete;
  RefusedOnce& operator=(const RefusedOnce&) = delete;

 private:
  Bench& b_;
  Call call_;
};

/// Runs `check(bench, false)`, and `check(bench, true)` on a second bench.
template <class Check>
void check_with_and_without_refusal(Bench& b, Check check) {
  b.untraceable();
  check(b, false);
  if (b.decided()) return;
  auto fresh = Bench::create(b.subject(), b.clause());
  if (!fresh) return b.inconclusive(describe(fresh.error()));
  (*fresh)->untraceable();
  (*fresh)->expect(true, {}, {}, {});
  check(**fresh, true);
  b.take(**fresh);
}
constexpr std::array<std::string_view, 2> kWhen{"", " after blocks with other flags were freed"};

bool calls_are_seen(Bench& b) {
  if (b.watch().total() != 0) return true;
  b.inconclusive("the driver calls of this manager are not seen here");
  return false;
}

// memhostalloc.

HostAllocFlags flags_of(unsigned bits) {
  return {.mapped = (bits & 2) != 0, .portable = (bits & 1) != 0, .wc = (bits & 4) != 0};
}

void expect_host_flags(Bench& b, const BenchMemory& block, unsigned bits, std::string_view done) {
  const auto& ledger = b.watch().ledger();
  auto thing = ledger.find(CallLedger::Kind::host, block.address());
  const bool is_allocation = thing.has_value();
  if (!thing) thing = ledger.find(CallLedger::Kind::registered, block.address());
  const std::string_view call = is_allocation ? "cuMemHostAlloc" : "cuMemHostRegister";
  if (!b.expect(thing.has_value(), done, "no cuMemHostAlloc that is alive made it",
                "memory of a cuMemHostAlloc or a cuMemHostRegister that is alive"))
    return;
  const auto asked = is_allocation ? bits : bits & 3u;  // a registration cannot be write-combined
  b.expect(thing->flags == asked, done,
           text::format("{} was called with flags {}", call,
                        is_allocation ? host_flags(thing->flags) : register_flags(thing->flags)),
           text::format("flags {}", host_flags(asked)));
}

void check_host_flags(Bench& b, std::uint64_t size, bool refuses) {
  const FreesElsewhere frees_elsewhere(b);
  for (int round = 0; round < kRounds && !b.decided(); ++round) {
    std::vector<BenchMemory> blocks;
    for (const auto bits : in_some_order(b, 8, round)) {
      auto block = [&] {
        const RefusedOnce refused(b, Call::mem_host_alloc, refuses);
        return b.try_hosted(size, flags_of(bits));
      }();
      if (!block) continue;
      const auto done = text::format("memhostalloc({}) with flags {}{}", size, host_flags(bits),
                                     kWhen[round == 0 ? 0 : 1]);
      if (!calls_are_seen(b)) return;
      expect_host_flags(b, *block, bits, done);
      blocks.push_back(*std::move(block));
    }
    if (blocks.empty() && refuses) return;
    if (blocks.empty()) return b.not_applicable("this manager offers no page-locked memory");
    blocks.clear();
    if (round % 2 == 0 || frees_elsewhere) b.expect_ok("flush()", b.manager().flush());
  }
}

/// Expects a freed block, whose free may be pending, not to serve a request with other flags. One
/// block at a time is freed, inside a deferral and outside. A manager that frees on its own thread
/// is judged only inside deferrals.
void check_freed_with_other_flags(Bench& b) {
  const FreesElsewhere frees_elsewhere(b);
  b.expect_ok("flush()", b.manager().flush());
  constexpr unsigned kFlags = 8;  // the sets of three flags
  for (const auto size : {4_KiB, std::uint64_t{200'000}}) {
    for (const bool is_deferred : {true, false}) {
      for (unsigned pair = 0; pair < kFlags * kFlags && !b.decided(); ++pair) {
        const auto before = pair / kFlags, bits = pair % kFlags;
        if (before == bits || (frees_elsewhere && !is_deferred)) continue;
        std::optional<Deferral> deferred;
        if (is_deferred) deferred.emplace(b.defer());
        auto freed = b.try_hosted(size, flags_of(before));
        if (!freed) continue;
        freed->drop();
        for (const auto next : {size, size - size / 4}) {
          const auto block = b.try_hosted(next, flags_of(bits));
          if (!block) continue;
          if (!calls_are_seen(b)) return;
          expect_host_flags(
              b, *block, bits,
              text::format(
                  "memhostalloc({}) with flags {}, after {} bytes with flags {} were freed{}", next,
                  host_flags(bits), size, host_flags(before),
                  is_deferred ? ", inside a deferral" : ""));
        }
        deferred.reset();
        b.expect_ok("flush()", b.manager().flush());
      }
    }
  }
}

/// As check_freed_with_other_flags(), but the driver has no more memory. The freed block is then
/// all that the manager could hand out, and it still must not serve a request with other flags.
void check_freed_where_memory_is_out(Bench& b) {
  const FreesElsewhere frees_elsewhere(b);
  constexpr unsigned kFlags = 8;  // the sets of three flags
  for (const auto size : {4_KiB, std::uint64_t{200'000}}) {
    for (unsigned pair = 0; pair < kFlags * kFlags && !b.decided(); ++pair) {
      const auto before = pair / kFlags, bits = pair % kFlags;
      if (before == bits || frees_elsewhere) continue;
      { const auto freed = b.try_hosted(size, flags_of(before)); }
      const RefusedOnce refused(b, Call::mem_host_alloc, true);
      const auto block = b.try_hosted(size, flags_of(bits));
      if (block && !calls_are_seen(b)) return;
      if (block)
        expect_host_flags(b, *block, bits,
                          text::format("memhostalloc({}) with flags {}, which the driver refuses "
                                       "once, after as much with flags {} was freed",
                                       size, host_flags(bits), host_flags(before)));
      // So that no block with these flags is left for the next pair.
      b.expect_ok("flush()", b.manager().flush());
      static_cast<void>(b.manager().trim(0).has_value());
    }
  }
}

// mempin.

std::optional<CallLedger::Thing> registration(Bench& b, std::uint64_t address) {
  return b.watch().ledger().find(CallLedger::Kind::registered, address);
}

void check_register_flags(Bench& b, bool refuses) {
  const std::array ranges{b.buffer(), b.buffer(12_KiB), b.buffer(64_KiB)};
  bool any = false;
  for (int round = 0; round < kRounds && !b.decided(); ++round) {
    for (const auto bits : in_some_order(b, 16, round)) {
      const HostRegisterFlags flags{.mapped = (bits & 2) != 0,
                                    .portable = (bits & 1) != 0,
                                    .read_only = (bits & 8) != 0,
                                    .io = (bits & 4) != 0};
      const auto& range = ranges[static_cast<std::size_t>(round) % ranges.size()];
      b.watch().forget();
      const auto block = [&] {
        const RefusedOnce refused(b, Call::mem_host_register, refuses);
        return b.try_pin(range, flags);
      }();
      if (!block && block.error().code == Errc::not_supported) continue;
      if (!calls_are_seen(b)) return;
      // Judges the call, not its success: the device may refuse the flags, as it does for memory
      // that is not the process's own.
      const auto events = b.watch().events();
      const auto call = std::find_if(events.rbegin(), events.rend(), [&](const auto& event) {
        return event.call == Call::mem_host_register;
      });
      const auto done = text::format("mempin of {} bytes with flags {}{}", range.size,
                                     register_flags(bits), kWhen[round == 0 ? 0 : 1]);
      if (call == events.rend() && !block) continue;
      any = true;
      if (!b.expect(call != events.rend(), done, "cuMemHostRegister was not called",
                    "the region is registered"))
        return;
      b.expect(
          call->other == bits, done,
          text::format("cuMemHostRegister was called with flags {}", register_flags(call->other)),
          text::format("flags {}", register_flags(bits)));
    }
  }
  if (!any) b.not_applicable("this manager pins no memory");
}

/// Expects exactly the region to be registered.
void expect_registered(Bench& b, HostRange range, std::string_view done) {
  const auto address = reinterpret_cast<std::uint64_t>(range.pointer);
  const auto thing = registration(b, address);
  if (!b.expect(thing.has_value(), done, "cuMemHostRegister was not called for it",
                "the region is registered"))
    return;
  b.expect(thing->base == address && thing->size == range.size, done,
           text::format("cuMemHostRegister was called for {} bytes, from {} before its first byte",
                        thing->size, address - thing->base),
           text::format("its {} bytes, from the first", range.size));
}

void check_regions(Bench& b, bool refuses) {
  const auto page = b.buffer(1_MiB + 64_KiB);
  const auto part = [&](std::uint64_t from, std::uint64_t size) {
    return HostRange{.pointer = page.pointer + from, .size = size};
  };
  const std::array regions{part(0, 4096),    part(0, 64_KiB),        part(0, 1),
                           part(1, 4095),    part(4095, 2),          part(17, 100),
                           part(4096, 64),   part(100, 12_KiB),      part(4097, 8191),
                           part(8192, 4097), part(0, 64_KiB + 1),    part(5, 300'001),
                           part(0, 1_MiB),   part(4096, 1_MiB + 513)};
  const auto can_pin = [&](HostRange range) {
    return b.device().mem_host_register(range, {}).has_value() &&
           b.device().mem_host_unregister(range.pointer).has_value();
  };
  const auto pin = [&](HostRange region, bool mapped, std::int32_t code) {
    auto block = [&] {
      const RefusedOnce refused(b, Call::mem_host_register, refuses, code);
      return b.try_pin(region, {.mapped = mapped});
    }();
    if (refuses && !block) return;
    if (!block && block.error().code == Errc::not_supported)
      return b.not_applicable(describe(block.error()));
    const auto done = text::format("mempin of {} bytes, {} bytes into a page", region.size,
                                   (region.pointer - page.pointer) % 4096);
    if (!b.expect_ok(done, block) || !calls_are_seen(b)) return;
    expect_registered(b, region, done);
  };
  for (const auto& region : regions) {
    if (!can_pin(region)) continue;
    for (const bool mapped : {false, true}) {
      for (const auto code : {kOutOfMemory, kInvalidValue}) {
        pin(region, mapped, code);
        if (registration(b, reinterpret_cast<std::uint64_t>(region.pointer))) return;  // PIN-10
        if (b.decided()) return;
        if (!refuses) break;
      }
    }
  }
  // Two neighbours in one page, if the device takes them.
  const auto first = part(1, 100);
  const auto second = part(101, 57);
  if (!b.device().mem_host_register(first, {})) return;
  const bool both = b.device().mem_host_register(second, {}).has_value() &&
                    b.device().mem_host_unregister(second.pointer).has_value();
  if (!b.device().mem_host_unregister(first.pointer) || !both) return;
  auto one = b.try_pin(first);
  const auto other = b.try_pin(second);
  if (!b.expect_ok("mempin of two neighbours in one page, the first", one) ||
      !b.expect_ok("mempin of two neighbours in one page, the second", other))
    return;
  expect_registered(b, first, "mempin of two neighbours in one page, the first");
  expect_registered(b, second, "mempin of two neighbours in one page, the second");
  one->drop();
  expect_registered(b, second, "the end of the first of two neighbours in one page, the second");
}

/// Pins a region larger than 32 bits can count. Nothing touches it, so on a simulated device it
/// takes no memory of this machine.
void check_large_region(Bench& b) {
  constexpr auto kSize = 4_GiB + 4_KiB;  // what 32 bits count, and a page more
  if (!b.is_simulated()) return;
  void* const memory =
      mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  const HostRange region{.pointer = static_cast<HostPtr>(memory), .size = kSize};
  if (b.device().mem_host_register(region, {}) && b.device().mem_host_unregister(region.pointer)) {
    const auto block = b.try_pin(region);
    // The manager may have a limit of its own.
    if (block) expect_registered(b, region, text::format("mempin of {} bytes", kSize));
  }
  munmap(memory, kSize);
}

// The device's address of mapped memory.

/// Expects the new device address when a region is pinned again.
void check_address_of_region_pinned_again(Bench& b) {
  const auto range = b.buffer();
  for (const auto apart : {1_MiB, 3_MiB}) {
    b.stub().host_to_device = apart;
    const auto region = b.try_pin(range, {.mapped = true});
    if (!region || !calls_are_seen(b)) return;
    b.expect_equal(text::format("device address less host address of a region that is pinned {}, "
                                "where cuMemHostGetDevicePointer has them {} apart now",
                                apart == 1_MiB ? "first" : "again", apart),
                   region->device().value - region->address(), apart);
  }
}

/// The driver has no more memory, and the work of freed memory has not ended. A manager that waits
/// for it and hands that memory out must return its device address.
void check_address_where_memory_is_out(Bench& b) {
  b.stub().host_to_device = 1_MiB;
  for (const auto size : {4_KiB, std::uint64_t{200'000}}) {
    { const auto freed = b.try_hosted(size, {.mapped = true}); }
    for (const auto call : {Call::event_query, Call::stream_query})
      b.watch().fail_always(call, kNotReady);
    const auto block = [&] {
      const RefusedOnce refused(b, Call::mem_host_alloc, true);
      return b.try_hosted(size, {.mapped = true});
    }();
    for (const auto call : {Call::event_query, Call::stream_query}) b.watch().fail_always(call, 0);
    const auto done = text::format(
        "memhostalloc({}), mapped, which the driver refuses once, after as much was freed whose "
        "work has not ended",
        size);
    if (!block) {
      const auto code = block.error().code;
      b.expect(code == Errc::out_of_memory || code == Errc::not_supported, done,
               answer_of(block.error()), "mapped memory with its device address, or out of memory");
    } else if (calls_are_seen(b)) {
      b.expect_equal(text::format("{}: device address less host address", done),
                     block->device().value - block->address(), 1_MiB);
    }
  }
}

void check_mapped_addresses(Bench& b) {
  b.stub().host_to_device = 1_MiB;
  const auto expect_apart = [&](std::string_view done, const Result<BenchMemory>& block) {
    if (!block || !block->is_mapped() || !calls_are_seen(b)) return false;
    b.expect_equal(text::format("device address less host address of {}, where "
                                "cuMemHostGetDevicePointer has them 1048576 apart",
                                done),
                   block->device().value - block->address(), 1_MiB);
    return true;
  };
  bool any = false;
  for (const auto size : {std::uint64_t{64}, 4_KiB, 1_MiB + 1}) {
    const auto first = b.try_hosted(size, {.mapped = true});
    const auto second = b.try_hosted(size, {.mapped = true, .portable = true});
    const auto region = b.try_pin(b.buffer(size), {.mapped = true});
    for (const auto* block : {&first, &second})
      any |= expect_apart(text::format("memhostalloc({}), mapped", size), *block);
    any |= expect_apart(text::format("mempin of {} bytes, mapped", size), region);
  }
  if (!any) b.not_applicable("this manager maps no host memory");
}

// memallocmanaged.

void check_attachment(Bench& b, std::uint64_t size, bool refuses) {
  const FreesElsewhere frees_elsewhere(b);
  const auto attach_flags = [](std::uint64_t flags) {
    return text::format("{} ({})", flags,
                        flags == 1   ? "global"
                        : flags == 2 ? "host"
                                     : "neither global nor host");
  };
  for (int round = 0; round < kRounds && !b.decided(); ++round) {
    std::vector<BenchMemory> blocks;
    for (const auto number : in_some_order(b, 6, round)) {
      const auto attach = number % 2 == 0 ? AttachFlags::global : AttachFlags::host;
      const auto asked = static_cast<std::uint64_t>(attach);
      auto block = [&] {
        const RefusedOnce refused(b, Call::mem_alloc_managed, refuses);
        return b.try_managed(size, attach);
      }();
      if (!block) continue;
      const auto done = text::format("memallocmanaged({}) with attach flags {}{}", size,
                                     attach_flags(asked), kWhen[round == 0 ? 0 : 1]);
      if (!calls_are_seen(b)) return;
      const auto thing = b.watch().ledger().find(CallLedger::Kind::managed, block->address());
      if (!b.expect(thing.has_value(), done, "no cuMemAllocManaged that is alive made it",
                    "memory of a cuMemAllocManaged that is alive"))
        return;
      b.expect(
          thing->flags == asked, done,
          text::format("cuMemAllocManaged was called with flags {}", attach_flags(thing->flags)),
          text::format("flags {}", attach_flags(asked)));
      blocks.push_back(*std::move(block));
    }
    if (blocks.empty() && refuses) return;
    if (blocks.empty()) return b.not_applicable("this manager offers no managed memory");
    blocks.clear();
    if (round % 2 == 0 || frees_elsewhere) b.expect_ok("flush()", b.manager().flush());
  }
}

/// Does what check_freed_with_other_flags() does, for managed memory.
void check_freed_with_other_attachment(Bench& b) {
  for (const auto size : {64_KiB, std::uint64_t{200'000}}) {
    for (const bool is_deferred : {true, false}) {
      for (const auto attach : {AttachFlags::global, AttachFlags::host}) {
        const auto other = attach == AttachFlags::global ? AttachFlags::host : AttachFlags::global;
        std::optional<Deferral> deferred;
        if (is_deferred) deferred.emplace(b.defer());
        auto freed = b.try_managed(size, other);
        if (!freed) continue;
        freed->drop();
        for (const auto next : {size, size - size / 4}) {
          const auto block = b.try_managed(next, attach);
          if (!block) continue;
          const auto thing = b.watch().ledger().find(CallLedger::Kind::managed, block->address());
          b.expect(
              !thing || thing->flags == static_cast<std::uint64_t>(attach),
              text::format("memallocmanaged({}) with attach flags {}, after {} bytes with "
                           "attach flags {} were freed{}",
                           next, static_cast<unsigned>(attach), size, static_cast<unsigned>(other),
                           is_deferred ? ", inside a deferral" : ""),
              text::format("cuMemAllocManaged was called with flags {}", thing ? thing->flags : 0),
              text::format("flags {}", static_cast<unsigned>(attach)));
        }
      }
      b.expect_ok("flush()", b.manager().flush());
    }
  }
}

constexpr Clause kFlagsClauses[] = {
    {.id = "flags/memhostalloc",
     .rule = "Page-locked memory is portable, mapped and write-combined exactly where that was "
             "asked for, whatever was freed before.",
     .source = "NBEP 7; drv:753-762; emm_plugin.h, memhostalloc",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with =
         "HST-1 HST-2 HST-11 accounts/pending accounts/host_heap suite/mixed suite/serves "
         "errors/passed_on errors/out_of_memory flags/mapped_address",
     .check =
         [](Bench& b) {
           check_with_and_without_refusal(b, [](Bench& on, bool refuses) {
             for (const auto size : {std::uint64_t{64}, 4_KiB, 16_KiB, std::uint64_t{50'000},
                                     std::uint64_t{200'000}, 600_KiB, 1_MiB + 1})
               check_host_flags(on, size, refuses);
           });
           if (!b.decided()) check_freed_with_other_flags(b);
           if (!b.decided()) b.apart(check_freed_where_memory_is_out);
         }},

    {.id = "flags/mempin",
     .rule = "A region is registered with exactly the flags that were asked for.",
     .source = "NBEP 7; emm_plugin.h, mempin",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "PIN-1",
     .check = [](Bench& b) { check_with_and_without_refusal(b, check_register_flags); }},

    {.id = "flags/region",
     .rule = "Exactly the region that was asked for is registered: no byte less, none more, and no "
             "neighbour with it.",
     .source = "drv:789-798; emm_plugin.h, mempin",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "PIN-1",
     .check =
         [](Bench& b) {
           check_with_and_without_refusal(b, check_regions);
           if (!b.decided()) check_large_region(b);
         }},

    {.id = "flags/mapped_address",
     .rule = "Mapped memory has the device address that the driver gives it.",
     .source = "drv:1757-1769; emm_plugin.h, struct emm_memory",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "HST-6",
     .check =
         [](Bench& b) {
           b.untraceable();
           if (b.subject().standins != nullptr)
             return b.not_applicable("the addresses that this manager is given cannot be moved");
           check_mapped_addresses(b);
           if (!b.decided()) b.apart(check_address_of_region_pinned_again);
           if (!b.decided()) b.apart(check_address_where_memory_is_out);
         }},

    {.id = "flags/memallocmanaged",
     .rule = "Managed memory is attached to all streams or to the host as it was asked for, "
             "whatever was freed before.",
     .source = "drv:819-828; emm_plugin.h, memallocmanaged",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "MAN-1 MAN-4",
     .check =
         [](Bench& b) {
           check_with_and_without_refusal(b, [](Bench& on, bool refuses) {
             for (const auto size :
                  {std::uint64_t{64}, 4_KiB, 64_KiB, std::uint64_t{200'000}, 600_KiB, 3_MiB})
               check_attachment(on, size, refuses);
           });
           if (!b.decided()) check_freed_with_other_attachment(b);
         }},
};

}  // namespace

extern constinit const ClauseGroup flags_clauses{"Beyond the catalogue: flags and regions",
                                                 kFlagsClauses};

}  // namespace emm
