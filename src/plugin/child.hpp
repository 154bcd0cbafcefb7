#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "plugin/running_call.hpp"

namespace emm::plugin {

/// How work in a child process ended.
struct ChildEnd {
  enum class Kind {
    answered,      ///< `bytes` is what the work returned.
    crashed,       ///< `signal` killed it.
    heap_damaged,  ///< The allocator found its heap damaged and aborted; its words are in `said`.
    hung,          ///< A deadline passed; the child and what it started were killed.
    exited,        ///< exit() or _exit() with `exit_code`, without an answer.
    interrupted,   ///< It was told to stop, a call did not return, and it was killed.
  };
  Kind kind = Kind::answered;
  int signal = 0;
  int exit_code = 0;
  std::string bytes;
  bool whole = false;  ///< The work returned `bytes`, and then something went wrong.
  /// The slot of a foreign manager that was called last ("memalloc"); empty where none was.
  std::string last_call;
  bool inside = false;       ///< That call had not returned.
  bool in_one_call = false;  ///< Where it hung: one call took longer than its deadline.
  std::uint64_t event = CallMark::kNoEvent;  ///< The event that this call served.
  std::string operation;                     ///< What mark_operation() was told last, or empty.
  std::string said;  ///< The end of what the child wrote on stdout and stderr, at most 4 KiB.
};

/// "crashed by SIGSEGV in memalloc, at operation 3: ...", "did not come back from reset in 2 s":
/// one line for a person. Empty where the child answered.
std::string describe(const ChildEnd& end, std::chrono::milliseconds deadline);

/// How long a child may work, and what it is told meanwhile.
struct ChildOptions {
  std::chrono::milliseconds deadline{0};  ///< For all its work; 0: there is none.
  /// The deadline is for each step instead: it begins anew while calls of a foreign manager begin
  /// or return, or operations are marked, and all may take ten times as long. A slow machine is no
  /// hang then.
  bool deadline_is_for_a_step = false;
  /// For each call of a foreign manager, and for what the child does after its answer or after it
  /// was told to stop; 0: there is none.
  std::chrono::milliseconds call_deadline{0};
  /// Once this is true, the child's copy of it becomes true. A call that then does not return
  /// within a quarter of a second is not waited for.
  const std::atomic<bool>* interrupted = nullptr;
  /// Called in this process every few milliseconds, and once after the child's end. True kills the
  /// child, as interrupted. Processes that this function starts are not killed with it.
  std::function<bool()> look{};
  /// Sends its stdout and stderr to this process's stderr, else to ChildEnd::said.
  bool on_stderr = false;
  /// Ends it by exit() after its answer, so that exit handlers run.
  bool runs_exit_handlers = false;
};

/// Runs `work` in a fork of this process. The child has a copy of everything. This process sees
/// only the bytes that the work returns (at most 64 MiB) and what the child writes to shared
/// memory. Only the calling thread goes on in the child. There, crash handlers are the system's,
/// stdin is empty, no core is written, SIGINT and SIGTERM are ignored, and the child dies with its
/// parent. Processes that it started are killed after it, also where they left its group.
///
/// CUDA's driver does not work in a fork of a process that has started it, so `work` must open its
/// devices itself. Error io_error where no child can be made, or the system refuses it memory.
Result<ChildEnd> run_in_child(
    const ChildOptions& options,
    const std::function<std::string(const std::atomic<bool>& interrupted)>& work);
Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work);

/// Memory that this process shares with the children that it makes later.
class SharedMemory {
 public:
  /// All zero. Pages that nobody touches cost nothing.
  explicit SharedMemory(std::size_t size) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  bool ok() const noexcept { return at_ != nullptr; }
  std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(at_), size_}; }

 private:
  void* at_;
  std::size_t size_;
};

/// Puts this process and its children under glibc's heap checks (libc_malloc_debug.so.0,
/// MALLOC_CHECK_=3). It starts the program again with the same arguments and does not return; the
/// second time it returns true. Returns false where there are no such checks: with another libc, or
/// with a sanitizer, whose own checks are better. To be called before anything is opened or
/// printed.
bool enter_heap_checks();

}  // namespace emm::plugin
