#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"

// INF and the exporting half of IPC.

namespace emm {
namespace {

using namespace emm::conformance;

/// Asks the driver for the allocation that contains the memory. Returns false when the driver knows
/// none.
bool find_range(Bench& b, MemoryView memory, AddressRange& range) {
  const auto found = b.device().mem_get_address_range(memory.device_pointer);
  if (!found) {
    b.inconclusive(describe(found.error()));
    return false;
  }
  range = *found;
  return true;
}

std::optional<IpcHandle> export_handle(Bench& b, MemoryView memory) {
  auto handle = b.manager().get_ipc_handle(memory);
  if (handle) return *std::move(handle);
  if (handle.error().code == Errc::not_supported) {
    b.not_applicable(describe(handle.error()));
  } else {
    b.expect_ok("get_ipc_handle", handle);
  }
  return std::nullopt;
}

/// A manager starts on a device that others have nearly filled, and goes on after they have left.
void judge_total(Bench& b) {
  // What others leave at first; what is asked for after they left, in such pieces.
  constexpr auto kFirst = 32_MiB, kMost = 160_MiB, kPiece = 8_MiB;
  auto fresh = Bench::create(b.subject(), b.clause());
  if (!fresh) return b.inconclusive(describe(fresh.error()));
  auto& on = **fresh;
  on.untraceable();
  on.expect(true, {}, {}, {});
  on.leave_on_device(kFirst);
  const auto first = on.manager().get_memory_info();
  on.release_ballast();
  std::vector<BenchMemory> blocks;
  while (first && blocks.size() * kPiece < kMost) {
    auto block = on.try_memalloc(kPiece);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
  const auto live = blocks.size() * kPiece;
  if (const auto info = on.manager().get_memory_info()) {
    on.expect(info->total >= live,
              text::format("get_memory_info() with {} bytes alive, of a manager that began where "
                           "{} were free",
                           live, kFirst),
              text::format("{} bytes free of {}", info->free, info->total),
              text::format("a total of {} or more", live));
  }
  b.take(on);
}

/// Judges the handle of `memory`. Returns false when there is none.
bool judge_handle(Bench& b, MemoryView memory) {
  AddressRange range;
  if (!find_range(b, memory, range)) return false;
  const auto handle = export_handle(b, memory);
  if (!handle) return false;
  const auto done = text::format("get_ipc_handle of {} bytes, {} into the driver's allocation",
                                 memory.size, memory.device_pointer - range.base);
  b.expect_equal(text::format("{}: the size in the handle", done), handle->fields().size,
                 memory.size);
  b.expect_equal(text::format("{}: the offset in the handle", done), handle->fields().offset,
                 memory.device_pointer - range.base);
  const auto truth = b.stub().ipc_get_mem_handle(range.base);
  b.expect(truth && handle->fields().handle == *truth, done, "another handle than the driver's",
           text::format("cuIpcGetMemHandle of {}", text::hex(range.base.value)));
  b.expect(handle->fields().source_info == b.device().device_identity(), done, "another device",
           "the device that the memory is on");
  return true;
}

constexpr Clause kQuestionsClauses[] = {
    {.id = "INF-1",
     .rule = "get_memory_info gives free and total bytes; free is at most total, and what is alive "
             "is no more than total.",
     .source = "NBEP 7; DOC; T:test_context_memory",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "INF-2 memory_info/true",
     .check =
         [](Bench& b) {
           const auto block = b.any(8_MiB);
           const auto info = b.manager().get_memory_info();
           if (!info) return b.not_applicable(describe(info.error()));
           b.expect(info->total > 0, "get_memory_info()", "a total of 0", "bytes");
           b.expect(info->free <= info->total, "get_memory_info()",
                    text::format("{} free of {}", info->free, info->total), "free <= total");
           if (!b.decided() && b.is_simulated()) judge_total(b);
         }},

    {.id = "INF-2",
     .rule = "The default manager's answer is the device's.",
     .source = "drv:904",
     .level = Level::should,
     .scope = Scope::deflt,
     .may_fail_with = "memory_info/true",
     .check =
         [](Bench& b) {
           const auto block = b.memalloc(8_MiB);
           b.watch().forget();
           const auto info = b.manager().get_memory_info();
           if (!b.expect_ok("get_memory_info()", info)) return;
           b.expect_calls("get_memory_info()", {Call::mem_get_info});
           const auto truth = b.device().mem_get_info();
           b.expect(truth && *truth == *info, "get_memory_info()",
                    text::format("{} free of {}", info->free, info->total),
                    "what cuMemGetInfo says");
         }},

    {.id = "INF-4",
     .rule = "A manager that does not tell its memory answers not_supported, and nothing else.",
     .source = "drv:668; DOC; rmm",
     .level = Level::quirk,
     .scope = Scope::all,
     .may_fail_with = "errors/passed_on errors/out_of_memory",
     .check =
         [](Bench& b) {
           const auto info = b.manager().get_memory_info();
           b.expect(info || info.error().code == Errc::not_supported, "get_memory_info()",
                    info ? "" : answer_of(info.error()), "figures, or not_supported");
         }},

    {.id = "INF-5",
     .rule = "get_memory_info may be asked at any time after initialize.",
     .source = "NBEP 7",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           if (const auto first = b.manager().get_memory_info(); !first)
             return b.not_applicable(describe(first.error()));
           const auto ask = [&](std::string_view when) {
             b.expect_ok(when, b.manager().get_memory_info());
           };
           {
             const auto block = b.any(64_KiB);
             ask("get_memory_info() with memory alive");
             const auto deferred = b.defer();
             ask("get_memory_info() while cleanup is deferred");
           }
           ask("get_memory_info() after memory has ended");
           b.reset();
           ask("get_memory_info() after reset");
         }},

    {.id = "IPC-2",
     .rule = "A handle tells the size that was exported, its offset in the driver's allocation, "
             "and the device.",
     .source = "drv:872-878, 499; DOC",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           const auto hosted = b.try_hosted(64, {.mapped = true});  // mapped memory is not exported
           const auto managed = b.try_managed(64);
           std::vector<BenchMemory> blocks;
           const auto room = b.affordable(160_MiB);
           for (const auto size : {64_KiB, 64_KiB, 3_MiB, 5_MiB, 12_MiB, 3_MiB, 40_MiB, 100_KiB}) {
             if (4 * size > room) continue;
             blocks.push_back(b.memalloc(size));
             if (b.decided()) return;
           }
           for (const auto& block : blocks) {
             if (!judge_handle(b, block.view())) return;
             if (!judge_handle(b, *block.view().view(64, 128))) return;
           }
           // Other operations must not change a handle.
           static_cast<void>(b.manager().trim(0).has_value());
           static_cast<void>(b.manager().flush().has_value());
           if (const auto out = b.try_memalloc(std::uint64_t{1} << 50)) return;
           for (const auto& block : blocks) {
             if (!judge_handle(b, block.view())) return;
           }
           if (!b.is_simulated() || b.decided()) return;
           // An offset that 32 bits cannot hold.
           auto large = b.with_capacity("40GiB");
           if (!large) return b.inconclusive(describe(large.error()));
           // Sharing this much would take time and all the memory that the manager writes there.
           if (b.subject().standins == nullptr) (*large)->stub().loops_back = true;
           const auto block = (*large)->try_memalloc(9_GiB);
           (*large)->expect(true, {}, {}, {});
           if (block) {
             for (const auto from : {4_GiB, 5_GiB + 512, 9_GiB - 64}) {
               const auto part = block->view().view(from, from + 64);
               if (!part || !judge_handle(**large, *part)) break;
             }
           }
           b.take(**large);
         }},

