#include "standin/libraries/nccl/meeting.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "standin/launched.hpp"
#include "standin/libraries/nccl/absent.hpp"
#include "standin/libraries/nccl/reduce.hpp"
#include "standin/libraries/nccl/watch.hpp"
#include "standin/process_report.hpp"

namespace emm::standin::nccl {
namespace {

enum State : std::uint32_t { absent, coming, here, left, aborted };

/// How often a wait looks whether the others are alive.
constexpr auto kLook = std::chrono::milliseconds(200);

std::string numbered(const char* format, long long first, long long second = 0) {
  char text[256];
  std::snprintf(text, sizeof text, format, first, second);
  return text;
}

/// The state and the start time in /proc/NUMBER/stat.
bool read_stat(int process, char& state, std::uint64_t& began) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto got = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');  // the name before it may hold anything
  if (at == nullptr) return false;
  unsigned long long start = 0;
  constexpr const char* kFields =
      " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu";
  if (std::sscanf(at + 1, kFields, &state, &start) != 2) return false;
  began = start;
  return true;
}

constexpr std::size_t kPageBytes = 4096;  // shared memory is mapped in whole pages
std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

const char* name_of(Kind kind) noexcept {
  constexpr const char* kNames[] = {
      "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather",
      "Scatter",   "Send",      "Recv",   "CommSplit", "CommShrink",    ""};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string words_of(const CollectiveCall& part) {
  std::string words = name_of(part.kind);
  if (part.kind == Kind::split || part.kind == Kind::shrink) return words;
  words += numbered(" of %lld ", static_cast<long long>(part.count)) + name_of_type(part.type);
  constexpr const char* kOperations[] = {"sum", "prod", "max", "min", "avg"};
  const bool reduces = part.kind == Kind::all_reduce || part.kind == Kind::reduce ||
                       part.kind == Kind::reduce_scatter;
  if (reduces && part.operation < operation_count)
    words += std::string(", ") + kOperations[part.operation];
  const bool has_root = part.kind == Kind::broadcast || part.kind == Kind::reduce ||
                        part.kind == Kind::gather || part.kind == Kind::scatter;
  if (has_root) words += numbered(", root %lld", part.root);
  return words;
}

ProcessName this_process() {
  char state = 0;
  ProcessName name{.number = getpid(), .began = 0};
  (void)read_stat(name.number, state, name.began);
  return name;
}

bool is_alive(const ProcessName& process) {
  if (process.number == getpid()) return true;
  char state = 0;
  std::uint64_t began = 0;
  if (!read_stat(process.number, state, began)) return kill(process.number, 0) == 0;
  return began == process.began && state != 'Z' && state != 'X';
}

std::uint64_t began_of(int process) {
  char state = 0;
  std::uint64_t began = 0;
  return read_stat(process, state, began) && state != 'Z' && state != 'X' ? began : 0;
}

const std::string& program_folder() {
  static const auto& folder = *new std::string([] {
    const char* const named = std::getenv(kProgramFolder);
    return named != nullptr ? named : "";
  }());
  return folder;
}

struct Meeting::Cell {
  struct Post {
    std::atomic<std::uint64_t> number{0};
    CollectiveCall part;
  };
  std::atomic<std::uint32_t> state{absent};
  std::int32_t shown = 0;
  ProcessName process;
  Post posts[2][2];  // of each sort two, which take turns
};

struct Meeting::Page {
  std::atomic<std::uint32_t> bell{0};
  std::atomic<std::int32_t> size{0};
};

namespace {
constexpr std::size_t kHead = 64;  // bytes of a Page before its cells: a cache line
}

Meeting::Cell& Meeting::cell(int rank) const noexcept {
  static_assert(sizeof(Page) <= kHead && std::atomic<std::uint64_t>::is_always_lock_free);
  return reinterpret_cast<Cell*>(memory_ + kHead)[rank];
}

std::byte* Meeting::slot(std::uint64_t number, int rank) const noexcept {
  const auto cells = whole_pages(kHead + sizeof(Cell) * static_cast<std::size_t>(size_));
  return memory_ + cells + (static_cast<std::size_t>(rank) * 2 + number % 2) * kMostExchanged;
}

std::unique_ptr<Meeting> Meeting::enter(const std::string& name, int size, int rank, int shown,
                                        const std::vector<int>& members, Failure& why) {
  if (program_folder().empty()) {
    why = {kSystemError, "there is no folder for the ranks to meet in"};
    return nullptr;
  }
  std::unique_ptr<Meeting> made(new Meeting);
  made->name_ = name;
  made->path_ = program_folder() + "/" + name;
  made->size_ = size;
  made->rank_ = rank;
  made->members_ = members;
  for (const auto member : members) made->absent_.push_back(runs(member) ? 0 : 1);
  if (std::find(made->absent_.begin(), made->absent_.end(), 1) == made->absent_.end())
    made->absent_.clear();
  made->bytes_ = whole_pages(kHead + sizeof(Cell) * static_cast<std::size_t>(size)) +
                 static_cast<std::size_t>(size) * 2 * kMostExchanged;
  made->file_ = ::open(made->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  void* memory = MAP_FAILED;
  if (made->file_ >= 0) {
    const auto head = kHead + sizeof(Cell) * static_cast<std::size_t>(size);
    off_t now = lseek(made->file_, 0, SEEK_END);
    // All make it as large; a smaller one that names another size is not this one's to grow.
    if (now < static_cast<off_t>(made->bytes_) && now != 0) {
      why = {kInvalidArgument, "the ranks of a communicator name different numbers of ranks"};
      ::close(made->file_);
      return nullptr;
    }
    if ((now != 0 || ftruncate(made->file_, static_cast<off_t>(made->bytes_)) == 0) &&
        posix_fallocate(made->file_, 0, static_cast<off_t>(head)) == 0)
      memory = mmap(nullptr, made->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    made->file_, 0);
  }
  if (memory == MAP_FAILED) {
    why = {kSystemError, made->path_ + ": " + std::strerror(errno)};
    if (made->file_ >= 0) ::close(made->file_);
    return nullptr;
  }
  made->memory_ = static_cast<std::byte*>(memory);
  auto& page = *reinterpret_cast<Page*>(made->memory_);
  std::int32_t none = 0;
  if (!page.size.compare_exchange_strong(none, size) && none != size) {
    why = {kInvalidArgument,
           numbered("a communicator of %lld ranks got a rank that names %lld", none, size)};
    made->has_left_ = true;
    return nullptr;
  }
  auto& cell = made->cell(rank);
  std::uint32_t free = absent;
  if (!cell.state.compare_exchange_strong(free, coming)) {
    why = {kInvalidUsage, numbered("rank %lld of a communicator came twice", rank)};
    made->has_left_ = true;
    return nullptr;
  }
  cell.process = this_process();
  cell.shown = shown;
  cell.state.store(here, std::memory_order_release);
  made->ring();
  return made;
}

Meeting::~Meeting() {
  leave(false);
  munmap(memory_, bytes_);
  ::close(file_);
}

int Meeting::shown(int rank) const noexcept {
  if (is_absent(rank)) return members_[static_cast<std::size_t>(rank)];
  const auto& one = cell(rank);
  return one.state.load(std::memory_order_acquire) >= here ? one.shown : rank;
}

std::string Meeting::words_of_rank(int rank) const {
  if (is_absent(rank)) return numbered("rank %lld (which does not run)", shown(rank));
  return numbered("rank %lld (process %lld)", shown(rank), cell(rank).process.number);
}

std::string Meeting::words_of_all() const {
  return words_of_those([](int) { return true; });
}

std::string Meeting::words_of_those(const std::function<bool(int rank)>& are_meant) const {
  constexpr std::size_t kNamed = 8;  // ranks that a sentence still reads well with
  std::vector<int> meant;
  for (int rank = 0; rank < size_; ++rank) {
    if (are_meant(rank)) meant.push_back(shown(rank));
  }
  std::string words = meant.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < meant.size() && i < kNamed; ++i)
    words += numbered(i == 0 ? "%lld" : i + 1 == meant.size() ? " and %lld" : ", %lld", meant[i]);
  if (meant.size() > kNamed)
    words += numbered(" and %lld more", static_cast<long long>(meant.size() - kNamed));
  return words;
}

void Meeting::ring() noexcept {
  auto& bell = reinterpret_cast<Page*>(memory_)->bell;
  bell.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Meeting::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  ring();
}

void Meeting::leave(bool aborts) noexcept {
  if (has_left_) return;
  has_left_ = true;
  cell(rank_).state.store(aborts ? aborted : left, std::memory_order_release);
  bool is_last = true;
  for (int rank = 0; rank < size_; ++rank)
    is_last =
        is_last && (is_absent(rank) || cell(rank).state.load(std::memory_order_acquire) >= left);
  if (is_last) unlink(path_.c_str());
  ring();
}

std::optional<Failure> Meeting::absence(int rank, const std::string& in_what) const {
  if (is_absent(rank)) return std::nullopt;
  const auto& one = cell(rank);
  const auto state = one.state.load(std::memory_order_acquire);
  if (state < here) return std::nullopt;  // it may still come
  const char* how = nullptr;
  if (state == left) how = " has left the communicator";
  if (state == aborted) how = " has aborted the communicator";
  if (how == nullptr && !is_alive(one.process)) how = " has ended";
  if (how == nullptr) return std::nullopt;
  return Failure{kRemoteError, words_of_rank(rank) + how + ", and " + words_of_rank(rank_) +
                                   " waits for it in " + in_what + " of " + words_of_all()};
}

std::optional<Failure> Meeting::absence_before(const std::string& in_what) const {
  const bool is_whole = size_ == launched().ranks;
  if (members_.empty() && !is_whole) return std::nullopt;  // it is not known who they are
  const auto ended = ended_ranks();
  for (int rank = 0; rank < size_ && !ended.empty(); ++rank) {
    if (is_absent(rank) || cell(rank).state.load(std::memory_order_acquire) != absent) continue;
    const auto found =
        ended.find(members_.empty() ? rank : members_[static_cast<std::size_t>(rank)]);
    if (found == ended.end()) continue;
    return Failure{
        kRemoteError,
        numbered("rank %lld (process %lld) has ended, and ", found->first, found->second) +
            words_of_rank(rank_) + " waits for it in " + in_what + " of " + words_of_all()};
  }
  return std::nullopt;
}

std::optional<Failure> Meeting::wait(const std::function<bool()>& is_there,
                                     const std::function<bool(int rank)>& has_come,
                                     const std::string& in_what, bool is_entry) {
  std::optional<Waiting> waiting;
  auto& bell = reinterpret_cast<Page*>(memory_)->bell;
  auto missing_since = std::chrono::steady_clock::now();
  auto next_look = missing_since + kLook;
  for (;;) {
    const auto heard = bell.load(std::memory_order_acquire);
    if (is_there()) {
      went_on();
      return std::nullopt;
    }
    if (is_aborted()) return Failure{kInvalidUsage, "the communicator was aborted"};
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      next_look = now + kLook;
      for (int rank = 0; rank < size_; ++rank) {
        auto gone = has_come(rank) ? std::nullopt : absence(rank, in_what);
        // What it gave before it went counts.
        if (gone && !has_come(rank)) return gone;
      }
      auto gone = is_entry ? absence_before(in_what) : std::nullopt;
      if (!gone) missing_since = now;
      if (now - missing_since >= std::chrono::milliseconds(patience_with_ended_ms())) return gone;
      if (!waiting) waiting.emplace(in_what + " of " + words_of_all(), shown(rank_), is_entry);
      const auto missing = [&](int rank) { return !has_come(rank); };
      waiting->look([&] { return words_of_those(missing); });
    }
    // A lost wake-up, and an ended rank, are noticed after so long.
    constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 50'000'000};
    syscall(SYS_futex, &bell, FUTEX_WAIT, heard, &kNap, nullptr, 0);
  }
}

