#include <unistd.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// HST, PIN and MAN: host and managed memory.

namespace emm {
namespace {

using namespace emm::conformance;

/// Reads through a pipe, which fails where a load would fault.
bool host_can_read(std::uint64_t address, std::span<std::byte> into) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const auto size = static_cast<ssize_t>(into.size());
  const auto passed = write(ends[1], reinterpret_cast<const void*>(address), into.size()) == size &&
                      read(ends[0], into.data(), into.size()) == size;
  close(ends[0]);
  close(ends[1]);
  return passed;
}

/// Expects the first such call since the last forget() to have these flags and this size.
void expect_asked(Bench& b, Call call, std::uint64_t flags, std::uint64_t size) {
  for (const auto& event : b.watch().events()) {
    if (event.call != call) continue;
    b.expect_equal(text::format("flags of {}", call_info(call).cuda_name), event.other, flags);
    b.expect_equal(text::format("bytes asked of {}", call_info(call).cuda_name), event.size, size);
    return;
  }
  b.inconclusive(text::format("no call of {} is seen here", call_info(call).cuda_name));
}

/// Pins regions that share bytes with a pinned one. The manager must return the driver's own
/// answer.
void pin_beside_pinned(Bench& b) {
  constexpr std::uint64_t kPage = 4096;  // bytes of the host: regions are pinned in pages
  const auto pages = b.buffer(8 * kPage);
  const auto part = [&](std::uint64_t from, std::uint64_t count) {
    return HostRange{.pointer = pages.pointer + from * kPage, .size = count * kPage};
  };
  const auto first = b.try_pin(part(2, 4), {.mapped = true});
  if (!first) return;
  for (const auto& [from, count] : std::initializer_list<std::pair<std::uint64_t, std::uint64_t>>{
           {3, 1}, {2, 2}, {4, 2}, {2, 5}, {1, 6}, {1, 2}, {5, 2}}) {
    const auto region = part(from, count);
    const auto by_driver = b.device().mem_host_register(region, {});
    if (by_driver) {
      if (!b.device().mem_host_unregister(region.pointer)) return;
      continue;
    }
    for (const bool mapped : {false, true}) {
      const auto again = b.try_pin(region, {.mapped = mapped});
      b.expect(!again && again.error().code == by_driver.error().code,
               text::format("mempin of pages {} to {}, where pages 2 to 5 are pinned", from,
                            from + count - 1),
               again ? "success" : answer_of(again.error()),
               text::format("{}, as the driver answers", answer_of(by_driver.error())));
    }
  }
}

constexpr Clause kHostMemoryClauses[] = {
    {.id = "HST-1",
     .rule = "The size reaches cuMemHostAlloc unchanged, and mapped, portable and wc as its flags "
             "2, 1 and 4.",
     .source = "drv:753-762",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "flags/memhostalloc",
     .check =
         [](Bench& b) {
           b.manager();
           for (unsigned bits = 0; bits < 8; ++bits) {
             b.watch().forget();
             const auto block = b.hosted(
                 64,
                 {.mapped = (bits & 2) != 0, .portable = (bits & 1) != 0, .wc = (bits & 4) != 0});
             expect_asked(b, Call::mem_host_alloc, bits, 64);
           }
         }},

    {.id = "HST-2",
     .rule = "memhostalloc gives mapped memory where that was asked for, else pinned memory, which "
             "has no device pointer; of the size asked for.",
     .source = "NBEP 7; drv:775-779",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto mapped = b.mapped(64);
           const auto pinned = b.pinned(64);
           b.expect(mapped.is_mapped() && mapped.device(), "memhostalloc(64, mapped)",
                    "no device address", "mapped memory");
           b.expect(!pinned.is_mapped(), "memhostalloc(64)", "mapped memory", "pinned memory");
           b.expect_equal("size of mapped memory of 64", mapped.size(), 64u);
           b.expect_equal("size of pinned memory of 64", pinned.size(), 64u);
           // Each size may be served from the block before it.
           for (const auto size :
                {std::uint64_t{64}, std::uint64_t{100}, std::uint64_t{4'000}, std::uint64_t{4'090},
                 4_KiB, 4_KiB + 1, 8_KiB - 1, 8_KiB, std::uint64_t{65'000}, 64_KiB, 64_KiB + 1}) {
             for (const bool maps : {false, true}) b.hosted(size, {.mapped = maps}).drop();
           }
         }},

    {.id = "HST-3",
     .rule =
         "Any memhostalloc that is out of memory is tried once more (numba: mapped memory alone).",
     .source = "drv:764-767",
     .level = Level::quirk,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           for (const bool mapped : {false, true}) {
             b.watch().forget();
             b.watch().fail(Call::mem_host_alloc, {2});
             const auto block = b.try_hosted(64, {.mapped = mapped});
             const auto retried = mapped || !b.is_numba();
             b.expect_equal(
                 mapped ? "calls of cuMemHostAlloc, mapped" : "calls of cuMemHostAlloc, unmapped",
                 b.count(Call::mem_host_alloc), retried ? 2u : 1u);
           }
         }},

    {.id = "HST-5",
     .rule = "The end of page-locked memory queues its free, and makes none itself.",
     .source = "drv:1328-1348",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "ERR-3 HST-9 MAN-2",
     .check =
         [](Bench& b) {
           if (b.queue_waits()) b.mapped(64).drop();
           b.pinned(64).drop();
           b.expect_equal("frees by the ends of page-locked memory", b.ends(), 0u);
           b.expect_ok("flush()", b.manager().flush());
           b.expect_equal("calls of cuMemFreeHost by flush()", b.count(Call::mem_free_host),
                          b.queue_waits() ? 2u : 1u);
         }},

    {.id = "HST-6",
     .rule = "Mapped memory has the host address, and the device address that "
             "cuMemHostGetDevicePointer gives.",
     .source = "drv:1757-1769",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "flags/mapped_address",
     .check =
         [](Bench& b) {
           b.stub().host_to_device = 1_MiB;
           b.manager();
           for (int i = 0; i < 2; ++i) {
             b.watch().forget();
             const auto block = b.mapped(64);
             b.expect_equal(
                 "device address less host address, where the driver has them 1048576 apart",
                 block.device().value - block.address(), 1_MiB);
             b.expect_calls("memhostalloc(64, mapped)",
                            {Call::mem_host_alloc, Call::mem_host_get_device_pointer});
             b.watch().forget();
             const auto region = b.try_pin(b.buffer(), {.mapped = true});
             if (!b.expect_ok("mempin, mapped", region)) return;
             b.expect_equal("the same of a mapped region",
                            region->device().value - region->address(), 1_MiB);
             b.expect_calls("mempin, mapped",
                            {Call::mem_host_register, Call::mem_host_get_device_pointer});
           }
         }},

    {.id = "HST-7",
     .rule = "Page-locked memory that cannot be mapped is released (numba leaks it).",
     .source = "drv:1757-1769",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "accounts/every_call_failed",
     .check =
         [](Bench& b) {
           b.watch().fail(Call::mem_host_get_device_pointer, {1, 1});
           for (int i = 0; i < 2; ++i) {
             b.expect_error("memhostalloc(64, mapped), which cannot be mapped",
                            b.try_hosted(64, {.mapped = true}), Errc::invalid_value);
           }
           b.expect_equal("calls of cuMemFreeHost by two of them", b.count(Call::mem_free_host),
                          2u);
         }},

    {.id = "HST-8",
     .rule = "Pending frees of unmapped page-locked memory count their bytes (numba: none).",
     .source = "drv:1340; numba#9507",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "MAN-2 accounts/pending",
     .check =
         [](Bench& b) {
           b.stub().total = 1000;
           b.pinned(150).drop();
           b.pinned(150).drop();
           b.expect_equal("frees after 300 of 1000 bytes were dropped", b.ends(),
                          b.is_numba() ? 0u : 2u);
         }},

    {.id = "HST-9",
     .rule = "An unsized free and a sized one wait alike (numba, host-only plugin: the sized one "
             "takes all with it).",
     .source = "drv:1002-1008",
     .level = Level::quirk,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           b.pinned(64).drop();
           b.expect_equal("frees by the end of pinned memory", b.ends(), 0u);
           b.mapped(64).drop();
           b.expect_equal("frees by the end of mapped memory", b.ends(), b.queue_waits() ? 0u : 2u);
         }},

