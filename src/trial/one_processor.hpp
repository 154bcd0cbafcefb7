#pragma once

#include <cstdint>
#include <optional>

namespace emm::trial {

/// The processor that this thread runs on, as sched_setaffinity numbers them; nothing where the
/// system does not say.
std::optional<int> current_processor() noexcept;
/// Keeps this thread, and those that it starts, on one processor. What the system refuses stays as
/// it was.
void stay_on(int processor) noexcept;

/// Counts the instructions of this thread in user mode, and of those that it starts, from now on.
class InstructionCounter {
 public:
  InstructionCounter() noexcept;
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter();
  /// Nothing where the machine or the system lets nobody count.
  std::optional<std::uint64_t> count() const noexcept;

 private:
  int descriptor_;
};

}  // namespace emm::trial
