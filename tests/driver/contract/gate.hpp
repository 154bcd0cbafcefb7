#pragma once

#include <condition_variable>
#include <mutex>

#include "driver/driver.hpp"

namespace emm {

/// Work on a stream that is not done before it is let go, as a kernel that still runs: a host
/// function that waits. What orders itself after it cannot be done while the gate is closed.
///
/// Should a call wait for it that nobody expects to, it gives up by itself after a while, so that
/// the test fails and does not hang.
class Gate {
 public:
  Gate(Driver& driver, StreamHandle stream);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();  ///< Opens it, and waits until the work is done.

  void open();
  bool is_done() const;

 private:
  static void wait(void* gate);

  Driver& driver_;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
  bool done_ = false;
};

}  // namespace emm
