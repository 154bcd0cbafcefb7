#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/launcher.hpp"
#include "base/result.hpp"

namespace emm::fleet {

/// The ranks of one launch, each a process, that begin together and of which one tells of all.
/// They meet in a folder that all of them see.
class Gathering {
 public:
  /// `folder` is theirs: a launch has a folder of its own in it.
  Gathering(std::string folder, const Launched& launched);

  /// Waits until all have come. Error: interrupted, or some have not come in `nanoseconds`.
  Status wait(std::uint64_t nanoseconds, const std::atomic<bool>& interrupted) const;

  /// Leaves the answer of this rank: the JSON of its replay, or why it has none. Returns the table
  /// of all ranks to the process that leaves the last answer, to nobody else.
  Result<std::optional<std::string>> leave(const std::string& json,
                                           const std::string& failure) const;
  /// Takes the folder of the launch away; by the one that has the table.
  void remove() const;

 private:
  std::string path_of(std::uint64_t rank, std::string_view what) const;
  std::string table() const;

  std::string parent_, folder_;
  std::uint64_t rank_, world_;
};

}  // namespace emm::fleet
