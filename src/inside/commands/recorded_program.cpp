#include "commands/recorded_program.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/text_format.hpp"
#include "record/forwarding_library.hpp"

namespace emm::cli {
namespace {

// What programs open: the soname, and the name of a development package.
constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kOtherName = "libcuda.so";

std::string absolute(const std::string& path) {
  char found[PATH_MAX];
  return realpath(path.c_str(), found) != nullptr ? std::string(found) : std::string();
}

/// The path at which the loader finds the driver. If a recorded program records another one, the
/// driver is the one that the outer recording found.
Result<std::string> find_driver() {
  if (const char* const outer = std::getenv("EMM_RECORD_DRIVER");
      outer != nullptr && *outer == '/') {
    return std::string(outer);
  }
  void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return fail(Errc::no_device, "no CUDA driver ({} not found)", kLibrary);
  link_map* map = nullptr;
  std::string path;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = absolute(map->l_name);
  dlclose(library);
  if (path.empty()) return fail(Errc::no_device, "no CUDA driver ({} not found)", kLibrary);
  return path;
}

Status write_file(const std::string& path, const std::string& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0777);
  const auto cannot = [&] { return fail(Errc::io_error, "{}: {}", path, std::strerror(errno)); };
  if (file < 0) return cannot();
  const auto wrote = ::write(file, bytes.data(), bytes.size());
  const bool whole = wrote == static_cast<ssize_t>(bytes.size());
  if (!whole && wrote >= 0) errno = ENOSPC;
  Status done;
  if (!whole) done = cannot();
  ::close(file);
  return done;
}

std::atomic<pid_t> the_program{0};
int wake_pipe[2] = {-1, -1};

/// Passes a signal on to the program. A terminal sends its signals to the program itself. After the
/// program's end a signal ends the waiting for what it left.
void pass_on(int signal, siginfo_t* info, void*) {
  const auto before = errno;
  const auto program = the_program.load();
  const bool from_terminal = info->si_code == SI_KERNEL;
  if (program > 0 && !from_terminal) kill(program, signal);
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  if (program == 0 && ends && write(wake_pipe[1], "t", 1) < 0) errno = before;
  errno = before;
}

/// Writes a byte for each event: 's' for our own signal, 'c' if a child may have ended. pass_on()
/// writes 't'.
void wake(int signal, siginfo_t*, void*) {
  const auto before = errno;
  const char what = signal == SIGCHLD ? 'c' : 's';
  // the pipe is full, which is enough to wake
  if (write(wake_pipe[1], &what, 1) < 0) errno = before;
  errno = before;
}

// What a scheduler or a user sends to emmctl and means for the program.
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

/// Installs our own signal handlers while the program runs.
class PassingOn {
 public:
  explicit PassingOn(int own) : own_(own) {
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < std::size(kPassedOn); ++i)
      sigaction(kPassedOn[i], &action, &before_[i]);
    action.sa_sigaction = wake;
    sigaction(SIGCHLD, &action, &child_before_);
    if (own_ != 0) sigaction(own_, &action, &own_before_);
  }
  PassingOn(const PassingOn&) = delete;
  PassingOn& operator=(const PassingOn&) = delete;
  ~PassingOn() {
    if (own_ != 0) sigaction(own_, &own_before_, nullptr);
    for (std::size_t i = 0; i < std::size(kPassedOn); ++i)
      sigaction(kPassedOn[i], &before_[i], nullptr);
    sigaction(SIGCHLD, &child_before_, nullptr);
  }

 private:
  int own_;
  struct sigaction before_[std::size(kPassedOn)]{};
  struct sigaction child_before_ {
  }, own_before_{};
};

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Waits for the program's end, and calls `start.wake` as requested.
int wait_for_end(pid_t process, const ProgramStart& start) {
  std::optional<std::uint64_t> until;  // on monotonic_ns()
  const auto tell = [&](Wake why) {
    if (!start.wake) return;
    const auto more = start.wake(process, why);
    until.reset();
    if (more) until = monotonic_ns() + *more;
  };
  tell(Wake::begun);
  std::optional<int> ended;  // how the program did
  bool looks = start.look != nullptr, told_left = false;
  for (std::uint64_t round = 0;; ++round) {
    int status = 0;
    const auto one = waitpid(start.follows ? -1 : process, &status, WNOHANG);
    if (one == process) {
      ended = status;
      the_program = 0;
    }
    if (one < 0 && errno != EINTR) return ended.value_or(status);
    if (ended && !start.follows) return *ended;
    if (one != 0) continue;  // another child may have ended too
    if (ended && !told_left && start.wake) start.wake(process, Wake::left);
    told_left = ended.has_value();
    if (looks) looks = start.look(process);
    // A program loads its libraries as it begins, and seldom later.
    constexpr std::uint64_t kLooksMs = 5, kLooksMsMost = 500;
    int wait_ms =
        looks ? static_cast<int>(std::min(kLooksMs + kLooksMs * round, kLooksMsMost)) : -1;
    if (until) {
      const auto now = monotonic_ns();
      // An int of ms, as poll() takes it, with room; the wait is then begun anew.
      constexpr std::uint64_t kMsMost = 1'000'000'000;
      const auto left = now < *until ? (*until - now + 999'999) / 1'000'000 : 0;
      const auto soon = wait_ms < 0 ? kMsMost : static_cast<std::uint64_t>(wait_ms);
      wait_ms = static_cast<int>(std::min<std::uint64_t>(left, soon));
      if (left == 0) {
        tell(Wake::time);
        continue;
      }
    }
    pollfd waited{.fd = wake_pipe[0], .events = POLLIN, .revents = 0};
    if (poll(&waited, 1, wait_ms) <= 0) continue;
    char happened[64];
    const auto got = read(wake_pipe[0], happened, sizeof happened);
    for (ssize_t i = 0; i < got; ++i) {
      if (happened[i] == 's') tell(Wake::signal);
      if (happened[i] == 't' && ended) return *ended;
    }
  }
}

}  // namespace

