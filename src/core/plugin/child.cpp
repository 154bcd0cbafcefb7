#include "plugin/child.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
#include <fstream>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/sudden_end.hpp"
#include "plugin/running_call.hpp"

#ifdef EMM_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace emm::plugin {
namespace {

using Deadline = std::chrono::steady_clock::time_point;
constexpr std::size_t kSaidBytes = 4096;  // of the last words on stderr
// A child may be damaged, and its answer of any size.
constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{64} << 20;
constexpr const char* kHeapChecks = "libc_malloc_debug.so.0";

/// Owns a file descriptor and closes it once.
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

/// For calls of a child that was told to stop.
constexpr auto kLastCall = std::chrono::milliseconds(250);

/// The memory that a child and its parent share. The bytes of the answer follow it.
struct Shared {
  CallMarks marks;
  std::atomic<bool> interrupted{false};
  std::atomic<bool> answered{false};
  /// The child ended because the system refused it memory.
  std::atomic<bool> out_of_memory{false};
  std::uint64_t answer_bytes = 0;
};

// A failure of the system itself: a machine without memory or processes left.
Error cannot(const char* what) {
  const int why = errno;
  if (why == ENOMEM) host_memory_refused();
  return {.code = Errc::io_error,
          .message = text::format("cannot {} for a child process: {}", what, std::strerror(why))};
}

void to_own_streams(const ChildOptions& options, int said) {
  const Descriptor in(open("/dev/null", O_RDONLY)), out(open("/dev/null", O_WRONLY));
  dup2(in.get(), STDIN_FILENO);
  if (!options.on_stderr) dup2(said, STDERR_FILENO);
  if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) dup2(out.get(), STDOUT_FILENO);
}

std::atomic<bool>* out_of_memory = nullptr;  // in a child: points to its flag in the shared memory

[[noreturn]] void be_the_child(pid_t parent, const ChildOptions& options, int said,
                               std::span<std::byte> memory, Shared& shared,
                               const std::function<std::string(const std::atomic<bool>&)>& work) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent died before prctl() took effect
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTTOU}) std::signal(signal, SIG_IGN);
  to_own_streams(options, said);
  mark_calls_in(shared.marks);
  out_of_memory = &shared.out_of_memory;
  before_sudden_end([]() noexcept { out_of_memory->store(true); });
  std::string bytes;
  try {
    bytes = work(shared.interrupted);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "an exception came out of the work: %s\n", error.what());
    std::abort();
  }
  const auto answer = memory.subspan(sizeof(Shared));
  const bool fits = bytes.size() <= answer.size();
  if (fits) std::memcpy(answer.data(), bytes.data(), bytes.size());
  shared.answer_bytes = bytes.size();
  shared.answered.store(fits);
  std::fflush(nullptr);
  if (options.runs_exit_handlers) std::exit(0);
  _exit(fits ? 0 : 1);
}

