#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "format/csv_line.hpp"
#include "format/rmm_csv.hpp"

/// RMM's two CSV logs, read: every dialect of them that RMM has written, and what other programs
/// made of those: columns in another order, more of them, fields in quotes.
namespace emm::format::rmm {

inline constexpr std::string_view kHeaderWithoutThread =
    "Time,Action,Pointer,Size,Stream";  // of v0.14

/// Which columns the rows after a header have. Used for one row after another.
struct Dialect {
  CsvLayout layout;
  bool is_own = true;  ///< RMM wrote that header.
  CsvLine line{};      ///< The last row that was not plain.

  bool has_thread() const noexcept;  ///< A log may have a column Thread; a legacy log has none.
};

/// Reads the header of a log; empty if it is none. Thread and Stream may be missing.
std::optional<Dialect> dialect_of(std::string_view header);
/// Reads the header of a legacy log, in which all but Event Type, Address and Size may be missing.
std::optional<Dialect> legacy_dialect_of(std::string_view header);

/// A column that does not hold what it should. A column that is missing in a row holds nothing.
struct BadColumn {
  std::string_view column;
  std::string_view value;  ///< Lives as long as the line and the dialect, until the next row.
  std::size_t at = 0;      ///< Offset in the line, from 0.
  std::string_view expected;
};

/// Microseconds may follow a '.' (since 0.20) or a ':'; a null pointer or stream is "(nil)", "0x0"
/// or "0".
std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, Row& row);
/// `row.location` is a view into `line` or the dialect; without quotes it has the commas that it
/// has.
std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, LegacyRow& row);

}  // namespace emm::format::rmm
