#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emm::format {

/// Splits a line of a CSV file at its commas. A field may be in double quotes: a comma inside does
/// not end it, and two quotes stand for one. Blanks around a field are dropped. Reuse one object
/// for all lines.
class CsvLine {
 public:
  /// Returns false if a quote does not end or is not followed by a comma; the fields are then those
  /// of the line without quoting rules. Views of fields live as long as `line` and until the next
  /// call.
  bool split(std::string_view line);

  std::size_t size() const noexcept { return fields_.size(); }
  /// Empty if the line has no such field.
  std::string_view operator[](std::size_t index) const noexcept {
    return index < fields_.size() ? fields_[index].text : std::string_view();
  }
  /// The offset of the field in the line; the line's size if there is no such field.
  std::size_t at(std::size_t index) const noexcept {
    return index < fields_.size() ? fields_[index].at : line_size_;
  }

 private:
  struct Field {
    std::string_view text;
    std::size_t at;
  };

  bool split_quoted(std::string_view line);
  std::size_t add_plain(std::string_view line, std::size_t at);

  std::vector<Field> fields_;
  std::string unescaped_;  // text of all fields with quotes inside
  std::size_t line_size_ = 0;
};

/// Spells a field for a CSV file: in quotes if it contains a quote, a comma or a line end.
std::string csv_field(std::string_view text);

/// A name that a header may give to a column, in lower case. Several names may mean one column.
struct CsvColumnName {
  std::string_view name;
  std::uint8_t column;  ///< Below 64.
};

/// The places of known columns in a file, from its header. They may be in any order and among
/// unknown columns.
class CsvLayout {
 public:
  static constexpr std::uint8_t kOther = 255;  // a column that is not known

  /// Ignores the case of names. Returns nothing if one of `required` (a bit for each column) is
  /// missing or a column is named twice.
  static std::optional<CsvLayout> of(std::string_view header, std::span<const CsvColumnName> known,
                                     std::uint64_t required);

  /// The column at each place of a row: a known one or kOther.
  const std::vector<std::uint8_t>& columns() const noexcept { return columns_; }
  bool has(std::uint8_t column) const noexcept { return (named_ >> column & 1) != 0; }
  /// The names of unknown columns, as the header spells them.
  const std::vector<std::string>& others() const noexcept { return others_; }
  /// Adds the unknown columns of another header of the same file.
  void add_others(const CsvLayout& layout);

 private:
  std::vector<std::uint8_t> columns_;
  std::vector<std::string> others_;
  std::uint64_t named_ = 0;
};

}  // namespace emm::format
