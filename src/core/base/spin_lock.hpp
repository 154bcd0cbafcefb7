#pragma once

#include <atomic>
#include <thread>

namespace emm {

/// Waits some nanoseconds, and leaves the core to its other hardware thread.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// A lock for critical sections of some tens of nanoseconds that are seldom contended: one exchange
/// takes it, one store releases it. A thread that waits long yields, since the holder may be in the
/// driver. Lockable.
class SpinLock {
 public:
  void lock() noexcept {
    for (unsigned turns = 0; held_.exchange(true, std::memory_order_acquire); ++turns) {
      // Waiting threads only read, so they share the cache line. An exchange would take it from the
      // holder.
      while (held_.load(std::memory_order_relaxed)) {
        if (++turns > kPatience) std::this_thread::yield();
        relax();
      }
    }
  }
  bool try_lock() noexcept {
    // A failing exchange would take the cache line from the holder, so this reads first.
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kPatience = 64;  // looks before a thread yields its processor
  std::atomic<bool> held_{false};
};

}  // namespace emm
