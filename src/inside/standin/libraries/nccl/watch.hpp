#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "standin/libraries/nccl/meeting.hpp"

/// Finds that the ranks of a program wait for one another. Each process has a page in the program's
/// folder, which says what its threads wait in, and how often it went on. A process that waits
/// looks at all pages. Where no rank has gone on for a minute, it ends the program, and leaves the
/// reason for emmctl. Any thread may call.
namespace emm::standin::nccl {

/// A wait of this process, while it lives.
class Waiting {
 public:
  /// `is_entry`: others may not have started yet.
  Waiting(const std::string& in_what, int shown, bool is_entry);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Called a few times a second. `missing` names the ranks that have not come. May end the
  /// process.
  void look(const std::function<std::string()>& missing);

 private:
  int entry_;
};

/// Ranks of the program whose processes have ended, with these: also where they were in no
/// communicator yet, if they had begun with a device or PyTorch.
std::map<int, int> ended_ranks();
/// How long such a rank is waited for, in milliseconds: another process may take its place.
std::int64_t patience_with_ended_ms();
/// This process has gone on.
void went_on() noexcept;
/// This process is that rank of the program.
void is_rank(int shown) noexcept;

}  // namespace emm::standin::nccl
