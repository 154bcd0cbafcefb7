#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.hpp"

namespace emm::plugin {

/// How work in a child process ended.
struct ChildEnd {
  enum class Kind {
    answered,      ///< `bytes` is what the work returned.
    crashed,       ///< By `signal`.
    heap_damaged,  ///< The allocator found its heap damaged and aborted; its words are in `said`.
    hung,          ///< The deadline passed; the child and what it started were killed.
    exited,        ///< exit() or _exit() with `exit_code`, without an answer.
  };
  Kind kind = Kind::answered;
  int signal = 0;
  int exit_code = 0;
  std::string bytes;
  std::string last_call;  ///< The slot of a foreign manager that was called last ("memalloc");
                          ///< empty: none was.
  bool inside = false;    ///< It had not returned.
  std::string operation;  ///< What mark_operation() was told last; empty: nothing.
  std::string said;       ///< The end of what the child wrote on stdout and stderr, at most 4 KiB.
};

/// "crashed by SIGSEGV in memalloc, at operation 3: ...", "did not come back from reset in 2 s": one line for a person.
/// Empty where the child answered.
std::string describe(const ChildEnd& end, std::chrono::milliseconds deadline);

/// Runs `work` in a child of this process, a fork: it sees a copy of everything, and nothing of
/// what it does is seen here but the bytes that it returns (at most 64 MiB). Only the calling
/// thread goes on in the child. Crash handlers are the system's there, stdin is empty, no core is
/// written, and it dies with its parent.
///
/// A driver of CUDA does not work in a fork of a process that has started it: open devices inside
/// `work` only. Error io_error where no child can be made, or the system refuses it memory.
Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work);

/// Puts this process, and so its children, under glibc's heap checks (libc_malloc_debug.so.0,
/// MALLOC_CHECK_=3): starts the program anew with the same arguments, and does not return; does so
/// once. Returns false where these checks cannot be had (another libc, a sanitizer in the program,
/// whose own checks are better), true where they are on. To be called before anything has been
/// opened or printed.
bool enter_heap_checks();

}  // namespace emm::plugin
