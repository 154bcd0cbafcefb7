#include "standin/libraries/nccl/watch.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "standin/launched.hpp"
#include "standin/libraries/nccl/absent.hpp"
#include "standin/libraries/nccl/communicator.hpp"
#include "standin/process_report.hpp"

namespace emm::standin::nccl {
namespace {

constexpr int kEntries = 8;  // threads of a process that wait at the same time; more are not seen
constexpr std::uint32_t kVersion = 2;  // of the page's layout: pages of another emmctl are left out

struct Entry {
  std::atomic<std::uint32_t> is_used{0};
  std::uint32_t is_entry = 0;
  std::int32_t shown = 0;
  char what[256] = {};
  std::atomic<std::uint32_t> has_missing{0};
  char missing[128] = {};
};
/// A file that is new is all zero, which is how each member begins.
struct Page {
  std::atomic<std::uint32_t> version{0};
  std::atomic<std::uint32_t> is_ended{0};
  std::atomic<std::uint32_t> is_followed{0};  // it looks for itself, too
  std::atomic<std::uint32_t> is_member{0};    // of a communicator
  ProcessName process;
  std::atomic<std::uint64_t> steps{0};
  std::int32_t shown = 0;
  // When somebody asked last where Python is, and which question was answered: with the line, and
  // with the call of PyTorch's that waits for other ranks, if it is in one.
  std::atomic<std::int64_t> asked_ms{0}, answered_ms{0};
  char line[256] = {};
  char call[128] = {};
  Entry entries[kEntries];
};

/// Times of all processes of a machine.
std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

Page* map_page(const std::string& path, bool makes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (makes ? O_CREAT : 0), 0666);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  const bool is_there = makes ? posix_fallocate(file, 0, sizeof(Page)) == 0
                              : lseek(file, 0, SEEK_END) >= static_cast<off_t>(sizeof(Page));
  if (is_there) memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory != MAP_FAILED ? static_cast<Page*>(memory) : nullptr;
}

/// Null where there is no room for it: then nobody is told of this process.
Page* own_page() {
  static Page* const page = [] {
    auto* const made = map_page(program_folder() + "/waits." + std::to_string(getpid()), true);
    if (made == nullptr) return made;
    made->process = this_process();
    made->version.store(kVersion, std::memory_order_release);
    return made;
  }();
  return page;
}

/// How long no rank may go on, in milliseconds; tests set another one.
std::int64_t patience_ms() {
  static const std::int64_t found = [] {
    // Longer than a step or a compilation leaves all ranks still.
    constexpr double kSeconds = 60;
    const char* const given = std::getenv("EMM_STANDIN_STUCK");
    return static_cast<std::int64_t>(1000 * (given != nullptr ? std::atof(given) : kSeconds));
  }();
  return found;
}
/// Where a rank waits in nothing of NCCL's, or may not have started, it may work without the
/// device.
/// PyTorch's own watchdog takes ten minutes.
constexpr std::int64_t kLonger = 10;

/// How many processes of the program are ranks on this machine.
int started_ranks() {
  static const int found = running_ranks() != 0 ? running_ranks() : launched().ranks;
  return found;
}

/// The head of a process's report, and the kernels that it launched.
bool report_of(const std::string& path, ProcessReport& report) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto got = ::read(file, &report, offsetof(ProcessReport, device));
  ::close(file);
  return got > 0 && report.version == ProcessReport::kVersion;
}
std::uint64_t kernels_of(const std::string& path) {
  ProcessReport report;
  return report_of(path, report) ? report.kernels : 0;
}

/// Hundredths of a second that the process has computed, and what it has read and written.
struct Effort {
  std::uint64_t ticks = 0, bytes = 0;
};
Effort effort_of(int process) {
  Effort effort;
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  if (auto* const file = std::fopen(path, "re")) {
    const auto got = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    text[got] = '\0';
    unsigned long long user = 0, system = 0;
    const char* const at = std::strrchr(text, ')');
    if (at != nullptr &&
        std::sscanf(at + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &user,
                    &system) == 2)
      effort.ticks = user + system;
  }
  std::snprintf(path, sizeof path, "/proc/%d/io", process);
  if (auto* const file = std::fopen(path, "re")) {
    unsigned long long read = 0, written = 0;
    if (std::fscanf(file, "rchar: %llu wchar: %llu", &read, &written) == 2)
      effort.bytes = read + written;
    std::fclose(file);
  }
  return effort;
}

