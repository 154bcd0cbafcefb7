#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>
#include <vector>

#include "base/run_files.hpp"
#include "base/text.hpp"
#include "log/whole_lines.hpp"
#include "log/writer.hpp"

namespace emm::log {
namespace {

constexpr std::string_view kWho = "--log";

/// Keeps other processes that write logs away from a file. Does nothing if the path is not a
/// regular file.
class FileLock {
 public:
  /// Usage error if another process holds the lock.
  static Result<FileLock> take(const std::string& path) {
    FileLock lock;
    struct stat status {};
    const bool there = stat(path.c_str(), &status) == 0;
    if (path == "-" || (there && !S_ISREG(status.st_mode))) return lock;
    lock.file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (lock.file_ >= 0 && flock(lock.file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return fail(Errc::usage, "{} is being written by another run: expected a log of its own",
                  path);
    }
    return lock;
  }
  FileLock() = default;
  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }

 private:
  int file_ = -1;
};

/// The logs of a run, one for each device or one for all, in files that stay whole after a kill.
/// Each log gets every record and writes those of its device.
class LogFiles final : public LogWriter {
 public:
  LogFiles(std::vector<FileLock> locks, std::vector<std::unique_ptr<LogWriter>> logs,
           const std::vector<std::string>& paths)
      : locks_(std::move(locks)), whole_lines_(paths), logs_(std::move(logs)) {}

  void on_record(const Record& record, const Gauges& gauges) override {
    for (const auto& log : logs_) log->on_record(record, gauges);
  }
  Status finish() override {
    Status first;
    for (const auto& log : logs_) {
      if (auto finished = log->finish(); !finished && first) first = finished;
    }
    return first;
  }

 private:
  std::vector<FileLock> locks_;
  WholeLines whole_lines_;  // declared before logs_, so it ends after all is written
  std::vector<std::unique_ptr<LogWriter>> logs_;
};

/// Whether the path is an uncompressed regular file, not a pipe or a terminal.
bool is_text_file(const std::string& path) {
  if (path == "-" || path.ends_with(".gz") || path.ends_with(".zst")) return false;
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

/// Turns "run.csv" into "run.dev1.csv", "run.csv.gz" into "run.dev1.csv.gz", "run" into "run.dev1".
std::string with_device(const std::string& path, std::uint32_t device) {
  const auto name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  auto end = path.size();
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) end -= packed.size();
  }
  const auto dot = path.rfind('.', end - 1);
  const auto at = dot == std::string::npos || dot <= name ? end : dot;
  return path.substr(0, at) + ".dev" + std::to_string(device) + path.substr(at);
}

}  // namespace

LogOptions LogOptions::of(const Clock& clock) {
  if (clock.kind() != "host") return {};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto since_zero = clock.now_ns();
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const int seconds = local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec;
  const auto day = 86'400 * kSecond;
  const auto at =
      static_cast<std::uint64_t>(seconds) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
  return {.day_ns_at_zero = (at + day - since_zero % day) % day};
}

Result<std::unique_ptr<LogWriter>> open_log(const std::string& path, std::string_view name,
                                            const trace::Trace& trace, const LogOptions& options) {
  const LogEntry* entry = nullptr;
  std::vector<std::string_view> known;
  for (const auto* candidate : bundled_logs()) {
    known.push_back(candidate->name);
    if (candidate->name == name) entry = candidate;
  }
  if (entry == nullptr) {
    return fail(Errc::usage, "no log format {}: expected one of {}", name, text::join(known));
  }
  const auto& devices = trace.devices();
  std::vector<std::unique_ptr<LogWriter>> logs;
  std::vector<std::string> text_files;
  std::vector<FileLock> locks;
  const auto open = [&](const std::string& file, int device) -> Status {
    auto lock = FileLock::take(file);
    if (!lock) return std::move(lock).error();
    locks.push_back(std::move(*lock));
    auto out = format::ByteSink::open(file, kWho);
    if (!out) return std::move(out).error();
    auto log = entry->make(std::move(*out), trace, device, options);
    if (!log) return std::move(log).error();
    logs.push_back(std::move(*log));
    if (is_text_file(file)) text_files.push_back(file);
    return {};
  };
  std::vector<std::pair<std::string, int>> files;
  if (devices.size() < 2 || path == "-") {
    files.emplace_back(path, -1);
  } else {
    for (const auto device : devices) files.emplace_back(with_device(path, device), device);
  }
  // Reserves all files before it truncates any: a conflict with another file of the run costs no
  // data.
  for (const auto& [file, device] : files) {
    if (auto apart = run_files::reserve(file, kWho); !apart) return apart.error();
  }
  for (const auto& [file, device] : files) {
    if (auto opened = open(file, device); !opened) return opened.error();
  }
  return std::make_unique<LogFiles>(std::move(locks), std::move(logs), text_files);
}

}  // namespace emm::log
