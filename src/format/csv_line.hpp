#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emm::format {

/// A line of a CSV file taken apart at its commas. A field may stand in double quotes, in which a
/// comma is no border and two quotes are one; blanks around a field are not part of it. Made once,
/// and used for line after line.
class CsvLine {
 public:
  /// False where a quote has no end, or something but a comma follows it: then the fields are as if
  /// there were no quotes in the line. The views of the fields live as long as `line`, and until
  /// the next call.
  bool split(std::string_view line);

  std::size_t size() const noexcept { return fields_.size(); }
  /// Empty where the line has no such field.
  std::string_view operator[](std::size_t index) const noexcept {
    return index < fields_.size() ? fields_[index].text : std::string_view();
  }
  /// The position of the field in the line, from 0; the line's end where it has no such field.
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
  std::string unescaped_;  // of all fields that have quotes inside
  std::size_t line_size_ = 0;
};

/// A field as a CSV file writes it: in quotes where it holds a quote, a comma or the end of a line.
std::string csv_field(std::string_view text);

/// A name that a header may give to a column, in lower case. Several names may be of one column.
struct CsvColumnName {
  std::string_view name;
  std::uint8_t column;  ///< Below 64.
};

/// Knows where the columns that a reader knows stand in a file, as its header says: in any order,
/// among others.
class CsvLayout {
 public:
  static constexpr std::uint8_t kOther = 255;

  /// Names are known in whatever case. Nothing where one of `required` (a bit for each column) is
  /// not there, or a column is named twice.
  static std::optional<CsvLayout> of(std::string_view header, std::span<const CsvColumnName> known,
                                     std::uint64_t required);

  /// What stands in each place of a row: a column, or kOther.
  const std::vector<std::uint8_t>& columns() const noexcept { return columns_; }
  bool has(std::uint8_t column) const noexcept { return (named_ >> column & 1) != 0; }
  /// The names of columns that are not known, as the header has them.
  const std::vector<std::string>& others() const noexcept { return others_; }
  /// Also those of another header of the same file.
  void add_others(const CsvLayout& layout);

 private:
  std::vector<std::uint8_t> columns_;
  std::vector<std::string> others_;
  std::uint64_t named_ = 0;
};

}  // namespace emm::format
