#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/launcher.hpp"
#include "base/result.hpp"

namespace emm {

/// The ranks of one launch, each a process. They begin together, and one of them reports for all.
/// They meet in a folder that all of them see.
class Gathering {
 public:
  /// `folder` is shared by the ranks; each launch has its own folder in it.
  Gathering(std::string folder, const Launched& launched);

  /// Waits until all ranks have come. Errors: usage, if an earlier launch left answers;
  /// interrupted; io_error, if some have not come in `nanoseconds`.
  Status wait(std::uint64_t nanoseconds, const std::atomic<bool>& interrupted) const;

  /// Leaves the answer of this rank: the JSON of its replay, or why it has none. The process that
  /// leaves the last answer gets the table of all ranks; the others get nothing.
  Result<std::optional<std::string>> leave(const std::string& json,
                                           const std::string& failure) const;
  /// Removes the folder of the launch. Called by the process that has the table.
  void remove() const;

 private:
  std::string path_of(std::uint64_t rank, std::string_view what) const;
  std::string table() const;

  std::string parent_, folder_;
  std::uint64_t rank_, world_;
};

}  // namespace emm
