#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace emm::log {

/// Keeps the last line of text files whole even if this process is killed while it writes them:
/// Linux may end such a write between two pages. A second process waits until this one is gone and
/// then cuts the torn line off. Signals to this process's group do not reach it, and it holds none
/// of this process's descriptors.
///
/// If it cannot be started, files stay as the kill left them.
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
