#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::format {

/// Writes bytes in order to a file, standard output ("-") or a string; a path that ends in ".gz" or
/// ".zst" compresses. Each write() takes whole records, and a plain file ends with a whole record
/// at any moment, so a killed run leaves no torn line. One thread at a time.
class ByteSink {
 public:
  /// Truncates the file at once. Refuses a file that the run already uses for something else
  /// (run_files.hpp); `who` names its user.
  static Result<std::unique_ptr<ByteSink>> open(const std::string& path, std::string_view who = {});
  /// Opens `file`, which run_files already knows, under another `name` in messages. The ending of
  /// `name` selects the compression.
  static Result<std::unique_ptr<ByteSink>> open_as(const std::string& file,
                                                   const std::string& name);
  static std::unique_ptr<ByteSink> to_string(std::string& out);
  virtual ~ByteSink() = default;  ///< Flushes. An error is lost here, so call close().

  virtual const std::string& name() const noexcept = 0;
  /// Error: io_error with the path and the reason. After one, every later call fails too. run_files
  /// notes the first.
  virtual Status write(std::string_view record) = 0;
  virtual Status flush() = 0;
  virtual Status close() = 0;
};

}  // namespace emm::format
