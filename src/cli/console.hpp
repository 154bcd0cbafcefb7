#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm::cli {

/// Writes for people: results to stdout, all else to stderr.
class Console {
 public:
  explicit Console(std::string program);

  /// To stdout, lines for a person; on a terminal with colours, but where NO_COLOR is set.
  void result(std::string_view text);
  void say(std::string_view words);    ///< "emmctl: <words>" to stderr.
  void aside(std::string_view lines);  ///< To stderr, lines as well.
  Status finish();                     ///< Flushes stdout; io_error where a write to it failed.

  /// Shows how far long work is, on a terminal and after a second of it: a line that overwrites
  /// itself.
  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  /// The same for work that nobody counts: says what is being done.
  void step(std::string_view what);
  void end_progress();  ///< Takes that line away.

  /// Writes `text` to `path`, "-" being stdout; the machine's half of an answer.
  /// A file has it whole or not at all. `who` writes a file that no option names.
  Status write(const std::string& path, std::string_view text, std::string_view who = {});

  int width() const noexcept;  ///< The terminal's columns; 100 where there is none.
  const std::string& program() const noexcept { return program_; }  ///< Path of this executable.

 private:
  void written(bool whole) noexcept;
  void overwrite(std::string_view line);

  std::string program_;
  int stdout_failed_ = 0;  // the errno of the first write that failed
  std::uint64_t started_ns_ = 0;
  std::uint64_t shown_ns_ = 0;
  std::string counted_;  // what progress() told of last, since
  std::uint64_t counted_ns_ = 0;
  bool stderr_is_terminal_;
  bool showing_ = false;
};

/// Set by SIGINT and SIGTERM once handle_interrupts() was called; a second signal ends the process
/// at once. A signal that was ignored when the program began (nohup, a job in the background of a
/// script) stays ignored.
std::atomic<bool>& interrupted() noexcept;
int interrupting_signal() noexcept;  ///< 0 if none came.
void handle_interrupts();

}  // namespace emm::cli
