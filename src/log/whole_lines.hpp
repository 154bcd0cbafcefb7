#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace emm::log {

/// Sees to it that text files end with a whole line even if this process is killed while it writes
/// them: Linux may end such a write between two pages. A second process, which does nothing until
/// this one is gone, then cuts the torn line off. It is out of reach of signals to this process's
/// group, and holds none of its descriptors.
///
/// Where it cannot be started, files are as the kill left them.
class WholeLines {
 public:
  /// `paths` name regular files that exist.
  explicit WholeLines(const std::vector<std::string>& paths);
  WholeLines(const WholeLines&) = delete;
  WholeLines& operator=(const WholeLines&) = delete;
  ~WholeLines();  ///< The files are whole; the second process ends.

 private:
  pid_t pid_ = -1;
  int alive_ = -1;  ///< The end of a pipe that closes with this process.
};

}  // namespace emm::log
