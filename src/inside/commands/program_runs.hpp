#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unfinished.hpp"

namespace emm::cli {

/// How a run ended.
struct EndedRun {
  int code = 0;          ///< Its exit code, or 128 + the number of a signal.
  std::string json{};    ///< Its answer; empty if there is none.
  std::string errors{};  ///< The end of its stderr.
};

/// Runs of a program beside one another, each a process of its own in a group of its own, as many
/// as this machine's memory holds: the first runs alone, and shows what one takes. The destructor
/// ends those that run. One thread, on which they are begun: they die with it.
class ProgramRuns {
 public:
  /// `most`: how many at a time, however much memory there is. Error: io_error.
  static Result<ProgramRuns> make(std::uint64_t most);
  ProgramRuns(ProgramRuns&&) noexcept;
  ProgramRuns& operator=(ProgramRuns&&) = delete;
  ~ProgramRuns();

  /// May another one begin now?
  bool has_room();
  bool is_idle() const noexcept { return running_.empty(); }
  std::size_t running() const noexcept { return running_.size(); }
  /// The file in which run `number` leaves its answer.
  std::string answer_of(std::size_t number) const;
  /// Begins `command` as run `number`. It reads nothing, and what it prints is kept for EndedRun.
  /// Error: io_error.
  Status begin(std::size_t number, const std::vector<std::string>& command);
  /// Waits up to a twentieth of a second for one of them. Returns those that ended, by number.
  std::vector<std::pair<std::size_t, EndedRun>> ended();
  /// Asks all to end, and ends them with all that they began where they have not after three
  /// seconds.
  void end_all();

 private:
  struct Running {
    std::size_t number = 0;
    pid_t process = 0;
    std::uint64_t memory = 0, peak = 0;  ///< Bytes of it and of all that it began.
  };
  explicit ProgramRuns(std::unique_ptr<Unfinished> folder, std::uint64_t most)
      : folder_(std::move(folder)), most_(most) {}
  void look_at_memory();

  std::unique_ptr<Unfinished> folder_;
  std::uint64_t most_;
  std::vector<Running> running_;
  std::uint64_t needed_ = 0;  // the most that one took; 0: none has ended
  std::uint64_t looked_ms_ = 0;
};

}  // namespace emm::cli
