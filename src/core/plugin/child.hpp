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
    heap_damaged,  ///< The allocator found heap damage and aborted; `said` has its message.
    hung,          ///< A deadline passed. The child and its descendants were killed.
    exited,        ///< It called exit() or _exit() with `exit_code` before it answered.
    interrupted,   ///< It was told to stop and was killed, as a call did not return or at once.
  };
  Kind kind = Kind::answered;
  int signal = 0;
  int exit_code = 0;
  std::string bytes;
  bool whole = false;  ///< The work returned `bytes`, and then something went wrong.
  /// The slot of a foreign manager that was called last ("memalloc"). Empty if none was.
  std::string last_call;
  bool inside = false;       ///< `last_call` had not returned.
  bool in_one_call = false;  ///< It hung because one call exceeded the deadline for calls.
  std::uint64_t event = CallMark::kNoEvent;  ///< The event that the call served.
  std::string operation;                     ///< The last words of mark_operation(), or empty.
  std::string said;  ///< The last 4 KiB of what the child wrote to stdout and stderr.
};

/// Describes the end in one line for a person: "crashed by SIGSEGV in memalloc, at operation 3:
/// ...", "did not end in 2000 ms, in reset". Empty if the child answered.
std::string describe(const ChildEnd& end, std::chrono::milliseconds deadline);

/// How long a child may run, and how it is told to stop.
struct ChildOptions {
  std::chrono::milliseconds deadline{0};  ///< For all its work. 0: no limit.
  /// The deadline applies to each step instead. It starts anew when a call of a foreign manager
  /// begins or returns, or an operation is marked. All steps together may take ten times as long.
  /// This keeps a slow machine from looking hung.
  bool deadline_is_for_a_step = false;
  /// The limit for each call of a foreign manager, and for what the child does after its answer or
  /// after it was told to stop. 0: no limit.
  std::chrono::milliseconds call_deadline{0};
  /// When this becomes true, so does the child's copy. A call that then does not return within a
  /// quarter of a second is abandoned.
  const std::atomic<bool>* interrupted = nullptr;
  /// Kills the child as soon as `interrupted` is true: nobody waits for what it would answer.
  bool killed_when_interrupted = false;
  /// Called in this process every few milliseconds, and once after the child's end. Returning true
  /// kills the child as interrupted. Processes that this function starts are not killed with it.
  std::function<bool()> look{};
  /// Sends the child's stdout and stderr to this process's stderr. Otherwise they go to
  /// ChildEnd::said.
  bool on_stderr = false;
  /// Makes the child call exit() after its answer, so that exit handlers run.
  bool runs_exit_handlers = false;
};

/// Runs `work` in a fork of this process. The child has a copy of everything. This process sees
/// only the bytes that the work returns (at most 64 MiB) and what the child writes to shared
/// memory. Only the calling thread continues in the child. There, signals for crashes have the
/// system's default action, stdin is empty, no core is written, SIGINT and SIGTERM are ignored, and
/// the child dies with its parent. The processes that it started are killed after it, even if they
/// left its process group.
///
/// CUDA's driver does not work in a fork of a process that has initialized it, so `work` must open
/// its devices itself. Error io_error if no child can be made or the system refuses it memory.
Result<ChildEnd> run_in_child(
    const ChildOptions& options,
    const std::function<std::string(const std::atomic<bool>& interrupted)>& work);
Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work);

/// Memory that this process shares with its later children.
class SharedMemory {
 public:
  /// The memory is all zero. Untouched pages cost nothing.
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

/// Restarts this program, or starts another in its place, with the same arguments and the
/// environment of this moment. Returns only if the system refuses. Call it before anything is
/// opened or printed.
void restart_program(const char* program = "/proc/self/exe");

/// Puts this process and its children under glibc's heap checks (libc_malloc_debug.so.0,
/// MALLOC_CHECK_=3). It restarts the program with the same arguments and does not return. In the
/// restarted program it returns true. It returns false if there are no such checks: with another
/// libc, or under a sanitizer, whose own checks are better. Call it before anything is opened or
/// printed.
bool enter_heap_checks();

}  // namespace emm::plugin
