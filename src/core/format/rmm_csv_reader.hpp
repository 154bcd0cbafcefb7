#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "format/csv_line.hpp"
#include "format/rmm_csv.hpp"

/// Reads RMM's two CSV logs, in every dialect that RMM has written and as other programs rewrote
/// them: with columns in another order, with more columns, with quoted fields.
namespace emm::format::rmm {

inline constexpr std::string_view kHeaderWithoutThread =
    "Time,Action,Pointer,Size,Stream";  // of v0.14

/// The columns of the rows after a header. Reused for all of these rows.
struct Dialect {
  CsvLayout layout;
  bool is_own = true;  ///< RMM itself writes this header.
  CsvLine line{};      ///< The last row that needed splitting by CSV rules.

  bool has_thread() const noexcept;  ///< A log may have a column Thread; a legacy log has none.
};

/// Parses the header of a log; empty if the line is not one. Thread and Stream may be missing.
std::optional<Dialect> dialect_of(std::string_view header);
/// Parses the header of a legacy log. All columns but Event Type, Address and Size may be missing.
std::optional<Dialect> legacy_dialect_of(std::string_view header);

/// A column whose value is wrong. The value is empty if the row lacks the column.
struct BadColumn {
  std::string_view column;
  std::string_view value;  ///< Valid as long as the line and the dialect, and until the next row.
  std::size_t at = 0;      ///< Offset in the line, from 0.
  std::string_view expected;
};

/// Parses a row. Microseconds follow a '.' (since 0.20) or a ':'. A null pointer or stream is
/// "(nil)", "0x0" or "0".
std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, Row& row);
/// Parses a legacy row. `row.location` is a view into `line` or the dialect; without quotes it runs
/// to the end of the line and may contain commas.
std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, LegacyRow& row);

}  // namespace emm::format::rmm
