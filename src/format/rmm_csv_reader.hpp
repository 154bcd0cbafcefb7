#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "format/rmm_csv.hpp"

/// RMM's two CSV logs, read: every dialect of them that RMM has written.
namespace emm::format::rmm {

/// Which columns a log's rows have. v0.14 had no Thread.
enum class Dialect : std::uint8_t { with_thread, without_thread };
inline constexpr std::string_view kHeaderWithoutThread = "Time,Action,Pointer,Size,Stream";

/// Of a header line; nothing where it is no header of the modern log.
std::optional<Dialect> dialect_of(std::string_view header) noexcept;

/// A column that does not hold what it should. A column that is missing holds nothing.
struct BadColumn {
  std::string_view column;
  std::string_view value;
  std::size_t at = 0;  ///< Offset in the line, from 0.
  std::string_view expected;
};

/// Microseconds may follow a '.' (since 0.20) or a ':'; a null pointer or stream is "(nil)", "0x0" or "0".
std::optional<BadColumn> parse(std::string_view line, Dialect dialect, Row& row) noexcept;
/// `row.location` is a view into `line`, commas and all.
std::optional<BadColumn> parse(std::string_view line, LegacyRow& row) noexcept;

}  // namespace emm::format::rmm