    {.id = "HST-11",
     .rule = "The host can write and read all of it, and sees what the device writes.",
     .source = "drv:1764-1769; T:test_host_alloc",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "flags/memhostalloc reset/late_ends flags/mapped_address",
     .check =
         [](Bench& b) {
           const auto mapped = b.mapped(4_KiB);
           const auto pinned = b.pinned(4_KiB);
           if (b.decided()) return;
           b.fill(mapped, 1);
           b.fill(pinned, 2);
           b.expect(b.holds(mapped, 1) && b.holds(pinned, 2), "all bytes written by the host",
                    "others", "what was written");
           b.expect_ok("a memset by the device", b.device().memset_d8(mapped.device(), 3, 4_KiB));
           b.expect(b.holds(mapped, 3), "a memset by the device", "the host does not see it",
                    "3 everywhere");
         }},

    {.id = "PIN-1",
     .rule = "mempin registers the whole region, with flag 2 where it maps, else with none.",
     .source = "drv:789-798",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "flags/mempin",
     .check =
         [](Bench& b) {
           b.manager();
           for (const bool mapped : {false, true}) {
             b.watch().forget();
             const auto block = b.pin(b.buffer(), {.mapped = mapped});
             expect_asked(b, Call::mem_host_register, mapped ? 2u : 0u, 4096);
           }
         }},

