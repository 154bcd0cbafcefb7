#pragma once

#include <cstdint>
#include <functional>
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

/// This process has gone on.
void went_on() noexcept;
/// This process is that rank of the program.
void is_rank(int shown) noexcept;

}  // namespace emm::standin::nccl
