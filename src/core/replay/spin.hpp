#pragma once

namespace emm::replay {

/// Waits some nanoseconds, and leaves the core to its other hardware thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace emm::replay
