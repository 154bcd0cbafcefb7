#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// The events that PyTorch's caching allocator records, by PyTorch's names.
enum class TorchAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
  snapshot,
  user_defined,
};
/// As PyTorch spells them in a snapshot, in the order of TorchAction.
inline constexpr std::array<std::string_view, 10> kTorchActionNames{
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
    "snapshot",     "user_defined"};

/// `["alloc",140618672111616,154389504,0,1795225354508868]`
struct TorchRow {
  TorchAction action = TorchAction::alloc;
  std::uint64_t address = 0;  ///< For oom: bytes free on the device.
  bool has_address = false;   ///< False if it is null, as it may be for a snapshot or an oom.
  std::uint64_t size = 0;     ///< Bytes.
  std::uint64_t stream = 0;   ///< A handle; 0 is the default stream.
  std::uint64_t time_us = 0;  ///< Since 1970.
  bool has_time = true;
  std::uint64_t granted = 0;     ///< For alloc: bytes of the block; 0: unknown.
  std::uint64_t site = 0;        ///< The site that a `define` of the trace describes; 0: none.
  std::string_view label{};      ///< The program's label for the row; may be empty.
  std::string_view extension{};  ///< "x-" members, as JSON without braces; may be empty.
};

/// Returns the BadField of a wrong element, or nothing. Error: parse_error, in words, if the line
/// is not JSON.
Result<std::optional<BadField>> parse_torch_row(std::string_view line, const std::string& name,
                                                std::uint64_t line_number, TorchRow& row);

}  // namespace emm::trace
