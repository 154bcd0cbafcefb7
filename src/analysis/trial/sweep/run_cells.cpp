#include "trial/sweep/run_cells.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/text_format.hpp"
#include "base/unfinished.hpp"

namespace emm::sweep {
namespace {

constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
constexpr int kPollMs = 100;              // how soon an interrupt is seen
constexpr std::size_t kWordsMost = 4096;  // bytes kept of a failed command's output

/// A child process that this object kills at its end.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  Status start(const std::vector<std::string>& command, const std::string& out,
               const std::string& err) {
    std::vector<std::string> words = command;
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    // Opened before the fork, because little is safe between fork and exec.
    const int files[] = {open("/dev/null", O_RDONLY | O_CLOEXEC), open(out.c_str(), kFlags, 0666),
                         open(err.c_str(), kFlags, 0666)};
    int told[2] = {-1, -1};
    const bool opened = std::find(std::begin(files), std::end(files), -1) == std::end(files) &&
                        pipe2(told, O_CLOEXEC) == 0;
    if (opened) pid_ = fork();
    if (opened && pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child dies with the sweep, however that ends
      setpgid(0, 0);  // a terminal's signal goes to the sweep alone, which acts on it
      for (int i = 0; i < 3; ++i) dup2(files[i], i);
      execvp(arguments[0], arguments.data());
      const int error = errno;
      [[maybe_unused]] const auto written = ::write(told[1], &error, sizeof error);
      _exit(127);
    }
    int error = opened && pid_ > 0 ? 0 : errno;
    if (told[1] >= 0) close(told[1]);
    if (error == 0 && read(told[0], &error, sizeof error) != sizeof error) error = 0;
    if (told[0] >= 0) close(told[0]);
    for (const int file : files) {
      if (file >= 0) close(file);
    }
    if (error == 0) return {};
    return fail(Errc::io_error, "cannot run {}: {}", command.front(), std::strerror(error));
  }

  /// Returns the status of waitpid(), or nothing if `stop` became true before the child ended.
  std::optional<int> wait(const std::atomic<bool>* stop) {
    const int file = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    for (;;) {
      int status = 0;
      const auto ended = waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) {
        pid_ = -1;
        if (file >= 0) close(file);
        return status;
      }
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) break;
      pollfd ready{.fd = file, .events = POLLIN, .revents = 0};
      poll(file >= 0 ? &ready : nullptr, file >= 0 ? 1 : 0, file >= 0 ? kPollMs : 5);
    }
    if (file >= 0) close(file);
    return std::nullopt;
  }

 private:
  pid_t pid_ = -1;
};

std::string text_of(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() > most) text.erase(0, text.size() - most);
  return text;
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

/// Makes one attempt. Returns true if the cell is done, or was interrupted.
Result<bool> attempt(const Folder& folder, const Cell& cell, const RunOptions& options) {
  const auto place = folder.temporary_path(cell.id);
  const auto json = place + "/cell.json", said = place + "/said.txt";
  auto made = Unfinished::folder(place);
  if (!made && errno == EEXIST) {
    { const Unfinished left(place); }  // by a process of our number, which was killed
    made = Unfinished::folder(place);
  }
  if (!made) return fail(Errc::io_error, "cannot make {}: {}", place, std::strerror(errno));
  std::vector<std::string> command{options.program};
  command.insert(command.end(), cell.command.begin(), cell.command.end());
  command.emplace_back("--json");
  command.push_back(json);
  const auto began = std::chrono::steady_clock::now();
  Child child;
  if (auto started = child.start(command, "/dev/null", said); !started) return started.error();
  const auto status = child.wait(options.interrupted);
  if (!status) return true;
  const int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  if ((code == 0 || code == 1 || code == 3) && access(json.c_str(), R_OK) == 0 &&
      std::rename(json.c_str(), folder.cell_path(cell.id).c_str()) == 0) {
    folder.add_time(
        cell.id, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    return true;
  }
  const auto words = text_of(said, kWordsMost);
  // Whoever ends a task ends its cells too, sometimes before the task itself. That is no failure of
  // the cells.
  const auto ended_by = [&](int signal) {
    return WIFSIGNALED(*status) ? WTERMSIG(*status) == signal : code == 128 + signal;
  };
  if (ended_by(SIGTERM) || ended_by(SIGINT)) return true;
  const auto how =
      code >= 0 ? text::format("exit {}", code) : text::format("signal {}", WTERMSIG(*status));
  const auto added =
      folder.add_failure(cell.id, text::format("{}: {}\n{}", how, last_line(words), words));
  if (!added) return added.error();
  return false;
}

}  // namespace

Status run_cells(const Folder& folder, const std::vector<Cell>& cells, const RunOptions& options) {
  const auto before = folder.attempts();
  const auto todo = pending(cells, before, options.tries);
  std::atomic<std::size_t> next{0}, done{0};
  std::mutex mutex;  // guards `error`
  std::optional<Error> error;
  const auto stopped = [&] {
    return options.interrupted != nullptr && options.interrupted->load(std::memory_order_relaxed);
  };
  const auto work = [&](bool tells) {
    for (auto i = next++; i < todo.size() && !stopped(); i = next++) {
      const auto& cell = todo[i];
      const auto found = before.find(cell.id);
      auto failed = found == before.end() ? 0 : found->second.failed;
      // Another process may have done it since.
      while (failed < options.tries && !folder.is_done(cell.id) && !stopped()) {
        const auto ended = attempt(folder, cell, options);
        if (!ended) {
          const std::lock_guard lock(mutex);
          error = ended.error();
          next = todo.size();
          return;
        }
        if (*ended) break;
        ++failed;
      }
      ++done;
      if (tells && options.progress) options.progress(done, todo.size());
    }
  };
  std::vector<std::thread> others;
  for (std::uint64_t i = 1; i < std::min<std::uint64_t>(options.jobs, todo.size()); ++i)
    others.emplace_back(work, false);
  work(true);
  for (auto& each : others) each.join();
  if (error) return std::move(*error);
  return {};
}

Result<ProgramAnswer> ask(const std::vector<std::string>& command) {
  auto folder = Unfinished::temporary_folder("ask");
  if (!folder) return std::move(folder).error();
  const auto out = (*folder)->path() + "/out", err = (*folder)->path() + "/err";
  ProgramAnswer said;
  Status started;
  {
    Child child;
    started = child.start(command, out, err);
    if (started) {
      const auto status = *child.wait(nullptr);
      said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      said.out = text_of(out, std::size_t{64} << 20);
      said.err = text_of(err, kWordsMost);
    }
  }
  if (!started) return started.error();
  return said;
}

}  // namespace emm::sweep