    {.id = "IPC-3",
     .rule = "Exporting asks for the allocation around the address, and for the handle of its "
             "base; nothing else, and what it answers is final.",
     .source = "drv:861-878; numba#5429",
     .level = Level::should,
     .scope = Scope::host,
     .check =
         [](Bench& b) {
           const auto block = b.memalloc(64_KiB);
           AddressRange range;
           if (b.decided() || !find_range(b, block.view(), range)) return;
           if (b.queue_waits()) b.mapped(64).drop();  // a pending free stays pending
           for (int i = 0; i < 2; ++i) {
             b.watch().forget();
             if (!export_handle(b, *block.view().view(64, 128))) return;
             b.expect_calls("get_ipc_handle of a slice",
                            {Call::mem_get_address_range, Call::ipc_get_mem_handle});
             b.expect(b.decided() || b.watch().events()[1].pointer == range.base.value,
                      "get_ipc_handle of a slice", "the handle of another address",
                      "that of the allocation's base");
           }
           b.watch().fail(Call::ipc_get_mem_handle, {700});
           const auto refused = b.manager().get_ipc_handle(block.view());
           b.expect(!refused && refused.error().native == 700,
                    "get_ipc_handle, where the driver answers 700",
                    refused ? "a handle" : answer_of(refused.error()),
                    "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
         }},

    {.id = "IPC-4",
     .rule = "Two blocks that are alive never export the same place.",
     .source = "numba#3310; ucx#11724",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "IPC-2",
     .check =
         [](Bench& b) {
           std::vector<BenchMemory> blocks;
           std::vector<IpcHandle> handles;
           const auto room = b.affordable(160_MiB);
           for (const auto size : {64_KiB, 64_KiB, 5_MiB, 12_MiB, 40_MiB, 100_KiB, 40_MiB}) {
             if (4 * size > room) continue;
             blocks.push_back(b.memalloc(size));
             if (b.decided()) return;
             auto handle = export_handle(b, blocks.back().view());
             if (!handle) return;
             for (const auto& other : handles) {
               const auto same = handle->fields().handle == other.fields().handle &&
                                 handle->fields().offset == other.fields().offset;
               b.expect(!same, "two blocks exported", "one handle and one offset",
                        "another handle, or another offset");
             }
             handles.push_back(*std::move(handle));
           }
         }},
};

}  // namespace

extern constinit const ClauseGroup questions_clauses{"Memory info and IPC", kQuestionsClauses};

}  // namespace emm