struct Waiter {
  Page* page = nullptr;
  bool waits = false, enters = false;

  /// It has said where it is since then.
  bool has_answered(std::int64_t since_ms) const {
    return page->answered_ms.load(std::memory_order_acquire) >= since_ms;
  }
  /// It waits for other ranks, be it in nothing of NCCL's.
  bool stands(std::int64_t since_ms) const {
    return waits || (has_answered(since_ms) && page->call[0] != '\0');
  }
  /// It was asked and says nothing, though Python is there: a call holds Python's lock.
  bool is_mute(std::int64_t since_ms) const {
    return !has_answered(since_ms) && page->is_followed.load() != 0;
  }
};

void ask(const std::vector<Waiter>& all) {
  for (const auto& one : all) one.page->asked_ms.store(now_ms(), std::memory_order_release);
}

/// What a look at all processes gave, and since when nothing has changed.
class Watch {
 public:
  void look();

 private:
  bool has_changed(const std::vector<Waiter>& all);
  void end(const std::vector<Waiter>& all, std::int64_t quiet_ms);
  std::vector<Waiter> waiters();

  std::mutex mutex_;
  std::map<std::string, Page*> pages_;
  std::int64_t last_look_ms_ = 0, quiet_since_ms_ = 0;
  std::uint64_t steps_ = 0;
  int gone_ = 0;  // ranks that have ended
  std::map<int, Effort> efforts_;
};

/// All processes of the program that are alive and were ranks.
std::vector<Waiter> Watch::waiters() {
  std::vector<Waiter> found;
  std::uint64_t steps = 0;
  std::set<int> gone;
  DIR* const folder = opendir(program_folder().c_str());
  if (folder == nullptr) return found;
  while (const auto* entry = readdir(folder)) {
    const std::string name = entry->d_name, path = program_folder() + "/" + name;
    if (name.starts_with("process.")) steps += kernels_of(path);
    if (!name.starts_with("waits.")) continue;
    auto& page = pages_[name];
    if (page == nullptr) page = map_page(path, false);
    if (page == nullptr || page->version.load(std::memory_order_acquire) != kVersion) continue;
    steps += page->steps.load(std::memory_order_relaxed);
    if (!is_alive(page->process)) {
      gone.insert(page->shown);
      continue;
    }
    Waiter one{.page = page};
    for (const auto& wait : page->entries) {
      if (wait.is_used.load(std::memory_order_acquire) != 1) continue;
      one.waits = true;
      one.enters = one.enters || wait.is_entry != 0;
    }
    found.push_back(one);
  }
  closedir(folder);
  if (steps != steps_) quiet_since_ms_ = now_ms();
  steps_ = steps;
  for (const auto& one : found) gone.erase(one.page->shown);
  gone_ = static_cast<int>(gone.size());
  // A rank's own processes, such as those that load its data, have its variables, and came later.
  const auto all = found;
  std::erase_if(found, [&](const Waiter& one) {
    return one.page->is_member.load() == 0 &&
           std::any_of(all.begin(), all.end(), [&](const Waiter& other) {
             return other.page != one.page && other.page->shown == one.page->shown &&
                    (other.page->is_member.load() != 0 ||
                     other.page->process.began < one.page->process.began);
           });
  });
  return found;
}

/// Has a process done something that need not be NCCL's?
bool Watch::has_changed(const std::vector<Waiter>& all) {
  const auto elapsed_ms = static_cast<std::uint64_t>(now_ms() - last_look_ms_);
  bool changed = false;
  for (const auto& one : all) {
    const auto now = effort_of(one.page->process.number);
    auto& before = efforts_[one.page->process.number];
    // A tenth of the time; one that waits polls a little.
    const bool computes = (now.ticks - before.ticks) * 10 * 10 > elapsed_ms;
    constexpr std::uint64_t kPiece = 64 << 10;  // bytes read or written; polling does less
    const bool moves = now.bytes - before.bytes > kPiece;
    changed = changed || computes || moves;
    before = now;
  }
  return changed;
}

