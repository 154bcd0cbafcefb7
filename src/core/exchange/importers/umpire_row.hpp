#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

enum class UmpireEvent : std::uint8_t {
  allocate,
  deallocate,
  reallocate,
  make_resource,
  make_allocator,
  version,
  other,  ///< Copies, moves, defaults and the like, which allocate nothing.
};

/// A line of one of Umpire's replay logs, in either dialect:
/// {"category":...,"name":...,"numeric_args":...} of 2022, or
/// {"kind":"replay","event":...,"payload":...,"result":...} of older versions. Fields that the row
/// lacks are empty or 0.
struct UmpireRow {
  UmpireEvent event = UmpireEvent::other;
  bool intent = false;          ///< The row announces an event; a row with the result follows.
  std::uint64_t time_ns = 0;    ///< Since 1970.
  std::uint64_t allocator = 0;  ///< The allocator's address in the recorded process.
  std::uint64_t pointer = 0;    ///< The memory that is allocated or freed, also by a reallocation.
  std::uint64_t size = 0;       ///< Bytes.
  std::string name;             ///< The name of a resource or an allocator.
  std::string parent;           ///< make_allocator: the allocator that it allocates from.
  std::string version;          ///< "2022.3.1"
};

/// Umpire can also write its events to a SQLite database. Fails for a file that begins as one, and
/// explains how to turn its events into lines.
Status refuse_umpire_database(std::string_view prefix, const std::string& name);

/// Returns the BadField of a wrong member, or nothing. Error: parse_error, in words, if the line is
/// not JSON.
Result<std::optional<BadField>> parse_umpire_row(std::string_view line, const std::string& name,
                                                 std::uint64_t line_number, UmpireRow& row);

}  // namespace emm::trace
