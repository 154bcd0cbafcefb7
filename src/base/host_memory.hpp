#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace emm {

/// Makes the process end where the system refuses it memory, or room for a thread: with a sentence
/// on stderr and exit code 3. Threads, destructors and functions that must not throw allocate too,
/// and an exception cannot leave those.
///
/// Once, by a program, before it allocates. A library leaves it to its host: there operator new
/// throws as ever.
void end_where_host_memory_ends() noexcept;

/// `act` is done before the process ends so. It must not allocate. A second call with the same
/// `act` changes nothing.
void before_host_memory_ends(void (*act)() noexcept) noexcept;

/// Memory was refused to a call that is no operator new (mmap, a C library): ends the process if
/// the program asked for that, else returns, and the caller fails as it can.
void host_memory_refused();

/// As host_memory_refused(), but throws std::bad_alloc where that returns.
[[noreturn]] void out_of_host_memory();

/// As host_memory_refused(), for a thread that could not be started.
void thread_refused();

/// Starts a thread. Where the system has no room for one and the process goes on, throws what
/// std::thread throws.
template <class Function>
std::thread start_thread(Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error&) {
    thread_refused();
    throw;
  }
}

/// What dlopen() gave.
struct SharedObject {
  void* handle = nullptr;
  std::string why_not;  ///< dlerror()'s words where there is none.
};

/// dlopen() that does not take a want of memory for a library that is absent or broken.
SharedObject open_shared_object(const char* file, int flags);

}  // namespace emm
