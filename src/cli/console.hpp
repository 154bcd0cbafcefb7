#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::cli {

/// Output for people: results go to stdout, everything else to stderr.
class Console {
 public:
  explicit Console(std::string program);

  /// Writes lines for a person to stdout. On a terminal in colours, unless NO_COLOR is set.
  void result(std::string_view text);
  void say(std::string_view words);    ///< Writes "emmctl: <words>" to stderr.
  void aside(std::string_view lines);  ///< Writes lines to stderr.
  Status finish();                     ///< Flushes stdout. io_error if any write to it failed.

  /// Shows the progress of long work as a line that overwrites itself. Only on a terminal, and only
  /// after one second.
  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  /// The same as a function of what is done and of what is to be done. `what` is a literal.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress_of(std::string_view what) {
    return [this, what](std::uint64_t done, std::uint64_t total) { progress(what, done, total); };
  }
  /// Shows what is being done, for work that is not counted.
  void step(std::string_view what);
  void end_progress();  ///< Erases that line.

  /// Writes the machine-readable part of an answer to `path`; "-" is stdout. A file gets all of
  /// `text` or nothing. `who` names the writer of a file that no option names.
  Status write(const std::string& path, std::string_view text, std::string_view who = {});
  /// Writes what `text()` returns, if `path` was given.
  template <class Text>
  Status write_if(const std::string& path, const Text& text) {
    return path.empty() ? Status() : write(path, text());
  }

  int width() const noexcept;  ///< The terminal's columns; 100 without a terminal.
  const std::string& program() const noexcept { return program_; }  ///< Path of this executable.

 private:
  void note_write(bool whole) noexcept;
  void overwrite(std::string_view line);

  std::string program_;
  int stdout_failed_ = 0;  // the errno of the first write that failed
  std::uint64_t started_ns_ = 0;
  std::uint64_t shown_ns_ = 0;
  std::string counted_;  // what progress() last showed, and since when
  std::uint64_t counted_ns_ = 0;
  bool stderr_is_terminal_;
  bool showing_ = false;
};

/// Makes SIGINT, SIGTERM and SIGHUP end the process with 128 + signal and without unfinished files.
/// A signal that was ignored when the program began (nohup, a background job of a script) stays
/// ignored.
void obey_signals();
/// From here on such a signal sets interrupted(), and the command ends with what it has. If that
/// takes almost a second, or a second signal comes, the process ends without it.
void handle_interrupts() noexcept;
std::atomic<bool>& interrupted() noexcept;
/// The command has seen interrupted(), and takes the time that it needs to end what it began. A
/// second signal still ends the process.
void end_in_own_time() noexcept;
int interrupting_signal() noexcept;  ///< 0 if none came.

}  // namespace emm::cli