std::string library_beside(const std::string& executable, const std::string& name) {
  const auto folder = executable.substr(0, executable.rfind('/') + 1);
  for (const auto* place : {"../lib/emmctl/record/", "../lib/"}) {
    auto path = absolute(text::format("{}{}{}", folder, place, name));
    if (!path.empty()) return path;
  }
  return {};
}

std::string python_hooks(const std::string& program) {
  const char* const given = std::getenv("EMM_PYTHON_PACKAGE");
  const auto folder = program.substr(0, program.rfind('/') + 1);
  std::vector<std::string> places = {folder + "../../../tools/python/emmctl",  // a checkout
                                     folder + "../../../emmctl",               // a wheel
                                     folder + "../lib/python3/dist-packages/emmctl"};
  if (given != nullptr && *given != '\0') places = {given};
  for (const auto& place : places) {
    if (auto found = absolute(place + "/_at_start"); !found.empty()) return found;
  }
  return {};
}

std::string before_python_path(const std::string& hooks) {
  const char* const paths = std::getenv("PYTHONPATH");
  return paths != nullptr && *paths != '\0' ? hooks + ":" + paths : hooks;
}

Result<DriverShim> DriverShim::open(const std::string& folder, const std::string& program,
                                    const std::string& named) {
  DriverShim shim;
  shim.folder_ = absolute(folder);
  shim.recorder_ = library_beside(program, "libemm-record.so");
  if (shim.recorder_.empty()) {
    return fail(Errc::io_error, "libemm-record.so is not beside {}: expected it in ../lib",
                program);
  }
  auto driver = named.empty() ? find_driver() : Result<std::string>(named);
  if (!driver) return std::move(driver).error();
  shim.driver_ = *std::move(driver);
  auto functions = record::functions_of(shim.driver_);
  if (!functions) return std::move(functions).error();
  shim.functions_ = *std::move(functions);
  // LD_LIBRARY_PATH separates paths by these
  if (shim.folder_.find_first_of(":;") != std::string::npos) {
    auto elsewhere = Unfinished::temporary_folder("record");
    if (!elsewhere) return std::move(elsewhere).error();
    shim.elsewhere_ = *std::move(elsewhere);
    shim.folder_ = shim.elsewhere_->path();
  }
  return shim;
}

Status DriverShim::write(const std::vector<std::pair<std::string, std::string>>& variables) const {
  std::vector<std::pair<std::string, std::string>> ours;
  for (const auto& variable : variables) {
    if (variable.first.starts_with("EMM_")) ours.push_back(variable);
  }
  const auto library = record::forwarding_library(kLibrary, recorder_, functions_, ours);
  if (library.empty())
    return fail(Errc::not_supported, "{}: {}", "recording", std::strerror(ENOTSUP));
  if (auto written = write_file(folder_ + "/" + kLibrary, library); !written) return written;
  if (symlink(kLibrary, (folder_ + "/" + kOtherName).c_str()) != 0)
    return fail(Errc::io_error, "{}/{}: {}", folder_, kOtherName, std::strerror(errno));
  return {};
}

std::vector<std::pair<std::string, std::string>> DriverShim::variables() const {
  const char* const paths = std::getenv("LD_LIBRARY_PATH");
  auto first = folder_;
  if (paths != nullptr && *paths != '\0') first += std::string(":") + paths;
  return {{"LD_LIBRARY_PATH", first}, {"EMM_RECORD_DRIVER", driver_}};
}

void DriverShim::remove() const {
  unlink((folder_ + "/" + kLibrary).c_str());
  unlink((folder_ + "/" + kOtherName).c_str());
}

Result<ProgramEnd> run_program(const ProgramStart& start) {
  std::vector<char*> arguments;
  for (const auto& word : start.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int told[2];  // carries the errno if the program cannot be started
  if (pipe2(told, O_CLOEXEC) != 0)
    return fail(Errc::io_error, "{}: {}", "pipe", std::strerror(errno));
  if (wake_pipe[0] < 0 && pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail(Errc::io_error, "{}: {}", "pipe", std::strerror(errno));
  // A signal that comes before the program is there waits for it.
  sigset_t passed_on, before;
  sigemptyset(&passed_on);
  for (const int signal : kPassedOn) {
    if (signal != start.signal) sigaddset(&passed_on, signal);
  }
  pthread_sigmask(SIG_BLOCK, &passed_on, &before);
  // What the program leaves becomes a child of this process, as of init.
  if (start.follows) prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto process = fork();
  if (process < 0) {
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return fail(Errc::io_error, "{}: {}", "fork", std::strerror(error));
  }
  if (process == 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::signal(SIGXFSZ, SIG_DFL);  // main() ignores it
    for (const auto& [name, value] : start.variables) setenv(name.c_str(), value.c_str(), 1);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    if (write(told[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  ::close(told[1]);
  // The terminal sent these to this process alone.
  constexpr timespec kAtOnce{};
  for (int early; (early = sigtimedwait(&passed_on, nullptr, &kAtOnce)) > 0;) kill(process, early);
  the_program = process;
  const PassingOn passing(start.signal);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(told[0], &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  ::close(told[0]);

  int status = 0;
  if (got == sizeof error) {
    waitpid(process, &status, 0);
  } else {
    status = wait_for_end(process, start);
  }
  the_program = 0;
  if (got == sizeof error) {
    return fail(Errc::usage, "{}: {}: expected a program that can be run", start.command[0],
                std::strerror(error));
  }
  return ProgramEnd{.process = process,
                    .code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

}  // namespace emm::cli
