#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/manager_choice.hpp"
#include "conformance/suite.hpp"

namespace emm::cli {

/// A manager that is judged in child processes, one for each clause: none can harm another, and
/// nothing of a shared object is ever loaded into this one.
///
/// On the simulated device a child has the stand-ins for libcuda.so.1 and libcudart.so.13 before it
/// loads the library, so that one which calls CUDA itself runs on the simulated device that they
/// are.
class Apart {
 public:
  /// `subject` has no factory.
  Apart(const ManagerChoice& manager, const conformance::Subject& subject,
        std::chrono::milliseconds deadline)
      : manager_(manager), subject_(subject), deadline_(deadline) {}

  /// Whether it can be judged at all: usage errors of the manager, no_device of the device. A
  /// library that is harmful already when it is loaded is for the clauses to tell; one that hangs
  /// is waited for a quarter of the deadline. What comes back is why nothing can be judged; empty:
  /// it can.
  Result<std::string> look() const;

  /// A crash, an exit, a damaged heap and a clause that gets no further for the deadline break the
  /// rule of abi/harmless; the failure says what happened, with what the child last wrote.
  ///
  /// A hang costs the deadline once. From then on a call may take a hundredth of it; a clause whose
  /// call takes longer is not asked, and the words name that call. Once half a deadline was spent
  /// so, no clause is asked.
  conformance::Verdict judge(const conformance::Clause& clause);

 private:
  const ManagerChoice& manager_;
  const conformance::Subject& subject_;
  const std::chrono::milliseconds deadline_;
  std::string hung_;                   ///< Where it hung first, "in free"; empty: nowhere.
  std::chrono::nanoseconds spent_{0};  ///< On hangs after the first.
};

}  // namespace emm::cli
