#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

enum class UmpireEvent : std::uint8_t {
  allocate,
  deallocate,
  reallocate,
  make_resource,
  make_allocator,
  version,
  other,  ///< Copies, moves, defaults, ...: nothing that allocates.
};

/// A line of one of Umpire's replay logs, of either dialect:
/// {"category":...,"name":...,"numeric_args":...} of 2022,
/// {"kind":"replay","event":...,"payload":...,"result":...} before. What a row lacks is empty or 0.
struct UmpireRow {
  UmpireEvent event = UmpireEvent::other;
  bool intent = false;  ///< Says what is about to be done, which a row with its result follows.
  std::uint64_t time_ns = 0;    ///< Since 1970.
  std::uint64_t allocator = 0;  ///< Its address in the recorded process.
  std::uint64_t pointer = 0;    ///< What is allocated or freed, also by a reallocation.
  std::uint64_t size = 0;       ///< Bytes.
  std::string name;             ///< Names a resource or an allocator.
  std::string parent;           ///< make_allocator: the allocator that it stands on.
  std::string version;          ///< "2022.3.1"
};

/// Umpire writes the same events to a database of SQLite where it is told to. Error, of a file that
/// begins so: says what it is, and how its events become lines.
Status refuse_umpire_database(std::string_view prefix, const std::string& name);

/// Error: parse_error of a line that is no JSON, in words. A BadField of a member that is not as it
/// should be.
Result<std::optional<BadField>> parse_umpire_row(std::string_view line, const std::string& name,
                                                 std::uint64_t line_number, UmpireRow& row);

}  // namespace emm::trace
