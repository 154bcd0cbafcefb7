#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/manager_choice.hpp"
#include "conformance/suite.hpp"

namespace emm::cli {

/// A child process that keeps a real device open while this lives, and holds most of its memory
/// where a clause has no use for it. Where nobody else has the device open, the driver sets it up
/// anew for each process, which takes longer than most clauses: four clauses took 1.6 s, and 0.9 s
/// beside another process that had the device open (H200, driver 580).
class HeldOpen {
 public:
  /// Does nothing for a simulated device, or if there is no process to be had.
  explicit HeldOpen(const std::string& device);
  ~HeldOpen();
  HeldOpen(const HeldOpen&) = delete;
  HeldOpen& operator=(const HeldOpen&) = delete;
  /// Holds memory until `bytes` are free, or as much as the device gives. Returns when that is
  /// done.
  void leave(std::uint64_t bytes);

 private:
  int child_ = -1;
  int channel_ = -1;         ///< A socket: bytes to leave go out, and an answer comes in.
  std::uint64_t left_ = ~0;  ///< What leave() was last asked for.
};

/// Judges a manager in child processes, one for each clause. So no clause can harm another, and
/// this process never loads a shared object.
///
/// On the simulated device a child loads the stand-ins for libcuda.so.1 and libcudart.so.13 before
/// the library. So a library that calls CUDA itself runs on the simulated device behind them.
class Apart {
 public:
  /// `subject` must have no factory.
  Apart(const ManagerChoice& manager, const conformance::Subject& subject,
        std::chrono::milliseconds deadline)
      : manager_(manager), subject_(subject), deadline_(deadline), held_(subject.device) {}

  /// Says why nothing can be judged; empty if the manager can be judged. Errors: usage errors of
  /// the manager, no_device of the device. Harm while the library is loaded is left to the clauses.
  /// A library that hangs is given a quarter of the deadline.
  Result<std::string> look() const;

  /// Runs one clause. A crash, an exit, a damaged heap, or a clause without progress for the
  /// deadline breaks the rule of abi/harmless. The failure says what happened, with the child's
  /// last output.
  ///
  /// The first hang costs the whole deadline. After that a call may take a hundredth of the
  /// deadline. A clause whose call takes longer gets no verdict, and its words name the call. Once
  /// such calls have cost half a deadline, no more clauses are run.
  ///
  /// A clause that a class of Python's fails is judged twice: the second time tells the story.
  conformance::Verdict judge(const conformance::Clause& clause);

 private:
  conformance::Verdict judge_once(const conformance::Clause& clause, bool keeps_stories);

  const ManagerChoice& manager_;
  const conformance::Subject& subject_;
  const std::chrono::milliseconds deadline_;
  HeldOpen held_;
  std::string hung_;                   ///< Where it hung first, "in free". Empty if it never did.
  std::chrono::nanoseconds spent_{0};  ///< On hangs after the first.
};

}  // namespace emm::cli
