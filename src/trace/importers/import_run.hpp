#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_sum.hpp"
#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/importer.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// A part of a row that is not as its format has it.
struct BadField {
  std::string_view what;      ///< Its column or member: `Size`, `"size"`.
  std::string_view value;     ///< As it stands there, without quotes.
  std::size_t at = 0;         ///< Its position in the line, from 0.
  std::string_view expected;  ///< "a count of bytes"
};

/// The header of a recording of a whole run.
Header recording_header(std::string_view framework, std::vector<std::string> required,
                        Level level = Level::framework);

/// One import on its way: gives out the rows of a foreign file of lines, passes operations on, and
/// adds up both.
class ImportRun {
 public:
  ImportRun(format::ByteSource& source, OperationSink& sink, const ImportOptions& options) noexcept
      : lines_(source), sink_(sink), options_(options) {}

  /// The next line that is not blank, not counted yet: the caller says what it was. False at the
  /// end of the file, which is a parse_error where it has nothing in it.
  Result<bool> next(std::string_view& line);
  /// The line begun with next() is not a row of the format. Where it is the end of a file that was
  /// cut, and ImportOptions::partial, it is counted as truncated and the import may finish; else an
  /// error in words.
  Status refuse(const BadField& field);
  /// Refuses a line whose error is in words already: "run.jsonl:7:12: ...".
  Status refuse(Error error);

  Status header(const Header& header) { return sink_.on_header(header); }
  /// Gives it to the sink, as of the current line where it names none.
  Status emit(Operation& operation);
  std::uint64_t next_id() noexcept { return last_id_ += id_step_; }
  std::uint64_t id_to_come() const noexcept { return last_id_ + id_step_; }
  /// Says that this is import `index`, from 0, of `count` into one trace: it gives each of its ids
  /// once among them.
  void share_ids(std::uint64_t index, std::uint64_t count) noexcept {
    last_id_ = index + 1 - count;  // wraps, and is never given
    id_step_ = count;
  }

  ImportCounts& counts() noexcept { return counts_; }
  void used() noexcept { ++counts_.rows, ++counts_.used; }
  void unmatched() noexcept { ++counts_.rows, ++counts_.unmatched; }
  void duplicate() noexcept { ++counts_.rows, ++counts_.duplicate; }
  void other() noexcept { ++counts_.rows, ++counts_.other; }
  /// "3 frees name another size than their allocation", where `count` is not 0.
  void note(std::uint64_t count, std::string_view words);
  /// "2 columns are not read: notes, host".
  void note_columns(const std::vector<std::string>& names);
  std::uint64_t line_number() const noexcept { return lines_.line_number(); }
  const std::string& source_name() noexcept { return lines_.source().name(); }

  /// The trace's `end`, unless the file was cut, with what is live then and how many operations the
  /// recorder knows that it lost, and the sink's own.
  Result<ImportCounts> finish(std::uint64_t live, const ByteSum& live_bytes,
                              std::uint64_t lost = 0);

 private:
  format::LineReader lines_;
  OperationSink& sink_;
  ImportOptions options_;
  ImportCounts counts_;
  std::uint64_t last_id_ = 0, id_step_ = 1;
  std::uint64_t emitted_ = 0;
  bool may_go_on_ =
      false;  // the last line lacks its end, and does not say by itself that it is whole
};

}  // namespace emm::trace
