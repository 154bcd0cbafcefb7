#include "base/host_memory.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/sudden_end.hpp"

namespace emm {
namespace {

constexpr int kInconclusive = 3;  // the exit code for "could not be judged"

std::atomic_flag ending;

/// The limit on the address space in MiB; 0 if there is none.
unsigned long long limit_mib() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  return limit.rlim_cur >> 20u;
}

/// Must not allocate.
[[noreturn]] void end_with(const char* what, const char* how) noexcept {
  while (ending.test_and_set()) pause();  // another thread prints the message and ends the process
  act_before_sudden_end();
  std::array<char, 400> line;
  const auto limit = limit_mib();
  const int size =
      limit == 0
          ? std::snprintf(line.data(), line.size(), "emmctl: %s: %s\n", what, how)
          : std::snprintf(
                line.data(), line.size(),
                "emmctl: %s: this process may have %llu MiB of address space (ulimit -v), and %s\n",
                what, limit, "needs more: raise that limit");
  if (size > 0) [[maybe_unused]]
    const auto said = write(STDERR_FILENO, line.data(), static_cast<std::size_t>(size));
  // again, since another thread may have made something to clean up meanwhile
  end_suddenly(kInconclusive);
}

void end_for_memory() {
  end_with("out of host memory",
           "this machine has no more for this process: free some, or give it a smaller trace");
}

}  // namespace

void end_where_host_memory_ends() noexcept { std::set_new_handler(end_for_memory); }

void host_memory_refused() {
  if (auto* const handler = std::get_new_handler()) handler();
}

void out_of_host_memory() {
  host_memory_refused();
  throw std::bad_alloc();
}

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error&) {
    if (std::get_new_handler() != end_for_memory) throw;
    end_with(
        "out of host memory, or of threads",
        "the system has no room for another thread: free memory, or raise the limit on threads "
        "(ulimit -u)");
  }
}

SharedObject open_shared_object(const char* file, int flags) {
  SharedObject made{.handle = dlopen(file, flags), .why_not = {}};
  if (made.handle != nullptr) return made;
  const char* const why = dlerror();
  made.why_not = why != nullptr ? why : "";
  const auto says = [&](std::string_view words) {
    return made.why_not.find(words) != std::string::npos;
  };
  // The loader names only the purpose of a failed mmap. Without a limit, memory is seldom the
  // cause.
  const bool refused = says("annot allocate") ||
                       (limit_mib() != 0 && (says("failed to map segment") || says("cannot map")));
  if (refused) host_memory_refused();
  return made;
}

}  // namespace emm