/// Returns the milliseconds until `deadline`, as poll takes them.
int left(Deadline deadline) noexcept {
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  return static_cast<int>(std::clamp<long>(rest, 0, 1'000'000'000));
}

/// Finds a call of a child that does not return.
class Watch {
 public:
  explicit Watch(const CallMarks& marks) noexcept : marks_(marks) {}

  /// Returns the mark of a call that has been running for `limit`, or null.
  const CallMark* overdue(std::chrono::milliseconds limit) {
    const auto now = std::chrono::steady_clock::now();
    const CallMark* found = nullptr;
    for (std::size_t i = 0; i < marks_.threads.size(); ++i) {
      const auto& mark = marks_.threads[i];
      if (mark.depth.load(std::memory_order_relaxed) == 0) continue;
      const auto changes = mark.changes.load(std::memory_order_relaxed);
      if (seen_.size() <= i) seen_.resize(i + 1);
      auto& seen = seen_[i];
      if (seen.changes != changes) seen = {.changes = changes, .since = now};
      if (found == nullptr && now - seen.since >= limit) found = &mark;
    }
    return found;
  }

 private:
  struct Seen {
    std::uint64_t changes = 0;
    Deadline since{};
  };
  const CallMarks& marks_;
  std::vector<Seen> seen_;
};

/// Says how a child ended.
struct Ended {
  std::optional<int> status;                  ///< Empty if the child must be killed.
  ChildEnd::Kind why = ChildEnd::Kind::hung;  ///< Why the child must be killed.
  /// The call that did not return, if the child must be killed for that.
  const CallMark* call = nullptr;
};

/// Lists the processes whose parent is this process, adopted orphans included.
std::vector<pid_t> children() {
  std::vector<pid_t> all;
  const auto self = std::to_string(getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  for (pid_t child = 0; file >> child;) all.push_back(child);
  return all;
}

/// Calls `look` and adds the processes that `look` starts to `ours`.
bool look_around(const ChildOptions& options, std::vector<pid_t>& ours) {
  const auto before = children();
  const bool ends = options.look();
  for (const auto child : children()) {
    if (std::find(before.begin(), before.end(), child) == before.end()) ours.push_back(child);
  }
  return ends;
}

/// Decides when a child counts as hung.
class Patience {
 public:
  Patience(const ChildOptions& options, const CallMarks& marks)
      : options_(options), marks_(marks), end_(last_look_ + options.deadline) {}

  /// Returns the milliseconds that are left, as poll takes them.
  int rest() {
    constexpr int kStepsMost = 10, kLooks = 10;  // steps in all; looks in one deadline
    if (!options_.deadline_is_for_a_step) return left(end_);
    const auto now = std::chrono::steady_clock::now();
    if (now - last_look_ >= options_.deadline / kLooks) {
      last_look_ = now;
      if (const auto progress = marks_.progress(); progress != seen_) {
        seen_ = progress;
        end_ = std::min(now + options_.deadline, begun_ + kStepsMost * options_.deadline);
      }
    }
    return left(end_);
  }

 private:
  const ChildOptions& options_;
  const CallMarks& marks_;
  const Deadline begun_ = std::chrono::steady_clock::now();
  Deadline last_look_ = begun_;
  Deadline end_;
  std::uint64_t seen_ = 0;
};

Ended wait_for(pid_t pid, Shared& shared, const ChildOptions& options, std::vector<pid_t>& ours) {
  constexpr int kTickMs = 5;  // how late an end or a time limit is noticed
  using Kind = ChildEnd::Kind;
  Patience patience(options, shared.marks);
  const Descriptor child(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Watch watch(shared.marks);
  Deadline interrupted_at{};
  std::optional<Deadline> leaving_since;  // when it answered or was told to stop
  while (true) {
    // The child's end wakes poll. On a system without pidfd_open poll only waits.
    pollfd poller{.fd = child.get(), .events = POLLIN, .revents = 0};
    const int tick = child.get() >= 0 ? kTickMs : 1;
    poll(&poller, 1, options.deadline.count() != 0 ? std::min(patience.rest(), tick) : tick);
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return {.status = status};
    if (options.look && look_around(options, ours)) return {.status = {}, .why = Kind::interrupted};
    if (options.deadline.count() != 0 && patience.rest() == 0) return {};
    if (options.interrupted != nullptr && options.interrupted->load() &&
        !shared.interrupted.exchange(true)) {
      interrupted_at = std::chrono::steady_clock::now();
    }
    const bool stops = shared.interrupted.load();
    if (stops && options.killed_when_interrupted) return {{}, Kind::interrupted, nullptr};
    if (stops && std::chrono::steady_clock::now() - interrupted_at >= kLastCall) {
      if (const auto* call = watch.overdue(kLastCall)) return {{}, Kind::interrupted, call};
    }
    if (options.call_deadline.count() == 0) continue;
    if (const auto* call = watch.overdue(options.call_deadline)) return {{}, Kind::hung, call};
    if (!stops && !shared.answered.load()) continue;
    const auto now = std::chrono::steady_clock::now();
    if (!leaving_since) leaving_since = now;
    if (now - *leaving_since >= options.call_deadline)
      return {{}, stops ? Kind::interrupted : Kind::hung, nullptr};
  }
}

/// Kills the processes that a child left behind. This process has adopted them.
void end_descendants(pid_t pid, const std::vector<pid_t>& ours) {
  kill(-pid, SIGKILL);
  for (bool found = true; found;) {
    found = false;
    for (const auto child : children()) {
      if (std::find(ours.begin(), ours.end(), child) != ours.end()) continue;
      found = true;
      kill(child, SIGKILL);
      while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    }
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
  // What glibc's allocator and the sanitizers print before they abort.
  for (const std::string_view words :
       {"free(): ", "malloc(): ", "realloc(): ", "calloc(): ", "munmap_chunk(): ",
        "malloc_consolidate(): ", "corrupted size", "corrupted double-linked list",
        "mremap_chunk(): ", "malloc_check_get_size(): ", "AddressSanitizer: "}) {
    if (said.find(words) != std::string_view::npos) return true;
  }
  return false;
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
    case ChildEnd::Kind::interrupted:
      return text::format("was interrupted {}", where);
  }
  return {};
}

SharedMemory::SharedMemory(std::size_t size) noexcept
    : at_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0)),
      size_(size) {
  if (at_ == MAP_FAILED) at_ = nullptr;
#ifdef EMM_ADDRESS_SANITIZER
  if (ok())
    __lsan_register_root_region(at_, size_);  // a child that foreign code ends has its run in here
#endif
}

SharedMemory::~SharedMemory() {
#ifdef EMM_ADDRESS_SANITIZER
  if (ok()) __lsan_unregister_root_region(at_, size_);
#endif
  if (ok()) munmap(at_, size_);
}

Result<ChildEnd> run_in_child(std::chrono::milliseconds deadline,
                              const std::function<std::string()>& work) {
  return run_in_child({.deadline = deadline}, [&](const std::atomic<bool>&) { return work(); });
}

Result<ChildEnd> run_in_child(const ChildOptions& options,
                              const std::function<std::string(const std::atomic<bool>&)>& work) {
  const Descriptor said(memfd_create("said", MFD_CLOEXEC));
  if (said.get() < 0) return cannot("make a file in memory");
  const SharedMemory memory(sizeof(Shared) + kAnswerBytesMax);
  if (!memory.ok()) return cannot("map memory");
  auto& shared = *new (memory.bytes().data()) Shared;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto ours = children();

  std::fflush(nullptr);  // otherwise the child would write the buffered text a second time
  const auto parent = getpid();
  const auto pid = fork();
  if (pid < 0) return cannot("fork");
  if (pid == 0) be_the_child(parent, options, said.get(), memory.bytes(), shared, work);
  setpgid(pid, pid);  // parent and child both call it, since either may run first

  auto ended = wait_for(pid, shared, options, ours);
  const bool killed = !ended.status;
  kill(-pid, SIGKILL);
  if (killed) {
    ended.status = 0;
    while (waitpid(pid, &*ended.status, 0) < 0 && errno == EINTR) continue;
  }
  end_descendants(pid, ours);
  if (options.look) options.look();

  if (shared.out_of_memory) {
    return Error{.code = Errc::io_error,
                 .message =
                     "out of host memory in the child process that calls the manager: raise "
                     "the limit (ulimit -v), or free some"};
  }
  ChildEnd end;
  const auto* call = ended.call;
  for (const auto& mark : shared.marks.threads) {
    if (call == nullptr && mark.depth.load() > 0) call = &mark;
  }
  const char* slot = call != nullptr ? call->slot.load() : shared.marks.last.load();
  end.last_call = slot != nullptr ? slot : "";
  end.inside = call != nullptr;
  end.in_one_call = ended.call != nullptr;
  if (call != nullptr) end.event = call->event.load();
  end.operation = shared.marks.operation.data();
  end.said = end_of(said.get());
  end.whole = shared.answered.load() && shared.answer_bytes <= kAnswerBytesMax;
  if (end.whole) {
    const auto answer = memory.bytes().subspan(sizeof(Shared), shared.answer_bytes);
    end.bytes.assign(reinterpret_cast<const char*>(answer.data()), answer.size());
  }
  if (killed) {
    end.kind = ended.why;
  } else if (WIFSIGNALED(*ended.status)) {
    end.signal = WTERMSIG(*ended.status);
    end.kind = end.signal == SIGABRT && is_of_the_heap(end.said) ? ChildEnd::Kind::heap_damaged
                                                                 : ChildEnd::Kind::crashed;
  } else if (WEXITSTATUS(*ended.status) != 0 || !end.whole) {
    end.exit_code = WEXITSTATUS(*ended.status);
    end.kind = is_of_the_heap(end.said) ? ChildEnd::Kind::heap_damaged : ChildEnd::Kind::exited;
  }
  return end;
}

void restart_program(const char* program) {
  const Descriptor file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::string line;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read(file.get(), buffer.data(), buffer.size())) > 0;) {
    line.append(buffer.data(), static_cast<std::size_t>(got));
  }
  std::vector<char*> arguments;
  for (std::size_t at = 0; at < line.size(); at += std::strlen(line.data() + at) + 1)
    arguments.push_back(line.data() + at);
  if (arguments.empty()) return;
  arguments.push_back(nullptr);
  execv(program, arguments.data());
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

  setenv("LD_PRELOAD",
         preload.empty() ? kHeapChecks : (std::string(kHeapChecks) + ":" + given).c_str(), 1);
  setenv("MALLOC_CHECK_", "3", 1);
  restart_program();
  return false;
}

}  // namespace emm::plugin
