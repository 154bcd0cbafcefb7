#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::format {

/// Bytes written in order to a file, standard output ("-") or a string; ".gz" and ".zst" in a path
/// pack. write() takes whole records, and what reaches a plain file at any moment ends with a whole
/// one: a killed run leaves no torn line. One thread at a time.
class ByteSink {
 public:
  /// Truncates, now. A file that the run uses otherwise is refused (run_files.hpp), `who` being its
  /// user.
  static Result<std::unique_ptr<ByteSink>> open(const std::string& path, std::string_view who = {});
  /// A file that is called otherwise in messages, and of which run_files knows; what packs is what
  /// the name ends in.
  static Result<std::unique_ptr<ByteSink>> open_as(const std::string& file,
                                                   const std::string& name);
  static std::unique_ptr<ByteSink> to_string(std::string& out);
  virtual ~ByteSink() = default;  ///< Flushes; an error then is lost, so call close().

  virtual const std::string& name() const noexcept = 0;
  /// io_error names the path and the reason; after one every later call fails too. run_files notes
  /// the first.
  virtual Status write(std::string_view record) = 0;
  virtual Status flush() = 0;
  virtual Status close() = 0;
};

}  // namespace emm::format
