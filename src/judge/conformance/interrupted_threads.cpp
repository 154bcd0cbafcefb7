#include "conformance/interrupted_threads.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "base/host_memory.hpp"
#include "conformance/bench.hpp"

namespace emm::conformance {
namespace {

constexpr int kSignal = SIGUSR2;  // neither CUDA nor glibc uses it

thread_local std::atomic<bool> in_manager{false};

void pause_in_manager(int) {
  if (!in_manager.load(std::memory_order_relaxed) || Watch::is_in_call()) return;
  const auto kept = errno;
  const timespec moment{.tv_sec = 0, .tv_nsec = 30'000};
  nanosleep(&moment, nullptr);
  errno = kept;
}

/// While one lives, the signal pauses threads.
class Handler {
 public:
  Handler() noexcept {
    struct sigaction action {};
    action.sa_handler = pause_in_manager;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    works_ = sigaction(kSignal, &action, &before_) == 0;
  }
  ~Handler() {
    if (works_) sigaction(kSignal, &before_, nullptr);
  }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;
  bool works() const noexcept { return works_; }

 private:
  struct sigaction before_ {};
  bool works_ = false;
};

/// While one lives, short sleeps of this thread are not prolonged by timer slack.
class ShortSleeps {
 public:
  ShortSleeps() noexcept : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1000); }
  ~ShortSleeps() {
    if (before_ > 0) prctl(PR_SET_TIMERSLACK, before_);
  }
  ShortSleeps(const ShortSleeps&) = delete;
  ShortSleeps& operator=(const ShortSleeps&) = delete;

 private:
  int before_;
};

}  // namespace

InManager::InManager() noexcept { in_manager = true; }
InManager::~InManager() { in_manager = false; }

void run_interrupted(const Bench& bench, std::size_t count,
                     const std::function<void(std::size_t)>& body) {
  using std::chrono::microseconds;
  std::atomic<std::size_t> running{count};
  std::atomic<bool> may_end{false};
  const Handler handler;
  const ShortSleeps sleeps;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.push_back(start_thread([&, i] {
      const ShortSleeps own_sleeps;
      body(i);
      --running;
      // A thread that has ended cannot receive a signal, so it waits until none can come.
      while (!may_end) std::this_thread::sleep_for(microseconds(50));
    }));
  }
  const bool interrupts = bench.is_simulated() && handler.works();
  for (std::size_t next = 0; running > 0; ++next) {
    if (interrupts) pthread_kill(threads[next % count].native_handle(), kSignal);
    std::this_thread::sleep_for(microseconds(20));
  }
  may_end = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace emm::conformance
