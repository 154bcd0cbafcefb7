#include "trial/one_processor.hpp"

#include <linux/perf_event.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emm::trial {

std::optional<int> current_processor() noexcept {
  const int processor = sched_getcpu();
  return processor < 0 ? std::nullopt : std::optional(processor);
}

void stay_on(int processor) noexcept {
  if (processor >= CPU_SETSIZE) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(processor), &one);
  sched_setaffinity(0, sizeof one, &one);
}

InstructionCounter::InstructionCounter() noexcept {
  perf_event_attr what{};
  what.type = PERF_TYPE_HARDWARE;
  what.size = sizeof what;
  what.config = PERF_COUNT_HW_INSTRUCTIONS;
  what.inherit = 1;
  what.exclude_kernel = 1;
  what.exclude_hv = 1;
  descriptor_ =
      static_cast<int>(syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

InstructionCounter::~InstructionCounter() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::optional<std::uint64_t> InstructionCounter::count() const noexcept {
  std::uint64_t counted = 0;
  if (descriptor_ < 0 || read(descriptor_, &counted, sizeof counted) != sizeof counted)
    return std::nullopt;
  // Zero: the system provides a counter that never counts.
  return counted == 0 ? std::nullopt : std::optional(counted);
}

}  // namespace emm::trial
