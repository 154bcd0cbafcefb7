#pragma once

#include <functional>
#include <string>
#include <thread>

namespace emm {

/// Makes the process end with a message on stderr and exit code 3 if the system refuses memory or a
/// thread. Threads, destructors and noexcept functions allocate too, and no exception can leave
/// them.
///
/// A program calls it once, before it allocates. A library does not call it, so that operator new
/// throws as usual.
void end_where_host_memory_ends() noexcept;

/// To be called after something other than operator new (mmap, a C library) was refused memory.
/// Ends the process if the program asked for that. Else returns, and the caller must fail in its
/// own way.
void host_memory_refused();

/// Like host_memory_refused(), but throws std::bad_alloc instead of returning.
[[noreturn]] void out_of_host_memory();

/// Starts a thread. If the system refuses and the process goes on, throws the exception of
/// std::thread.
std::thread start_thread(std::function<void()> body);

/// The result of dlopen().
struct SharedObject {
  void* handle = nullptr;
  std::string why_not;  ///< dlerror()'s message if the handle is null.
};

/// Calls dlopen(), and tells lack of memory from an absent or broken library.
SharedObject open_shared_object(const char* file, int flags);

}  // namespace emm
