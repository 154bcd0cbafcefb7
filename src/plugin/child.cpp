#include "plugin/child.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "plugin/running_call.hpp"

namespace emm::plugin {
namespace {

using Deadline = std::chrono::steady_clock::time_point;
constexpr std::size_t kSaidBytes = 4096;
constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{64} << 20;
constexpr const char* kHeapChecks = "libc_malloc_debug.so.0";

/// A descriptor, closed once.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { end(); }
  int get() const noexcept { return fd_; }
  void end() noexcept {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

/// What a child says to its parent beside its answer.
struct Said {
  CallMark mark;
  std::atomic<bool> out_of_memory{false};  ///< The system refused it memory, which ended it.
};

/// A Said in memory that parent and child share.
class SharedMark {
 public:
  SharedMark() noexcept
      : at_(mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (ok()) new (at_) Said;
  }
  SharedMark(const SharedMark&) = delete;
  SharedMark& operator=(const SharedMark&) = delete;
  ~SharedMark() {
    if (ok()) munmap(at_, sizeof(Said));
  }
  bool ok() const noexcept { return at_ != MAP_FAILED; }
  Said& operator*() const noexcept { return *static_cast<Said*>(at_); }

 private:
  void* at_;
};

// The system's own refusals, which only a machine at its end gives.
Error cannot(const char* what) {
  const int why = errno;
  if (why == ENOMEM) host_memory_refused();
  return {.code = Errc::io_error,
          .message = text::format("cannot {} for a child process: {}", what, std::strerror(why))};
}

bool write_all(int fd, const void* data, std::size_t size) noexcept {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const auto done = write(fd, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size -= static_cast<std::size_t>(done);
  }
  return true;
}

std::atomic<bool>* out_of_memory = nullptr;  // of this process, where it is a child

[[noreturn]] void be_the_child(int answer, int said, Said& shared,
                               const std::function<std::string()>& work) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGINT, SIGTERM})
    std::signal(signal, SIG_DFL);
  const Descriptor null(open("/dev/null", O_RDONLY));
  dup2(null.get(), STDIN_FILENO);
  dup2(said, STDOUT_FILENO);
  dup2(said, STDERR_FILENO);
  mark_calls_in(shared.mark);
  out_of_memory = &shared.out_of_memory;
  before_host_memory_ends([]() noexcept { out_of_memory->store(true); });
  std::string bytes;
  try {
    bytes = work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "an exception came out of the work: %s\n", error.what());
    std::abort();
  }
  const std::uint64_t size = bytes.size();
  const bool sent =
      write_all(answer, &size, sizeof size) && write_all(answer, bytes.data(), bytes.size());
  std::fflush(nullptr);
  _exit(sent ? 0 : 1);
}

