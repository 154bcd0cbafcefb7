#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// The calls of a CuPy memory hook; `source` is the pool's own request to the device. A recorder
/// adds two: `trim` is a call of free_all_blocks, `oom` an OutOfMemoryError that the program got.
enum class CupyAction : std::uint8_t { source, alloc, free, trim, oom };

/// One event, in one of two forms. ["alloc", pointer, bytes, device, ns, rounded] is an array;
/// "dev_alloc" and "free" have five elements.
/// {"hook":"malloc","device_id":0,"size":24,"mem_size":512,...} is what DebugPrintHook prints. An
/// array may end with the current stream. ["free_all_blocks", ns, stream] and ["oom", ns, stream]
/// name no memory.
struct CupyRow {
  CupyAction action = CupyAction::alloc;
  std::uint64_t pointer = 0;
  std::uint64_t size = 0;     ///< Bytes requested; for a free, the bytes of its block.
  std::uint64_t rounded = 0;  ///< Bytes of the block.
  std::uint32_t device = 0;
  std::uint64_t stream = 0;  ///< 0: the default stream, or unknown.
  std::uint64_t time_ns = 0;
  bool has_time = false;
};

/// Returns the BadField of a wrong member, or nothing. Error: parse_error, in words, if the line is
/// not JSON.
Result<std::optional<BadField>> parse_cupy_row(std::string_view line, const std::string& name,
                                               std::uint64_t line_number, CupyRow& row);

}  // namespace emm::trace
