#include "base/unfinished.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/sudden_end.hpp"
#include "base/text.hpp"

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

/// Unlinks the files of a folder. In a signal handler too, where opendir() may not be called.
void empty_folder(int folder) noexcept {
  alignas(dirent64) char entries[4096];
  for (bool removed = true; removed;) {
    removed = false;
    lseek(folder, 0, SEEK_SET);
    for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
      for (long at = 0; at < got;) {
        const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
        removed = unlinkat(folder, entry->d_name, 0) == 0 || removed;
        at += entry->d_reclen;
      }
    }
  }
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
  auto path = text::format("{}/emmctl-{}-XXXXXX", temporary_place(), purpose);
  const WithoutSignals quiet;
  if (mkdtemp(path.data()) == nullptr)
    return fail(Errc::io_error, "{}: {}", path, std::strerror(errno));
  return std::make_unique<Unfinished>(path);
}

Unfinished::~Unfinished() {
  if (!whole_) remove();
  forget();
}

void Unfinished::set_whole() noexcept {
  whole_ = true;
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

std::string temporary_place() {
  const char* const named = std::getenv("TMPDIR");
  const bool usable = named != nullptr && *named == '/' && std::strpbrk(named, ":;") == nullptr;
  return usable ? named : "/tmp";
}

}  // namespace emm