void Watch::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const auto now = now_ms();
  constexpr std::int64_t kEachMs = 1000;  // reading /proc of each rank is not free
  const auto every = std::min(kEachMs, patience_ms() / 4);
  if (now - last_look_ms_ < every) return;
  const bool is_first = last_look_ms_ == 0 || now - last_look_ms_ > 10 * kEachMs;
  const auto all = waiters();
  const bool works = has_changed(all);
  last_look_ms_ = now;
  const bool all_wait = std::all_of(all.begin(), all.end(),
                                    [](const Waiter& one) { return one.waits && !one.enters; });
  // All may wait while one of them computes what it will bring later; not for long.
  if (is_first || (works && !all_wait)) quiet_since_ms_ = now;
  const auto quiet_ms = now - quiet_since_ms_;
  // A rank that waits in nothing of NCCL's may wait for others all the same, which it says then.
  const bool is_complete = static_cast<int>(all.size()) >= started_ranks() - gone_;
  const auto half_ms = patience_ms() / 2;
  const bool all_stand =
      is_complete && std::all_of(all.begin(), all.end(), [&](const Waiter& one) {
        const auto since_ms = quiet_since_ms_ + half_ms;
        return one.stands(since_ms) || (quiet_ms >= 4 * half_ms && one.is_mute(since_ms));
      });
  if (quiet_ms >= half_ms && is_complete) ask(all);
  const bool any_waits =
      std::any_of(all.begin(), all.end(), [](const Waiter& one) { return one.waits; });
  const auto most = patience_ms() * ((all_wait || all_stand) && !works ? 1 : kLonger);
  if ((any_waits || all_stand) && quiet_ms >= most) end(all, quiet_ms);
}

void Watch::end(const std::vector<Waiter>& all, std::int64_t quiet_ms) {
  const auto path = program_folder() + "/ranks.stuck";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return;  // another rank does it
  // Python says where it is, if its lock is free.
  const auto asked_ms = now_ms();
  ask(all);
  constexpr int kTimes = 40;  // naps of 50 ms: two seconds
  const auto has_line = [&](const Waiter& one) { return one.has_answered(asked_ms); };
  for (int i = 0; i < kTimes && !std::all_of(all.begin(), all.end(), has_line); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::string text = "quiet\t" + std::to_string(quiet_ms / 1000) + '\n';
  for (const auto& one : all) {
    const auto& page = *one.page;
    const bool is_known = has_line(one);
    const auto add = [&](std::int32_t rank, const char* what, const char* missing) {
      for (const auto& field :
           {std::string("rank"), std::to_string(rank), std::to_string(page.process.number),
            std::string(what), std::string(missing)})
        text += field + '\t';
      text += std::string(is_known ? page.line : "") + '\n';
    };
    bool is_named = false;
    for (const auto& wait : page.entries) {
      if (wait.is_used.load(std::memory_order_acquire) != 1) continue;
      const bool has_missing = wait.has_missing.load(std::memory_order_acquire) != 0;
      add(wait.shown, wait.what, has_missing ? wait.missing : "");
      is_named = true;
    }
    const auto* const otherwise = one.is_mute(asked_ms) ? "a call that holds Python's lock" : "";
    if (!is_named) add(page.shown, is_known ? page.call : otherwise, "");
  }
  (void)!::write(file, text.data(), text.size());
  ::close(file);
  for (const auto& one : all) {
    one.page->is_ended.store(1, std::memory_order_release);
    if (!one.waits && one.page->is_followed.load() == 0) kill(one.page->process.number, SIGTERM);
  }
}

Watch& watch() {
  static auto& made = *new Watch;
  return made;
}

std::atomic<bool> is_in_communicator{false};

constexpr int kInconclusive = 3;  // ExitCode::inconclusive
bool is_ended() {
  const auto* const page = own_page();
  return page != nullptr && page->is_ended.load(std::memory_order_acquire) != 0;
}
[[noreturn]] void leave() {
  std::fflush(nullptr);
  _exit(kInconclusive);
}

/// Looks while the process lives, whatever its threads wait in.
void keep_looking() {
  for (;;) {
    // Half of what look() leaves between two looks.
    constexpr auto kEach = std::chrono::milliseconds(500);
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(
        kEach, std::chrono::milliseconds(patience_ms() / 4 + 1)));
    watch().look();
    if (!is_ended()) continue;
    // A thread that waits ends the process with what is in its files; one may hold their locks.
    constexpr auto kGrace = std::chrono::seconds(1);
    std::this_thread::sleep_for(kGrace);
    _exit(kInconclusive);
  }
}

}  // namespace