std::optional<Failure> Meeting::wait_for_all() {
  const auto has_come = [&](int rank) {
    return is_absent(rank) || cell(rank).state.load(std::memory_order_acquire) >= here;
  };
  int missing = 0;
  return wait(
      [&] {
        while (missing < size_ && has_come(missing)) ++missing;
        return missing == size_;
      },
      // One that came and ended does not wait for the others.
      [&](int rank) { return has_come(rank) && !absence(rank, ""); }, "CommInitRank", true);
}

void Meeting::give(Sort sort, std::uint64_t number, const CollectiveCall& part,
                   std::span<const std::byte> values) {
  auto& post = cell(rank_).posts[static_cast<int>(sort)][number % 2];
  post.part = part;
  post.part.content = 0;
  if (!values.empty()) {
    auto* const to = slot(number, rank_);
    auto& room = room_[number % 2];
    // A file system that is full must not end the process.
    if (room < values.size() &&
        posix_fallocate(file_, to - memory_, static_cast<off_t>(values.size())) == 0)
      room = values.size();
    if (room >= values.size()) {
      std::memcpy(to, values.data(), values.size());
      post.part.content = values.size();
    } else {
      post.part.level = kUnknown;
    }
  }
  post.number.store(number, std::memory_order_release);
  ring();
}

std::optional<Failure> Meeting::wait_for(Sort sort, std::uint64_t number) {
  const auto has_given = [&](int rank) {
    if (is_absent(rank)) return true;
    const auto& post = cell(rank).posts[static_cast<int>(sort)][number % 2];
    return post.number.load(std::memory_order_acquire) == number;
  };
  int missing = 0;
  return wait(
      [&] {
        while (missing < size_ && has_given(missing)) ++missing;
        return missing == size_;
      },
      has_given,
      words_of(part(sort, number, rank_)) +
          numbered(" (number %lld)", static_cast<long long>(number)));
}

const CollectiveCall& Meeting::part(Sort sort, std::uint64_t number, int rank) const noexcept {
  return cell(is_absent(rank) ? rank_ : rank).posts[static_cast<int>(sort)][number % 2].part;
}

std::span<const std::byte> Meeting::values(std::uint64_t number, int rank) const noexcept {
  return {slot(number, is_absent(rank) ? rank_ : rank),
          part(Sort::collective, number, rank).content};
}

}  // namespace emm::standin::nccl
