#include "base/run_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/text.hpp"

namespace emm::run_files {
namespace {

constexpr std::string_view kStdout = "-";  ///< The place of standard output; no path equals it.

struct File {
  std::string place{};  ///< The path without links, also of a file that does not exist yet.
  dev_t device = 0;
  ino_t inode = 0;
  bool there = false;
  bool shared = false;  ///< A device, which any number of users may share.
};

struct NamedFile {
  std::string who{}, path{};
  File file{};
  bool output = false, open = false, written = false, told = false;
  bool folder = false, owns_all = false;
};

/// The first failed write, in memory that forked children share.
struct Failure {
  std::atomic<int> state{0};  ///< 0 for none, 1 while it is written, 2 when it is complete.
  std::array<char, 4000> words{};
};

struct RunFiles {
  std::vector<NamedFile> entries;
  Failure* failure = nullptr;
};

// Never destroyed, because files may be closed while the process exits.
std::mutex& mutex = *new std::mutex;
std::optional<RunFiles>& run = *new std::optional<RunFiles>;
std::atomic<Failure*> failure{nullptr};  // equals run->failure; read without the lock

std::string real_path(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  std::string place(real != nullptr ? real : "");
  free(real);
  return place;
}

/// The path at which opening `path` would create a file. Follows links, also dangling ones.
std::string place_of_new(std::string path) {
  constexpr int kLinksMost = 40;  // as many as Linux follows
  for (int links = 0; links < kLinksMost; ++links) {
    std::array<char, PATH_MAX> target;
    const auto size = readlink(path.c_str(), target.data(), target.size());
    if (size < 0) break;
    const std::string_view to(target.data(), static_cast<std::size_t>(size));
    path = to.starts_with('/') ? std::string(to)
                               : path.substr(0, path.rfind('/') + 1) + std::string(to);
  }
  const auto name = path.rfind('/') + 1;  // without a slash: npos + 1 is 0
  const auto folder = real_path(name == 0 ? "." : path.substr(0, name));
  return folder.empty() ? path : folder + (folder == "/" ? "" : "/") + path.substr(name);
}

void take(File& file, const struct stat& status) {
  file.there = true;
  file.device = status.st_dev;
  file.inode = status.st_ino;
  file.shared = !S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode);
}

File file_of(const std::string& path) {
  File file;
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    take(file, status);
    file.place = real_path(path);
  } else {
    file.place = place_of_new(path);
  }
  return file;
}

File file_of(int descriptor) {
  File file;
  struct stat status {};
  file.shared = true;
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) take(file, status);
  return file;
}

bool same(const NamedFile& entry, const File& file) {
  if (!file.place.empty() && file.place == entry.file.place) return true;
  if (entry.owns_all && file.place.starts_with(entry.file.place + "/")) return true;
  if (entry.folder || !file.there) return false;
  // The output may have been created since. Or a new file has replaced it, and its old inode may
  // now be another file's.
  struct stat now {};
  if (entry.output && !entry.file.place.empty()) {
    return stat(entry.file.place.c_str(), &now) == 0 && now.st_dev == file.device &&
           now.st_ino == file.inode;
  }
  return entry.file.there && entry.file.device == file.device && entry.file.inode == file.inode;
}

std::string shown(std::string_view who, std::string_view path) {
  if (path.empty()) return std::string(who);
  return who.empty() ? std::string(path) : text::format("{} {}", who, path);
}

Error conflict(const NamedFile& entry, std::string_view who, const std::string& path) {
  if (entry.file.place == kStdout) {
    return fail(Errc::usage, "{} and {} cannot both go to standard output", entry.who,
                who.empty() ? std::string_view(path) : who);
  }
  if (entry.owns_all) {
    return fail(Errc::usage,
                "{} is a folder that this run fills, and {} lies in it: expected a file elsewhere",
                shown(entry.who, entry.path), shown(who, path));
  }
  return fail(Errc::usage, "{} and {} are one file: expected an output of its own",
              shown(entry.who, entry.path), shown(who, path));
}

File output_at(const std::string& path) {
  const auto descriptor = descriptor_named(path);
  if (path != kStdout && descriptor != STDOUT_FILENO) {
    if (descriptor == STDERR_FILENO) return File{.shared = true};
    return file_of(path);
  }
  return File{.place = std::string(kStdout)};
}

/// The entry of an output; null if it is shared.
Result<NamedFile*> output(const std::string& path, std::string_view who) {
  auto file = output_at(path);
  if (file.shared) return nullptr;
  NamedFile* mine = nullptr;
  for (auto& entry : run->entries) {
    if (!same(entry, file)) continue;
    if (entry.folder && entry.who == who && entry.path != path)
      continue;  // a file of its own in it
    const bool is_mine =
        entry.output && !entry.open && (who.empty() ? entry.path == path : entry.who == who);
    if (!is_mine) return conflict(entry, who, path);
    mine = &entry;
  }
  if (mine == nullptr) {
    EMM_ASSERT(!who.empty());
    run->entries.push_back(
        {.who = std::string(who), .path = path, .file = std::move(file), .output = true});
    mine = &run->entries.back();
  }
  return mine;
}

}  // namespace

