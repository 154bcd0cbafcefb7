#include "base/unfinished.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/sudden_end.hpp"
#include "base/text_format.hpp"

namespace emm {
namespace {

std::array<std::atomic<const Unfinished*>, 64> all_unfinished;

/// Keeps signals from this thread: none comes between the making of a folder and its place in the
/// list.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

/// Removes what is in a folder, and follows no link out of it. In a signal handler too, where
/// opendir() may not be called and the stack may be small.
void empty_folder(int folder, int depth = 0) noexcept {
  constexpr int kDeepest = 16;  // folders in each other; ours have few, and the stack may be small
  if (depth > kDeepest) return;
  const auto remove = [&](const char* name) {
    if (unlinkat(folder, name, 0) == 0) return true;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) return false;
    const int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0) return false;
    empty_folder(inner, depth + 1);
    close(inner);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
  };
  alignas(dirent64) char entries[1024];
  for (bool removed = true; removed;) {
    removed = false;
    lseek(folder, 0, SEEK_SET);
    for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
      for (long at = 0; at < got;) {
        const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
        removed = remove(entry->d_name) || removed;
        at += entry->d_reclen;
      }
    }
  }
}

/// In each temporary folder, and locked while its maker is there.
constexpr const char* kLock = ".emmctl-lock";

/// The names in a folder; none where it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    found.push_back(at->path().filename());
  return found;
}

bool is_in_an_environment(const std::string& path) {
  const auto processes = names_in("/proc");
  return std::any_of(processes.begin(), processes.end(), [&](const std::string& process) {
    std::ifstream file("/proc/" + process + "/environ", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {}).find(path) != std::string::npos;
  });
}

}  // namespace

Unfinished::Unfinished(std::string path) : path_(std::move(path)), maker_(getpid()) {
  before_sudden_end(remove_all);
  for (auto& place : all_unfinished) {
    const Unfinished* none = nullptr;
    if (place.compare_exchange_strong(none, this)) break;
  }
}

std::unique_ptr<Unfinished> Unfinished::folder(const std::string& path) {
  const WithoutSignals quiet;
  if (mkdir(path.c_str(), 0777) != 0) return nullptr;
  return std::make_unique<Unfinished>(path);
}

Result<std::unique_ptr<Unfinished>> Unfinished::temporary_folder(std::string_view purpose) {
  const WithoutSignals quiet;
  for (;;) {
    auto path = text::format("{}/emmctl-{}-XXXXXX", temporary_place(), purpose);
    if (mkdtemp(path.data()) == nullptr)
      return fail(Errc::io_error, "{}: {}", path, std::strerror(errno));
    auto made = std::make_unique<Unfinished>(path);
    made->lock_ = open((path + '/' + kLock).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat now {};
    // Another process may have come between, and have removed it.
    if (made->lock_ < 0 || flock(made->lock_, LOCK_EX) != 0 || fstat(made->lock_, &now) != 0 ||
        now.st_nlink > 0)
      return made;
  }
}

Unfinished::~Unfinished() {
  if (!whole_) remove();
  forget();
  if (lock_ >= 0) close(lock_);
}

void Unfinished::set_whole() noexcept {
  whole_ = true;
  if (lock_ >= 0) {
    const int folder = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unlinkat(folder, kLock, 0);
    close(folder);
  }
  forget();
}

void Unfinished::forget() noexcept {
  for (auto& place : all_unfinished) {
    const Unfinished* mine = this;
    if (place.compare_exchange_strong(mine, nullptr)) return;
  }
}

void Unfinished::remove() const noexcept {
  if (maker_ != getpid()) return;
  const int folder = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) {
    unlink(path_.c_str());
    return;
  }
  empty_folder(folder);
  close(folder);
  rmdir(path_.c_str());
}

void Unfinished::remove_all() noexcept {
  for (const auto& place : all_unfinished) {
    if (const auto* const one = place.load()) one->remove();
  }
}

void remove_left_folders() {
  const auto place = temporary_place();
  for (const auto& name : names_in(place)) {
    if (!name.starts_with("emmctl-")) continue;
    const auto path = place + '/' + name;
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) continue;
    const int lock = openat(folder, kLock, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && !is_in_an_environment(path)) {
      empty_folder(folder);
      rmdir(path.c_str());
    }
    if (lock >= 0) close(lock);
    close(folder);
  }
}

std::string temporary_place() {
  const char* const named = std::getenv("TMPDIR");
  const bool usable = named != nullptr && *named == '/' && std::strpbrk(named, ":;") == nullptr;
  return usable ? named : "/tmp";
}

}  // namespace emm
