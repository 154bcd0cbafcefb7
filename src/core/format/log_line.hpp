#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "format/any_word.hpp"
#include "format/byte_source.hpp"

namespace emm::format {

/// A line of a log without what launchers, loggers and terminals add to it.
struct LogLine {
  std::string_view text;
  /// Who wrote it, as the prefix of the line says: "3" for `[rank3]:`, "pid 1234" for
  /// `(Worker pid=1234)`. Empty if no prefix says it.
  std::string_view writer;
};

/// The longest part of a line that LogLines gives at once. A longer line comes in parts.
inline constexpr std::size_t kLogPartBytes = std::size_t{16} << 10;

// Bytes of a log that are kept around a line of interest, and that are looked at line by line at
// its beginning.
inline constexpr std::size_t kLogNear = std::size_t{64} << 10;
inline constexpr std::size_t kLogWhole = std::size_t{1} << 20;

/// Takes the prefix off a line: timestamps, levels, ranks, process ids, `file.cc:479]`, pytest's
/// `E   `, and the frames of boxes. What is no prefix stays. With `is_numbered`, a number and a
/// colon are a rank, as `srun --label` writes it.
LogLine without_prefix(std::string_view line, bool is_numbered = true);

/// Reads a text of any length as lines, in bounded memory. Colours and other escape sequences are
/// removed, and a line of JSON that holds escaped line ends becomes several lines. Views are valid
/// until the next call.
class LogLines {
 public:
  explicit LogLines(ByteSource& source) noexcept : source_(source) {}
  /// Passes over what is far from every word of `words`: of a long text it gives only lines that
  /// lie within kLogNear bytes of one, and the first kLogWhole bytes. They must outlive it.
  LogLines(ByteSource& source, const AnyWord& words) noexcept : source_(source), words_(&words) {}

  /// Returns false at the end.
  Result<bool> next(LogLine& line);
  /// The number of the last line in the file, from 1.
  std::uint64_t line_number() const noexcept { return number_; }
  /// How often lines were passed over.
  std::uint64_t gaps() const noexcept { return gaps_; }
  /// Were there bytes that no text has?
  bool is_binary() const noexcept { return is_binary_; }

 private:
  Result<bool> more(bool at_line_begin);
  bool is_far(std::string_view text);
  void pass_over(std::string_view lines);
  void take(std::string_view raw, bool goes_on);

  ByteSource& source_;
  const AnyWord* words_ = nullptr;
  std::string_view rest_;   // of what the source gave, not looked at yet
  std::string near_;        // the last lines that were passed over, and what follows them
  std::uint64_t read_ = 0;  // bytes that were looked at
  std::uint64_t near_until_ = 0, gaps_ = 0;
  bool passes_ = false;
  std::string_view chunk_;
  std::string raw_;                      // the part of a line that is not complete yet
  std::string clean_;                    // the last line, cleaned
  std::vector<std::string_view> parts_;  // its lines, where it is JSON
  std::string writer_;
  std::size_t part_ = 0;
  std::uint64_t number_ = 0;
  bool continued_ = false;  // the line before was a part of this one
  bool ended_ = false, is_binary_ = false;
  bool is_numbered_ = true;  // the line before began with a number and a colon, as srun's all do
};

}  // namespace emm::format
