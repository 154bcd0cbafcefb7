#pragma once

#include <atomic>
#include <thread>

namespace emm::replay {

/// For a wait of some nanoseconds: this processor's other thread has the rest.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// A lock for what takes some nanoseconds, and which mostly nobody else wants: half the cost of a
/// mutex then.
class SpinLock {
 public:
  void lock() noexcept {
    while (held_.exchange(true, std::memory_order_acquire)) {
      for (unsigned looked = 0; held_.load(std::memory_order_relaxed); ++looked) {
        relax();
        if (looked > kSpins) std::this_thread::yield();  // whoever has it may not be running
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kSpins = 64;
  std::atomic<bool> held_{false};
};

}  // namespace emm::replay