void begin() {
  end();
  const std::lock_guard lock(mutex);
  run.emplace();
  void* const page =
      mmap(nullptr, sizeof(Failure), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    run->failure = new (page) Failure;
    failure.store(run->failure);
  }
  run->entries.push_back({.who = "the program", .path = {}, .file = file_of("/proc/self/exe")});
  for (const auto& [descriptor, who] :
       {std::pair(STDOUT_FILENO, "standard output"), {STDERR_FILENO, "standard error"}}) {
    auto file = file_of(descriptor);
    if (file.shared) continue;
    run->entries.push_back(
        {.who = who, .path = {}, .file = std::move(file), .output = true, .open = true});
  }
}

void end() {
  const std::lock_guard lock(mutex);
  failure.store(nullptr);
  if (run && run->failure != nullptr) munmap(run->failure, sizeof(Failure));
  run.reset();
}

Status reads(const std::string& path, std::string_view who) {
  const std::lock_guard lock(mutex);
  if (!run) return {};
  auto file = path == "-" ? file_of(STDIN_FILENO) : file_of(path);
  if (file.shared) return {};
  for (const auto& entry : run->entries) {
    if (!same(entry, file)) continue;
    if (!entry.output) return {};
    return conflict(entry, who, path);
  }
  run->entries.push_back({.who = std::string(who), .path = path, .file = std::move(file)});
  return {};
}

void belongs_to_program(const std::string& path, std::string_view who) {
  const std::lock_guard lock(mutex);
  if (!run) return;
  auto file = file_of(path);
  if (file.shared) return;
  run->entries.push_back({.who = std::string(who), .path = path, .file = std::move(file)});
}

Status reserve_folder(const std::string& path, std::string_view who, bool owns_all) {
  const std::lock_guard lock(mutex);
  if (!run) return {};
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    return fail(Errc::usage, "{} {} is a file: expected a folder", who, path);
  File file{.place = place_of_new(path)};
  if (auto there = real_path(path); !there.empty()) file.place = std::move(there);
  for (const auto& entry : run->entries) {
    const bool inside = owns_all && entry.file.place.starts_with(file.place + "/");
    if (entry.who != who && (inside || entry.file.place == file.place)) {
      return conflict({.who = std::string(who), .path = path, .file = file, .owns_all = inside},
                      entry.who, entry.path);
    }
  }
  run->entries.push_back({.who = std::string(who),
                          .path = path,
                          .file = std::move(file),
                          .output = true,
                          .folder = true,
                          .owns_all = owns_all});
  return {};
}

Status reserve(const std::string& path, std::string_view who) {
  const std::lock_guard lock(mutex);
  if (!run) return {};
  if (auto entry = output(path, who); !entry) return std::move(entry).error();
  return {};
}

Result<Output> writes(const std::string& path, std::string_view who) {
  const std::lock_guard lock(mutex);
  if (!run) return Output();
  auto entry = output(path, who);
  if (!entry) return std::move(entry).error();
  if (*entry == nullptr) return Output();
  (*entry)->open = (*entry)->written = true;
  return Output(static_cast<std::size_t>(*entry - run->entries.data()));
}

Output::~Output() {
  if (!number_) return;
  const std::lock_guard lock(mutex);
  if (run && *number_ < run->entries.size()) run->entries[*number_].open = false;
}

std::vector<std::string> written() {
  std::vector<std::string> paths;
  const std::lock_guard lock(mutex);
  if (!run) return paths;
  const auto in_folder = [](const NamedFile& file) {
    return std::any_of(run->entries.begin(), run->entries.end(), [&](const NamedFile& entry) {
      return entry.folder && file.file.place.starts_with(entry.file.place + "/");
    });
  };
  struct stat status {};
  for (const auto& entry : run->entries) {
    if (!entry.written || entry.told || in_folder(entry)) continue;
    if (stat(entry.file.place.c_str(), &status) == 0 && S_ISREG(status.st_mode))
      paths.push_back(entry.path);
  }
  return paths;
}

void note_told(const std::string& path) {
  const std::lock_guard lock(mutex);
  if (!run) return;
  for (auto& entry : run->entries) entry.told |= entry.output && entry.path == path;
}

std::optional<int> descriptor_named(const std::string& path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const auto number = text::to_u64(std::string_view(path).substr(folder.size()));
    if (number && *number <= INT_MAX) return static_cast<int>(*number);
  }
  return std::nullopt;
}

void note_write_error(const Error& error) noexcept {
  auto* const kept = failure.load();
  if (kept == nullptr) return;
  int none = 0;
  if (!kept->state.compare_exchange_strong(none, 1)) return;
  const auto size = error.message.copy(kept->words.data(), kept->words.size() - 1);
  kept->words[size] = '\0';
  kept->state.store(2);
}

std::optional<Error> write_error() {
  const auto* const kept = failure.load();
  if (kept == nullptr || kept->state.load() != 2) return std::nullopt;
  return Error{.code = Errc::io_error, .message = kept->words.data()};
}

void forget_write_error() noexcept {
  if (auto* const kept = failure.load(); kept != nullptr) kept->state.store(0);
}

}  // namespace emm::run_files
