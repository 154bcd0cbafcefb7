#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm {

/// A file, or a folder with what is in it, that is removed unless it becomes whole: by the
/// destructor, and where the process ends without destructors (base/sudden_end.hpp), for which
/// there is room for
/// 64. A forked child removes nothing of its parent's.
class Unfinished {
 public:
  /// The file `path`, which is made later: a signal may come as soon as it is there.
  explicit Unfinished(std::string path);
  /// Makes a folder. Null, with errno, if it cannot be made or is there already.
  static std::unique_ptr<Unfinished> folder(const std::string& path);
  /// Makes a folder in temporary_place(), with `purpose` in its name, which remove_left_folders()
  /// removes where this process is killed. Error: io_error.
  static Result<std::unique_ptr<Unfinished>> temporary_folder(std::string_view purpose);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::string& path() const noexcept { return path_; }
  bool is_whole() const noexcept { return whole_; }
  /// It stays.
  void set_whole() noexcept;

 private:
  void forget() noexcept;
  void remove() const noexcept;
  static void remove_all() noexcept;

  const std::string path_;
  int lock_ = -1;  ///< The file whose lock a temporary folder has; else -1.
  const pid_t maker_;
  bool whole_ = false;
};

/// Removes the temporary folders whose makers were killed, but for those that lie in the
/// environment of a program, which goes on with them. Any number of processes may call at a time.
void remove_left_folders();

/// TMPDIR, or /tmp where it is not an absolute path or has a separator of path lists.
std::string temporary_place();

}  // namespace emm
