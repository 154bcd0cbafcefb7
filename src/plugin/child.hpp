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
    crashed,       ///< By `signal`.
    heap_damaged,  ///< The allocator found its heap damaged and aborted; its words are in `said`.
    hung,          ///< A deadline passed; the child and what it started were killed.
    exited,        ///< exit() or _exit() with `exit_code`, without an answer.
    interrupted,   ///< It was to stop, was inside a call that did not return, and was killed.
  };
  Kind kind = Kind::answered;
  int signal = 0;
  int exit_code = 0;
  std::string bytes;
  bool whole = false;        ///< `bytes` is what the work returned; what went wrong came after it.
  std::string last_call;     ///< The slot of a foreign manager that was called last ("memalloc");
                             ///< empty: none was.
  bool inside = false;       ///< It had not returned.
  bool in_one_call = false;  ///< Of `hung`: that one call took too long.
  std::uint64_t event = CallMark::kNoEvent;  ///< That this call served.
  std::string operation;  ///< What mark_operation() was told last; empty: nothing.
  std::string said;       ///< The end of what the child wrote on stdout and stderr, at most 4 KiB.
};

/// "crashed by SIGSEGV in memalloc, at operation 3: ...", "did not come back from reset in 2 s":
/// one line for a person. Empty where the child answered.
std::string describe(const ChildEnd& end, std::chrono::milliseconds deadline);

/// How long a child may work, and what it is told meanwhile.
struct ChildOptions {
  std::chrono::milliseconds deadline{0};  ///< Of all its work; 0: there is none.
  /// Of each call of a foreign manager, and of what it does after its answer, or after it was told
  /// to stop; 0: none.
  std::chrono::milliseconds call_deadline{0};
  /// Once this is true, the child's copy of it is, too. A call that then does not return in a
  /// quarter of a second is not waited for.
  const std::atomic<bool>* interrupted = nullptr;
  /// Called in this process every few milliseconds, and once after the child's end. True: it is to
  /// be killed, as interrupted. What is started in it is left alone.
  std::function<bool()> look{};
  /// Its stdout and stderr are this process's stderr; else they end in ChildEnd::said.
  bool on_stderr = false;
  /// After its answer it ends by exit(), so that what was registered to run then runs.
  bool runs_exit_handlers = false;
};

/// Runs `work` in a child of this process, a fork: it sees a copy of everything, and nothing of
/// what it does is seen here but the bytes that it returns (at most 64 MiB) and what it writes to
/// shared memory. Only the calling thread goes on in the child. Crash handlers are the system's
/// there, stdin is empty, no core is written, SIGINT and SIGTERM are this process's business, and
/// it dies with its parent. What it has started is killed after it, also where it left its group.
///
/// A driver of CUDA does not work in a fork of a process that has started it: open devices inside
/// `work` only. Error io_error where no child can be made, or the system refuses it memory.
Result<ChildEnd> run_in_child(
    const ChildOptions& options,
    const std::function<std::string(const std::atomic<bool>& interrupted)>& work);
Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work);

/// Memory that a child made later shares with this process.
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

/// Puts this process, and so its children, under glibc's heap checks (libc_malloc_debug.so.0,
/// MALLOC_CHECK_=3): starts the program anew with the same arguments, and does not return; does so
/// once. Returns false where these checks cannot be had (another libc, a sanitizer in the program,
/// whose own checks are better), true where they are on. To be called before anything has been
/// opened or printed.
bool enter_heap_checks();

}  // namespace emm::plugin
