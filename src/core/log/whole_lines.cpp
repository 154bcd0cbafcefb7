#include "log/whole_lines.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace emm::log {
namespace {

// The functions below run after a fork of a process that may have threads, so they make only system
// calls.

void cut_torn_line(const char* path) noexcept {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  auto end = lseek(file, 0, SEEK_END);
  char block[4096];
  while (end > 0) {
    const auto begin = std::max<off_t>(end - static_cast<off_t>(sizeof block), 0);
    const auto size = pread(file, block, static_cast<std::size_t>(end - begin), begin);
    if (size != end - begin) break;
    auto whole = size;
    while (whole > 0 && block[whole - 1] != '\n') --whole;
    end = begin + whole;
    if (whole > 0) {
      if (ftruncate(file, end) != 0) break;
      break;
    }
  }
  close(file);
}

[[noreturn]] void watch(int alive, const std::vector<std::string>& paths) noexcept {
  setsid();
  if (alive != 0) dup2(alive, 0);
  close_range(1, ~0u, 0);
  char done = 0;
  ssize_t got = 0;
  do {
    got = read(0, &done, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 0) {
    for (const auto& path : paths) cut_torn_line(path.c_str());
  }
  _exit(0);
}

}  // namespace

WholeLines::WholeLines(const std::vector<std::string>& paths) {
  int ends[2];
  if (paths.empty() || pipe2(ends, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    watch(ends[0], paths);
  }
  close(ends[0]);
  alive_ = ends[1];
}

WholeLines::~WholeLines() {
  if (alive_ < 0) return;
  const char done = 1;
  // If the second process is gone already, the write fails, and SIGPIPE must not end this one.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  const auto told = write(alive_, &done, 1);
  sigaction(SIGPIPE, &before, nullptr);
  close(alive_);
  if (told == 1) waitpid(pid_, nullptr, 0);
}

}  // namespace emm::log