    {.id = "PIN-2",
     .rule = "Any mempin that is out of memory is tried once more (numba: a mapped one alone).",
     .source = "drv:800-803",
     .level = Level::quirk,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           for (const bool mapped : {false, true}) {
             b.watch().forget();
             b.watch().fail(Call::mem_host_register, {2});
             const auto block = b.try_pin(b.buffer(), {.mapped = mapped});
             b.expect_equal(mapped ? "calls of cuMemHostRegister, mapped"
                                   : "calls of cuMemHostRegister, unmapped",
                            b.count(Call::mem_host_register), mapped || !b.is_numba() ? 2u : 1u);
           }
         }},

    {.id = "PIN-3",
     .rule = "mempin gives the region that was asked for: mapped where that was asked for, else "
             "pinned, without a device pointer.",
     .source = "drv:805-817",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "PIN-1 flags/mempin",
     .check =
         [](Bench& b) {
           const auto first = b.buffer();
           const auto second = b.buffer();
           const auto mapped = b.pin(first, {.mapped = true});
           const auto pinned = b.pin(second);
           b.expect(mapped.is_mapped() && !pinned.is_mapped(), "mempin, mapped and not",
                    "the other kind", "what was asked for");
           b.expect(mapped.host() == first.pointer && pinned.host() == second.pointer, "mempin",
                    "another address", "the region's");
           b.expect_equal("size of a pinned region of 4096", pinned.size(), 4096u);
         }},

    {.id = "PIN-4",
     .rule = "The owner of a pinned region lives until the region's pointer ends, and no longer.",
     .source = "drv:1758, 1795",
     .level = Level::must,
     .scope = Scope::all,
     .not_through_abi = "the host keeps the owner of a region",
     .check =
         [](Bench& b) {
           for (const bool mapped : {false, true}) {
             auto owner = std::make_shared<const int>(0);
             const std::weak_ptr<const int> watched = owner;
             {
               auto memory = b.manager().mempin(b.buffer(), {.mapped = mapped}, std::move(owner));
               if (!memory) return b.not_applicable(describe(memory.error()));
               b.expect(!watched.expired(), "mempin with an owner", "the owner has ended",
                        "it lives as long as the result");
             }
             b.expect(watched.expired(), "the end of a pinned region", "its owner lives on",
                      "the owner is let go");
           }
         }},

    {.id = "PIN-5",
     .rule = "Unpinning waits for nothing, not even for a deferral, so that the region can be "
             "pinned again at once.",
     .source = "drv:1351-1371; numba#3508",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "DFR-7 reset/ends_all",
     .check =
         [](Bench& b) {
           const auto range = b.buffer();
           b.pin(range).drop();
           b.expect_ok("mempin of a region whose pointer has ended", b.try_pin(range));
           const auto deferred = b.defer();
           for (const unsigned flags : {1u, 2u, 3u, 0u, 0u}) {
             const auto again =
                 b.try_pin(range, {.mapped = (flags & 2) != 0, .portable = (flags & 1) != 0});
             if (flags != 0 && !again && again.error().code == Errc::not_supported) continue;
             b.expect_ok("the same while cleanup is deferred", again);
           }
         }},

    {.id = "PIN-7",
     .rule = "Pinning what is pinned gives the driver's error.",
     .source = "the driver; numba#3508",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto range = b.buffer();
           const auto first = b.pin(range);
           b.expect_error("mempin of a pinned region", b.try_pin(range), Errc::already_registered);
           b.expect(first.alive(), "mempin of a pinned region", "the first pointer is dead",
                    "it is as it was");
           if (!b.decided()) b.apart(pin_beside_pinned);
         }},

    {.id = "PIN-8",
     .rule = "A region that cannot be mapped does not stay registered.",
     .source = "drv:805-817",
     .level = Level::quirk,
     .scope = Scope::host,
     .may_fail_with = "PIN-5 accounts/every_call_failed",
     .check =
         [](Bench& b) {
           const auto range = b.buffer();
           b.watch().fail(Call::mem_host_get_device_pointer, {1});
           b.expect_error("mempin, which cannot map", b.try_pin(range, {.mapped = true}),
                          Errc::invalid_value);
           b.expect_equal("calls of cuMemHostUnregister", b.count(Call::mem_host_unregister), 1u);
         }},

    {.id = "PIN-10",
     .rule = "An explicit free unpins, whoever still refers to the region; the end of the pointer "
             "later is silent.",
     .source = "api:427-467",
     .level = Level::should,
     .scope = Scope::all,
     .may_fail_with = "HST-6 DFR-7 reset/ends_all",
     .check =
         [](Bench& b) {
           auto block = b.pin(b.buffer());
           b.watch().forget();
           b.expect_ok("free()", block.free());
           b.expect_equal("calls of cuMemHostUnregister by free()",
                          b.count(Call::mem_host_unregister), 1u);
           block.drop();
           b.expect_equal("... and after the pointer's end", b.count(Call::mem_host_unregister),
                          1u);
         }},

    {.id = "MAN-1",
     .rule = "Managed memory is asked for in its size, and attached as asked: 1 to all streams, 2 "
             "to the host.",
     .source = "drv:819-828",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "flags/memallocmanaged",
     .check =
         [](Bench& b) {
           b.manager();
           for (const auto attach : {AttachFlags::global, AttachFlags::host}) {
             b.watch().forget();
             const auto block = b.managed(64, attach);
             expect_asked(b, Call::mem_alloc_managed, static_cast<std::uint64_t>(attach), 64);
           }
         }},

    {.id = "MAN-2",
     .rule =
         "Where memory is out, the pending frees are made and managed memory asked for once more.",
     .source = "drv:830",
     .level = Level::should,
     .scope = Scope::host,
     .may_fail_with = "DEV-5",
     .check =
         [](Bench& b) {
           b.pinned(64).drop();
           b.watch().forget();
           b.watch().fail(Call::mem_alloc_managed, {2});
           const auto block = b.try_managed(64);
           b.expect_ok("memallocmanaged, which ran out of memory once", block);
           b.expect_calls("memallocmanaged, which ran out of memory once",
                          {Call::mem_alloc_managed, Call::mem_free_host, Call::mem_alloc_managed});
         }},

    {.id = "MAN-3",
     .rule = "Managed memory is freed by cuMemFree, through the queue.",
     .source = "drv:834-838, 1316",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           auto deferred = std::optional<Deferral>();
           if (!b.queue_waits()) deferred.emplace(b.defer());
           b.managed(64).drop();
           b.expect_equal("frees by the end of managed memory", b.ends(), 0u);
           b.watch().forget();
           if (deferred) return;
           b.expect_ok("flush()", b.manager().flush());
           b.expect_calls("flush()", {Call::mem_free});
         }},

    {.id = "MAN-4",
     .rule = "Managed memory has one address, which the host can read and write too.",
     .source = "drv:1813-1845",
     .level = Level::should,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto block = b.managed(256);
           if (b.decided() || !b.expect(b.fill(block, 9), "a memset of managed memory",
                                        "the driver refuses it", "success"))
             return;
           std::array<std::byte, 256> bytes{};
           b.expect(host_can_read(block.address(), bytes), "managed memory read by the host",
                    "it is not the host's to read", "one address for both");
           b.expect(std::all_of(bytes.begin(), bytes.end(),
                                [](std::byte byte) { return byte == std::byte{9}; }),
                    "managed memory read by the host", "other bytes", "what the device wrote");
         }},
};

}  // namespace

extern constinit const ClauseGroup host_memory_clauses{"Host and managed memory",
                                                       kHostMemoryClauses};

}  // namespace emm
