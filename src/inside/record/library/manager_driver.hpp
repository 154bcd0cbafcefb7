#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/emm_plugin.h"
#include "record/library/recorder.hpp"

namespace emm::record {

/// A context of the program's, as the driver of a manager. `table()` lets the manager call the
/// driver in it. Any thread may call.
class ManagerDriver {
 public:
  /// Describes `context`.
  void begin(Handle context, int device) noexcept;
  /// The context has ended: calls for its memory do nothing from now on, and those that release
  /// physical memory, which outlives it, are still made.
  void context_ended() noexcept { ended_.store(true, std::memory_order_release); }
  emm_driver_v1 table() noexcept;

  /// Waits for all work of the context.
  Code synchronize() noexcept;
  /// Makes a stream that no work is put on. Memory that a manager hands out on it serves any stream
  /// at once, after wait_for_quiet().
  Code make_quiet_stream() noexcept;
  Handle quiet_stream() const noexcept { return quiet_.load(std::memory_order_relaxed); }
  /// Waits for what the manager has put before memory on the quiet stream, if anything.
  Code wait_for_quiet() noexcept;

  /// How often the manager has asked the driver for memory.
  std::uint64_t memory_calls() const noexcept {
    return memory_calls_.load(std::memory_order_relaxed);
  }
  /// Does an allocation of the manager's own begin at this address?
  static bool owns(Address ptr) noexcept;
  /// A program that captures streams forbids its threads some calls. The manager's are made
  /// although.
  static void note_capture() noexcept;
  static bool has_captured() noexcept;
  /// The program has given a device access to another one's memory, which mapped memory does not
  /// take part in. Where there is such memory a sentence says so, once.
  static void note_peers() noexcept;
  /// Finds the functions. False, with the first missing one, if the driver lacks one.
  static bool find_functions(const char** missing) noexcept;
  static void reset_in_child() noexcept;

 private:
  struct Slots;
  void count_memory_call() noexcept;
  /// Makes `call` with the context current on this thread; `after_end` is the answer once it has
  /// ended.
  template <class MakeCall>
  Code with_current(Code after_end, MakeCall call) noexcept;

  Handle context_ = 0;
  int device_ = 0;
  std::int32_t pci_[3] = {};
  char name_[128] = "";
  std::atomic<Handle> quiet_{0};
  // How often the manager has put something before memory on the quiet stream, and up to which of
  // them a thread has waited.
  std::atomic<std::uint64_t> put_on_quiet_{0}, waited_for_{0};
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> memory_calls_{0};
};

}  // namespace emm::record
