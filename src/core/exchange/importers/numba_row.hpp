#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// The calls that a recorder around Numba's default manager writes, one JSON line for each.
enum class NumbaCall : std::uint8_t {
  initialize,
  memory_info,
  alloc,
  managed,
  hostalloc,
  pin,
  unpin,
  ipc_export,
  reset,
  defer_begin,
  defer_end,
  pending_add,
  pending_flush,
  unknown,
};
/// As the recorder of Numba spells them, in the order of NumbaCall.
inline constexpr std::array<std::string_view, 13> kNumbaCallNames{
    "initialize", "memory_info", "alloc",       "managed",   "hostalloc",   "pin",          "unpin",
    "ipc_export", "reset",       "defer_begin", "defer_end", "pending_add", "pending_flush"};

/// One line of such a recording.
struct NumbaRow {
  NumbaCall call = NumbaCall::unknown;
  std::uint32_t line = 0;
  std::uint64_t seq = 0, time_ns = 0, thread = 0;
  std::uint64_t pointer = 0, size = 0, offset = 0;
  std::uint64_t free = 0, total = 0;   ///< memory_info
  std::uint64_t count = 0, bytes = 0;  ///< pending_flush
  bool mapped = false, portable = false, wc = false, attach_global = true;
  bool moved = false;  ///< The row is not in the place of its `seq`, so the trace leaves `seq` out.
  bool memory = true;  ///< pending_add: true for memory; false for an event, a stream or a module.
  std::string unknown{};  ///< The row's `op`, if it is not a known one.
};

/// Returns the BadField of a wrong member, or nothing. Error: parse_error, in words, if the line is
/// not JSON.
Result<std::optional<BadField>> parse_numba_row(std::string_view line, const std::string& name,
                                                std::uint64_t line_number, NumbaRow& row);

}  // namespace emm::trace
