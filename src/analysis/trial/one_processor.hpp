#pragma once

#include <cstdint>
#include <optional>

namespace emm::trial {

/// Returns the processor that this thread runs on, as sched_setaffinity numbers them. Empty if the
/// system does not say.
std::optional<int> current_processor() noexcept;
/// Keeps this thread, and those that it starts, on one processor. Changes nothing if the system
/// refuses.
void stay_on(int processor) noexcept;

/// Counts the user-mode instructions of this thread, and of those that it starts from now on.
class InstructionCounter {
 public:
  InstructionCounter() noexcept;
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter();
  /// Empty if the machine or the system does not let it count.
  std::optional<std::uint64_t> count() const noexcept;

 private:
  int descriptor_;
};

}  // namespace emm::trial