/// Milliseconds until `deadline`, as poll takes them.
int left(Deadline deadline) noexcept {
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  return static_cast<int>(std::clamp<long>(rest, 0, 1'000'000'000));
}

/// Appends what is there to be read. False at the end.
bool read_some(int fd, std::string& bytes) {
  std::array<char, 65536> buffer;
  while (true) {
    const auto got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0;
    if (bytes.size() < kAnswerBytesMax) bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

/// The status of the child, with all that it wrote to `fd`; empty where the deadline comes first.
/// The pipe may be held open by what the child has started, so its end is not waited for.
std::optional<int> wait_until(pid_t pid, int fd, Deadline deadline, std::string& bytes) {
  constexpr int kOpenMs = 20, kClosedMs = 1;
  bool open = true;
  while (true) {
    pollfd poller{.fd = open ? fd : -1, .events = POLLIN, .revents = 0};
    poll(&poller, 1, std::min(left(deadline), open ? kOpenMs : kClosedMs));
    open = open && read_some(fd, bytes);
    int status = 0;
    const auto ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      if (open) read_some(fd, bytes);
      return status;
    }
    if (left(deadline) == 0) return std::nullopt;
  }
}

std::string end_of(int fd) {
  const auto size = lseek(fd, 0, SEEK_END);
  const auto from = std::max<off_t>(0, size - static_cast<off_t>(kSaidBytes));
  std::string text(static_cast<std::size_t>(size - from), '\0');
  const auto got = pread(fd, text.data(), text.size(), from);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

bool is_of_the_heap(std::string_view said) noexcept {
  // What glibc's allocator and the sanitizers say before they abort.
  for (const std::string_view words :
       {"free(): ", "malloc(): ", "realloc(): ", "calloc(): ", "munmap_chunk(): ",
        "malloc_consolidate(): ", "corrupted size", "corrupted double-linked list",
        "mremap_chunk(): ", "malloc_check_get_size(): ", "AddressSanitizer: "}) {
    if (said.find(words) != std::string_view::npos) return true;
  }
  return false;
}

/// The bytes of a whole answer; empty optional where it is not whole.
std::optional<std::string> unframed(std::string& framed) {
  std::uint64_t size = 0;
  if (framed.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, framed.data(), sizeof size);
  if (framed.size() - sizeof size != size) return std::nullopt;
  framed.erase(0, sizeof size);
  return std::move(framed);
}

std::string name_of(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : text::format("signal {}", signal);
}

}  // namespace

std::string describe(const ChildEnd& end, std::chrono::milliseconds deadline) {
  auto where = end.last_call.empty() ? std::string("before any call")
                                     : (end.inside ? "in " : "after ") + end.last_call;
  if (!end.operation.empty()) where += ", at " + end.operation;
  switch (end.kind) {
    case ChildEnd::Kind::answered:
      return {};
    case ChildEnd::Kind::crashed:
      return text::format("crashed by {} {}", name_of(end.signal), where);
    case ChildEnd::Kind::heap_damaged:
      return text::format("damaged the heap, found {}", where);
    case ChildEnd::Kind::hung:
      return text::format("did not end in {} ms, {}", deadline.count(), where);
    case ChildEnd::Kind::exited:
      return text::format("exited with {} {}", end.exit_code, where);
  }
  return {};
}

Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) return cannot("make a pipe");
  const Descriptor from(pipes[0]);
  Descriptor to(pipes[1]);
  fcntl(from.get(), F_SETFL, O_NONBLOCK);
  const Descriptor said(memfd_create("said", MFD_CLOEXEC));
  if (said.get() < 0) return cannot("make a file in memory");
  const SharedMark mark;
  if (!mark.ok()) return cannot("map memory");

  std::fflush(nullptr);  // else what is buffered here is written twice
  const auto pid = fork();
  if (pid < 0) return cannot("fork");
  if (pid == 0) be_the_child(to.get(), said.get(), *mark, work);
  setpgid(pid, pid);  // here too: whoever comes first
  to.end();

  const auto until = std::chrono::steady_clock::now() + deadline;
  ChildEnd end;
  auto status = wait_until(pid, from.get(), until, end.bytes);
  const bool hung = !status;
  kill(-pid, SIGKILL);  // also what it may have started
  if (hung) {
    status = 0;
    while (waitpid(pid, &*status, 0) < 0 && errno == EINTR) continue;
  }

  if ((*mark).out_of_memory) {
    return Error{.code = Errc::io_error,
                 .message = "out of host memory in the child process that calls the manager: raise "
                            "the limit (ulimit -v), or free some"};
  }
  const char* last = (*mark).mark.last.load();
  end.last_call = last != nullptr ? last : "";
  end.inside = (*mark).mark.inside.load() > 0;
  end.operation = (*mark).mark.operation.data();
  end.said = end_of(said.get());
  auto bytes = unframed(end.bytes);
  end.bytes.clear();
  if (hung) {
    end.kind = ChildEnd::Kind::hung;
  } else if (WIFSIGNALED(*status)) {
    end.signal = WTERMSIG(*status);
    end.kind = end.signal == SIGABRT && is_of_the_heap(end.said) ? ChildEnd::Kind::heap_damaged
                                                                 : ChildEnd::Kind::crashed;
  } else if (WEXITSTATUS(*status) == 0 && bytes) {
    end.bytes = *std::move(bytes);
  } else {
    end.exit_code = WEXITSTATUS(*status);
    end.kind = is_of_the_heap(end.said) ? ChildEnd::Kind::heap_damaged : ChildEnd::Kind::exited;
  }
  return end;
}

bool enter_heap_checks() {
  if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
      dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr)
    return false;
  const char* given = std::getenv("LD_PRELOAD");
  const std::string_view preload = given != nullptr ? given : "";
  if (preload.find(kHeapChecks) != std::string_view::npos)
    return std::getenv("MALLOC_CHECK_") != nullptr;
  void* library = dlopen(kHeapChecks, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(kHeapChecks, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return false;

  const Descriptor file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::string line;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read(file.get(), buffer.data(), buffer.size())) > 0;) {
    line.append(buffer.data(), static_cast<std::size_t>(got));
  }
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < line.size(); at += std::strlen(line.data() + at) + 1)
    arguments.push_back(line.data() + at);
  if (arguments.empty()) return false;
  arguments.push_back(nullptr);
  setenv("LD_PRELOAD",
         preload.empty() ? kHeapChecks : (std::string(kHeapChecks) + ":" + given).c_str(), 1);
  setenv("MALLOC_CHECK_", "3", 1);
  execv("/proc/self/exe", arguments.data());
  return false;
}

}  // namespace emm::plugin
