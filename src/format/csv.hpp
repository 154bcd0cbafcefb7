#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"

namespace emm::format {

/// Rows of comma-separated values, RFC 4180: a field in quotes may hold commas, line ends and
/// doubled quotes. LF and CRLF both end a row. Memory is bounded by the longest row.
class CsvReader {
 public:
  explicit CsvReader(ByteSource& source) noexcept : lines_(source) {}

  /// False at the end. Errors: the source's; parse_error for a quote out of place and for a file
  /// that ends inside quotes. Fields live until the next call.
  Result<bool> next(std::vector<std::string_view>& fields);
  std::uint64_t line_number() const noexcept {
    return line_;
  }  ///< Where the last row begins, from 1.
  /// The last row had no line end: the file was cut there, or lacks its final newline.
  bool unterminated() const noexcept { return lines_.unterminated(); }

 private:
  LineReader lines_;
  std::uint64_t line_ = 0;
  std::string row_;  // the fields of a row with quotes, unquoted, one after the other
  std::vector<std::pair<std::size_t, std::size_t>> spans_;
};

/// `value` as one field: in quotes only where it must be.
void append_csv_field(std::string& out, std::string_view value);

}  // namespace emm::format
