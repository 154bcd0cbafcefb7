#pragma once

#include <atomic>
#include <thread>

namespace emm::replay {

/// Waits some nanoseconds, and leaves the core to its other hardware thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// A lock for critical sections of some nanoseconds with little contention, where it costs half as
/// much as a mutex.
class SpinLock {
 public:
  void lock() noexcept {
    while (held_.exchange(true, std::memory_order_acquire)) {
      for (unsigned looked = 0; held_.load(std::memory_order_relaxed); ++looked) {
        relax();
        if (looked > kSpins) std::this_thread::yield();  // the owner may not be running
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpins = 64;  // looks before a thread yields its processor
  std::atomic<bool> held_{false};
};

}  // namespace emm::replay
