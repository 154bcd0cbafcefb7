#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_sum.hpp"
#include "base/result.hpp"
#include "exchange/importer.hpp"
#include "format/byte_source.hpp"
#include "trace/header.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

/// A part of a row that its format does not allow.
struct BadField {
  std::string_view what;      ///< The column or member: `Size`, `"size"`.
  std::string_view value;     ///< As the row has it, without quotes.
  std::size_t at = 0;         ///< Its offset in the line.
  std::string_view expected;  ///< "a count of bytes"
};

/// The header of a recording of a whole run.
Header recording_header(std::string_view framework, std::vector<std::string> required,
                        Level level = Level::framework);

/// One import: reads the lines of a foreign file, passes operations to the sink, and counts both.
class ImportRun {
 public:
  ImportRun(format::ByteSource& source, OperationSink& sink, const ImportOptions& options) noexcept
      : lines_(source), sink_(sink), options_(options) {}

  /// Reads the next line that is not blank. The caller then counts it. Returns false at the end of
  /// the file; parse_error if the file has nothing in it.
  Result<bool> next(std::string_view& line);
  /// Refuses the line that next() returned. If it is the cut end of a file and
  /// ImportOptions::partial is set, counts it as truncated, and the import may finish. Otherwise
  /// returns an error in words.
  Status refuse(const BadField& field);
  /// Refuses a line whose error is already in words: "run.jsonl:7:12: ...".
  Status refuse(Error error);

  Status header(const Header& header) { return sink_.on_header(header); }
  /// Gives the operation to the sink. Sets the current line if the operation has none.
  Status emit(Operation& operation);
  std::uint64_t next_id() noexcept { return last_id_ += id_step_; }
  std::uint64_t id_to_come() const noexcept { return last_id_ + id_step_; }
  /// Shares ids among `count` imports into one trace: the import `index`, from 0, takes every
  /// `count`th id.
  void share_ids(std::uint64_t index, std::uint64_t count) noexcept {
    last_id_ = index + 1 - count;  // may wrap below 0; next_id() adds the step first
    id_step_ = count;
  }

  ImportCounts& counts() noexcept { return counts_; }
  void used() noexcept { ++counts_.rows, ++counts_.used; }
  void unmatched() noexcept { ++counts_.rows, ++counts_.unmatched; }
  void duplicate() noexcept { ++counts_.rows, ++counts_.duplicate; }
  void other() noexcept { ++counts_.rows, ++counts_.other; }
  /// Adds the note "3 frees name another size than their allocation", unless `count` is 0.
  void note(std::uint64_t count, std::string_view words);
  /// Adds the note "2 columns are not read: notes, host".
  void note_columns(const std::vector<std::string>& names);
  std::uint64_t line_number() const noexcept { return lines_.line_number(); }
  const std::string& source_name() noexcept { return lines_.source().name(); }

  /// Emits the trace's `end`, unless the file was cut, with what is live and the number of
  /// operations that the recorder knows it lost. Then finishes the sink.
  Result<ImportCounts> finish(std::uint64_t live, const ByteSum& live_bytes,
                              std::uint64_t lost = 0);

 private:
  format::LineReader lines_;
  OperationSink& sink_;
  ImportOptions options_;
  ImportCounts counts_;
  std::uint64_t last_id_ = 0, id_step_ = 1;
  std::uint64_t emitted_ = 0;
  std::uint64_t asked_ = 0;  // bytes, of what was not refused
  bool may_go_on_ = false;   // the last line has no line end and may be cut
};

}  // namespace emm::trace
