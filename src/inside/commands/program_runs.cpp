#include "commands/program_runs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>

#include "base/text.hpp"

namespace emm::cli {
namespace {

std::uint64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::string text_of(const std::string& path) {
  // An iterator would throw where a process ends meanwhile.
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

/// A process of this machine that has not ended.
struct Process {
  pid_t number = 0, parent = 0, group = 0;
};
std::vector<Process> processes() {
  std::vector<Process> found;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const auto* entry = readdir(folder)) {
    const auto number = text::to_u64(entry->d_name);
    if (!number) continue;
    const auto stat = text_of(text::format("/proc/{}/stat", entry->d_name));
    const auto name_ends = stat.rfind(')');  // the name may hold anything
    if (name_ends == stat.npos) continue;
    Process one{.number = static_cast<pid_t>(*number)};
    char state = 'Z';
    std::istringstream rest(stat.substr(name_ends + 1));
    if (rest >> state >> one.parent >> one.group && state != 'Z' && state != 'X')
      found.push_back(one);
  }
  closedir(folder);
  return found;
}

/// The process and all that it began.
std::vector<pid_t> with_descendants(pid_t process, const std::vector<Process>& all) {
  std::vector<pid_t> found{process};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& one : all) {
      if (one.parent == found[i]) found.push_back(one.number);
    }
  }
  return found;
}

/// Bytes that are the process's alone: not those of files, which processes share.
std::uint64_t memory_of(pid_t process) {
  std::ifstream file(text::format("/proc/{}/statm", static_cast<std::int64_t>(process)));
  std::uint64_t size = 0, resident = 0, shared = 0;
  if (!(file >> size >> resident >> shared) || shared > resident) return 0;
  return (resident - shared) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// The number behind a word in a file of lines.
std::uint64_t count_behind(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(word)) continue;
    auto rest = text::trim(std::string_view(line).substr(word.size()));
    return text::to_u64(rest.substr(0, rest.find(' '))).value_or(0);
  }
  return 0;
}

/// What processes may still take of this machine, or of the control group that we are in.
std::uint64_t memory_for_runs() {
  auto available = count_behind("/proc/meminfo", "MemAvailable:") << 10;
  if (available == 0) available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;  // version 2
    for (auto path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      const auto place = "/sys/fs/cgroup" + path;
      const auto limit = text::to_u64(text::trim(text_of(place + "/memory.max")));
      const auto used = text::to_u64(text::trim(text_of(place + "/memory.current")));
      if (!limit || !used) continue;
      const auto cache = count_behind(place + "/memory.stat", "inactive_file ");
      const auto held = *used - std::min(*used, cache);
      available = std::min(available, *limit - std::min(*limit, held));
    }
  }
  return available;
}

constexpr std::size_t kErrorsMost = std::size_t{64} << 10;  // bytes kept of a run's stderr

}  // namespace

Result<ProgramRuns> ProgramRuns::make(std::uint64_t most) {
  auto folder = Unfinished::temporary_folder("runs");
  if (!folder) return std::move(folder).error();
  return ProgramRuns(*std::move(folder), most);
}

ProgramRuns::ProgramRuns(ProgramRuns&&) noexcept = default;

ProgramRuns::~ProgramRuns() { end_all(); }

std::string ProgramRuns::answer_of(std::size_t number) const {
  return text::format("{}/{}.json", folder_->path(), number);
}

bool ProgramRuns::has_room() {
  if (running_.empty()) return true;
  if (running_.size() >= most_ || needed_ == 0) return false;
  look_at_memory();
  auto needed = needed_;
  for (const auto& one : running_) needed = std::max(needed, one.peak);
  auto free = memory_for_runs();
  for (const auto& one : running_) free -= std::min(free, needed - one.memory);
  return free >= needed;
}

Status ProgramRuns::begin(std::size_t number, const std::vector<std::string>& command) {
  auto words = command;
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto errors = text::format("{}/{}.errors", folder_->path(), number);
  // Opened before the fork, because little is safe between fork and exec.
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int said =
      ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  const auto process = nothing >= 0 && said >= 0 ? fork() : pid_t{-1};
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // it ends with us, however we do
    setpgid(0, 0);                     // a terminal's signal comes to us alone
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  const int error = errno;
  if (nothing >= 0) ::close(nothing);
  if (said >= 0) ::close(said);
  if (process < 0)
    return fail(Errc::io_error, "cannot run {}: {}", command.front(), std::strerror(error));
  running_.push_back({.number = number, .process = process});
  return {};
}

void ProgramRuns::look_at_memory() {
  constexpr std::uint64_t kEachMs = 200;  // the whole of /proc is read for it
  if (now_ms() - looked_ms_ < kEachMs) return;
  const auto all = processes();
  for (auto& one : running_) {
    one.memory = 0;
    for (const auto process : with_descendants(one.process, all)) one.memory += memory_of(process);
    one.peak = std::max(one.peak, one.memory);
  }
  looked_ms_ = now_ms();
}

std::vector<std::pair<std::size_t, EndedRun>> ProgramRuns::ended() {
  std::vector<std::pair<std::size_t, EndedRun>> found;
  look_at_memory();
  for (auto one = running_.begin(); one != running_.end();) {
    int status = 0;
    rusage used{};
    if (wait4(one->process, &status, WNOHANG, &used) != one->process) {
      ++one;
      continue;
    }
    // The largest of its processes, which a look each fifth of a second may have missed.
    const auto largest = static_cast<std::uint64_t>(used.ru_maxrss) << 10;
    needed_ = std::max({needed_, one->peak, largest});
    EndedRun run{.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                 .json = text_of(answer_of(one->number)),
                 .errors = text_of(text::format("{}/{}.errors", folder_->path(), one->number))};
    if (run.errors.size() > kErrorsMost) run.errors.erase(0, run.errors.size() - kErrorsMost);
    unlink(answer_of(one->number).c_str());
    found.emplace_back(one->number, std::move(run));
    one = running_.erase(one);
  }
  constexpr int kPollMs = 20;  // what a run's end may be noticed late by
  if (found.empty() && !running_.empty()) poll(nullptr, 0, kPollMs);
  return found;
}

void ProgramRuns::end_all() {
  if (running_.empty()) return;
  std::set<pid_t> groups, all;
  const auto add_descendants = [&] {
    const auto now = processes();
    for (const auto& one : running_) {
      const auto its = with_descendants(one.process, now);
      all.insert(its.begin(), its.end());
    }
  };
  add_descendants();
  for (const auto& one : running_) {
    groups.insert(one.process);
    kill(one.process, SIGTERM);  // it passes the signal on
  }
  const auto have_ended = [&](std::uint64_t within_ms) {
    for (const auto until = now_ms() + within_ms; now_ms() < until;) {
      std::erase_if(running_, [](const Running& one) {
        return waitpid(one.process, nullptr, WNOHANG) == one.process;
      });
      const auto now = processes();
      if (std::none_of(now.begin(), now.end(), [&](const Process& one) {
            return groups.count(one.group) != 0 || all.count(one.number) != 0;
          }))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  };
  constexpr std::uint64_t kGraceMs = 3000, kDeathMs = 2000;  // after SIGTERM and after SIGKILL
  if (have_ended(kGraceMs)) return;
  add_descendants();  // what they began meanwhile
  for (const auto process : all) kill(process, SIGKILL);
  for (const auto group : groups) kill(-group, SIGKILL);
  (void)have_ended(kDeathMs);
  remove_left_folders();
}

}  // namespace emm::cli
