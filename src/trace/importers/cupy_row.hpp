#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// What a memory hook of CuPy is told: `source` is the pool's own request to the device. What a
/// recorder adds to it: `trim` is a call of free_all_blocks, `oom` an OutOfMemoryError that the
/// program got.
enum class CupyAction : std::uint8_t { source, alloc, free, trim, oom };

/// One event, of either form: ["alloc", pointer, bytes, device, ns, rounded], with "dev_alloc" and
/// "free" of five elements, and what DebugPrintHook prints,
/// {"hook":"malloc","device_id":0,"size":24,"mem_size":512,...}. An array may end in the current
/// stream. ["free_all_blocks", ns, stream] and ["oom", ns, stream] name no memory.
struct CupyRow {
  CupyAction action = CupyAction::alloc;
  std::uint64_t pointer = 0;
  std::uint64_t size = 0;     ///< Bytes asked for; of a free those of its block.
  std::uint64_t rounded = 0;  ///< Bytes of the block.
  std::uint32_t device = 0;
  std::uint64_t stream = 0;  ///< 0: the default stream, or not said.
  std::uint64_t time_ns = 0;
  bool has_time = false;
};

/// Error: parse_error of a line that is no JSON, in words. A BadField of a member that is not as it
/// should be.
Result<std::optional<BadField>> parse_cupy_row(std::string_view line, const std::string& name,
                                               std::uint64_t line_number, CupyRow& row);

}  // namespace emm::trace
