#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::format {

/// Bytes that are read once, in order, from a file, standard input ("-") or memory. The first bytes
/// tell whether they are plain, gzip or zstd; packed ones are unpacked while they are read, on
/// another thread if that pays. Memory is bounded by the buffers and the longest line asked for.
/// One thread at a time.
class ByteSource {
 public:
  /// Once `stop` is true, reading fails with `interrupted`, also while it waits for a pipe. `stop`
  /// must outlive the source.
  static Result<std::unique_ptr<ByteSource>> open(const std::string& path,
                                                  const std::atomic<bool>* stop = nullptr);
  /// Reads `bytes`, which must outlive the source, and unpacks them if they are packed.
  static std::unique_ptr<ByteSource> memory(std::string_view bytes, std::string name = "<memory>",
                                            const std::atomic<bool>* stop = nullptr);
  virtual ~ByteSource() = default;

  /// For messages: the path, or "<stdin>".
  virtual const std::string& name() const noexcept = 0;
  /// The first bytes, unpacked, up to `size` (at most 64 KiB); fewer only if the source is shorter.
  /// Consumes nothing. REQUIRES: before the first read.
  virtual Result<std::string_view> peek(std::size_t size) = 0;
  /// The next bytes, any number; empty at the end. The view is valid until the next call, and at
  /// least 64 bytes after it are readable, with undefined content.
  virtual Result<std::string_view> next() = 0;
  /// Bytes of the file consumed so far, and its size (0: unknown), both as packed; for progress.
  virtual std::uint64_t consumed() const noexcept = 0;
  virtual std::uint64_t total() const noexcept = 0;
  /// Did the packed stream end before its end mark? Valid once next() has reached the end.
  virtual bool truncated() const noexcept = 0;
};

/// Whole lines of a ByteSource, without their line ends (LF or CRLF).
class LineReader {
 public:
  explicit LineReader(ByteSource& source, std::size_t max_line = std::size_t{64} << 20) noexcept
      : source_(source), max_line_(max_line) {}

  /// Returns false at the end. Errors: the source's, and parse_error for a line longer than the
  /// limit. The view is valid until the next call, and at least 64 bytes after it are readable.
  Result<bool> next(std::string_view& line);
  /// The number of the last line, from 1.
  std::uint64_t line_number() const noexcept { return line_number_; }
  /// The last line had no line end: the file was cut or lacks its final newline.
  bool unterminated() const noexcept { return unterminated_; }
  ByteSource& source() noexcept { return source_; }

 private:
  ByteSource& source_;
  std::size_t max_line_;
  std::string_view rest_;
  std::string carried_;  ///< The beginning of a line that spans chunks.
  std::uint64_t line_number_ = 0;
  bool unterminated_ = false;
  bool ended_ = false;
};

}  // namespace emm::format