Waiting::Waiting(const std::string& in_what, int shown, bool is_entry) : entry_(-1) {
  auto* const page = own_page();
  if (page == nullptr) return;
  for (int i = 0; i < kEntries; ++i) {
    auto& entry = page->entries[i];
    std::uint32_t free = 0;
    if (!entry.is_used.compare_exchange_strong(free, 2)) continue;
    entry.is_entry = is_entry ? 1 : 0;
    entry.shown = shown;
    entry.has_missing.store(0, std::memory_order_relaxed);
    entry.missing[0] = '\0';
    std::snprintf(entry.what, sizeof entry.what, "%s", in_what.c_str());
    entry.is_used.store(1, std::memory_order_release);
    entry_ = i;
    return;
  }
}

Waiting::~Waiting() {
  if (entry_ >= 0) own_page()->entries[entry_].is_used.store(0, std::memory_order_release);
}

void Waiting::look(const std::function<std::string()>& missing) {
  if (auto* const own = own_page(); own != nullptr && entry_ >= 0) {
    auto& entry = own->entries[entry_];
    const auto words = missing();
    if (words != entry.missing) {
      entry.has_missing.store(0, std::memory_order_release);
      std::snprintf(entry.missing, sizeof entry.missing, "%s", words.c_str());
      entry.has_missing.store(1, std::memory_order_release);
    }
  }
  watch().look();
  if (is_ended()) leave();
}

std::int64_t patience_with_ended_ms() { return patience_ms() / 2; }

std::map<int, int> ended_ranks() {
  std::map<int, int> ended;
  std::set<int> alive;
  const auto add = [&](const ProcessName& process, int rank) {
    if (is_alive(process)) {
      alive.insert(rank);
    } else {
      ended[rank] = process.number;
    }
  };
  DIR* const folder = opendir(program_folder().c_str());
  if (folder == nullptr) return ended;
  while (const auto* entry = readdir(folder)) {
    const std::string name = entry->d_name, path = program_folder() + "/" + name;
    if (name.starts_with("waits.")) {
      auto* const page = map_page(path, false);
      if (page == nullptr) continue;
      const bool is_rank = page->version.load(std::memory_order_acquire) == kVersion &&
                           (page->is_followed.load() != 0 || page->is_member.load() != 0);
      if (is_rank) add(page->process, page->shown);
      munmap(page, sizeof(Page));
    } else if (name.starts_with("process.")) {
      ProcessReport report;
      const auto process = report_of(path, report) ? static_cast<int>(report.process) : 0;
      if (process != 0 && report.ranks > 1)
        add({process, began_of(process)}, static_cast<int>(report.rank));
    }
  }
  closedir(folder);
  for (const int rank : alive) ended.erase(rank);
  return ended;
}

void went_on() noexcept {
  if (auto* const page = own_page()) page->steps.fetch_add(1, std::memory_order_relaxed);
}

void is_rank(int shown) noexcept {
  is_in_communicator = true;
  if (auto* const page = own_page()) page->is_member.store(1);
  if (auto* const page = own_page()) page->shown = shown;
}

}  // namespace emm::standin::nccl

#pragma GCC visibility push(default)
extern "C" {

// What emmctl's Python package calls. From the first on, this process is looked after also where it
// waits in nothing of NCCL's; 0 where no launcher has made it a rank of several, and it is in no
// communicator yet. The second returns when somebody asks where the program is, and the third
// answers: with the line, and the call of PyTorch's that waits for other ranks.
int emm_standin_follow_rank() {
  using namespace emm::standin;
  static std::atomic<bool> is_followed{false};
  const auto rank = launched();
  if (rank.ranks < 2 && !nccl::is_in_communicator) return 0;
  if (nccl::program_folder().empty() || is_followed.exchange(true)) return 1;
  auto* const page = nccl::own_page();
  if (page == nullptr) return 0;
  if (rank.rank >= 0) page->shown = rank.rank;
  page->is_followed.store(1);
  nccl::on_own_thread(nccl::keep_looking);
  return 1;
}
void emm_standin_wait_for_question() {
  const auto* const page = emm::standin::nccl::own_page();
  while (page == nullptr || page->asked_ms.load(std::memory_order_acquire) <=
                                page->answered_ms.load(std::memory_order_relaxed))
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}
void emm_standin_answer_where(const char* line, const char* call) {
  auto* const page = emm::standin::nccl::own_page();
  if (page == nullptr) return;
  const auto question = page->asked_ms.load(std::memory_order_acquire);
  std::snprintf(page->line, sizeof page->line, "%s", line);
  std::snprintf(page->call, sizeof page->call, "%s", call);
  page->answered_ms.store(question, std::memory_order_release);
}

}  // extern "C"
#pragma GCC visibility pop
