#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace emm::log {

/// Keeps the last line of text files whole even if this process is killed during a write. Linux may
/// end such a write between two pages. A second process waits until this one is gone and then cuts
/// the torn line off. Signals to this process's group do not reach it, and it holds none of this
/// process's descriptors.
///
/// If the second process cannot be started, a kill may leave a torn line.
class WholeLines {
 public:
  /// `paths` name regular files that exist.
  explicit WholeLines(const std::vector<std::string>& paths);
  WholeLines(const WholeLines&) = delete;
  WholeLines& operator=(const WholeLines&) = delete;
  ~WholeLines();  ///< Ends the second process. The files are whole.

 private:
  pid_t pid_ = -1;
  int alive_ = -1;  ///< A pipe's end, which closes with this process.
};

}  // namespace emm::log
