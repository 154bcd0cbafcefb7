#include "record/library/recorder.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "record/library/live.hpp"
#include "record/library/real.hpp"
#include "record/library/served.hpp"
#include "record/library/sites.hpp"

namespace emm::record {

constinit thread_local Thread self{};
constinit Shared shared;

namespace {

constexpr std::size_t kSpares = 4096;  // blocks that wait for a thread: 512 MiB of a file
constexpr std::size_t kRingMost = std::size_t{1} << 15;  // blocks: 4 GiB
constexpr std::size_t kRingMore = 4096;  // for threads that find all blocks of a ring in use

constexpr std::uint64_t kPlaces = std::uint64_t{1} << 21;  // 256 GiB of a file

/// Where each block is mapped, by its number in the file, counted from 0; 0: nowhere. No
/// std::atomic: clang would construct so many one by one as the program starts.
constinit std::uint64_t places[kPlaces];

enum State : int { kNone, kOpening, kOpen, kFailed };

/// What a forked child starts anew.
struct File {
  std::atomic<int> state{kNone};
  std::atomic<int> descriptor{-1};
  // Device and inode identify the file, whatever file the descriptor's number means now.
  dev_t device = 0;
  ino_t inode = 0;
  FileHeader* header = nullptr;
  std::atomic<std::uint64_t> taken{0};
  std::atomic<BlockHeader*> spares[kSpares]{};  // blocks of threads that have ended
  // All blocks of the file, when it may not grow further
  std::atomic<BlockHeader*>* ring = nullptr;
  std::uint64_t ring_blocks = 0;
  std::atomic<std::uint64_t> ring_more{0};  // blocks taken while all others were in use
  std::atomic<bool> adding_context{false};
};
constinit File file;
constexpr std::size_t kPathMost = 4096;  // PATH_MAX; what is longer is not recorded
constinit char folder[kPathMost - 64] = "";
constinit char file_path[kPathMost] = "";
constinit std::uint64_t blocks_most = 0;  // 0: no limit
constinit std::uint32_t always_on = 1;
constinit pthread_key_t thread_end;
constinit bool has_thread_end = false;
constinit std::atomic<std::uint32_t> window_begun{0}, window_described{0};
constinit Control* control_page = nullptr;  // null when this process cannot write to it
constinit const Control* control_seen = nullptr;
constinit std::atomic<bool> nobody_collects{false};
constinit std::uint64_t uncollected_blocks_most = kUncollectedBlocksMost;
constinit const char* defaults = nullptr;

void complain(const char* what, const char* path, int error) noexcept {
  char words[1024];
  const int size = std::snprintf(words, sizeof words, "emmctl record: %s %s: %s\n", what, path,
                                 error == 0 ? "not usable" : std::strerror(error));
  if (size > 0) {
    const auto shown = static_cast<std::size_t>(size) < sizeof words
                           ? static_cast<std::size_t>(size)
                           : sizeof words - 1;
    if (::write(STDERR_FILENO, words, shown) < 0) return;
  }
}

void copy_text(char* to, std::size_t room, const char* from) noexcept {
  std::size_t at = 0;
  for (; from[at] != '\0' && at + 1 < room; ++at) to[at] = from[at];
  to[at] = '\0';
}

std::size_t read_whole(const char* path, char* to, std::size_t room) noexcept {
  const int opened = ::open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return 0;
  std::size_t size = 0;
  while (size + 1 < room) {
    const auto got = ::read(opened, to + size, room - 1 - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(opened);
  to[size] = '\0';
  return size;
}

/// Makes sure that the file has room on the disk, because writing to a mapped page without room
/// ends the program with SIGBUS. Returns 0 or an errno.
int reserve(int descriptor, std::uint64_t offset, std::uint64_t size) noexcept {
  rlimit limit{};
  // Beyond this limit the system sends SIGXFSZ, which would end the program.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      offset + size > limit.rlim_cur)
    return EFBIG;
  // Zeros are written because fallocate() is not enough: the file system takes twice as long to
  // make a page writable when its disk block is only allocated.
  static char zeros[std::size_t{64} << 10];
  while (size != 0) {
    const auto part = size < sizeof zeros ? size : sizeof zeros;
    const auto wrote = ::pwrite(descriptor, zeros, part, static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    offset += static_cast<std::uint64_t>(wrote);
    size -= static_cast<std::uint64_t>(wrote);
  }
  return 0;
}

void add(std::uint64_t& number, std::uint64_t by) noexcept {
  std::atomic_ref<std::uint64_t>(number).fetch_add(by, std::memory_order_relaxed);
}

bool is_the_file(int descriptor) noexcept {
  struct stat about {};
  return descriptor >= 0 && fstat(descriptor, &about) == 0 && about.st_dev == file.device &&
         about.st_ino == file.inode;
}

/// Moves a descriptor to a high number. Programs count from 0 and might close or reuse a low one by
/// accident. A descriptor that the process's limit does not let move keeps its number.
int move_up(int descriptor) noexcept {
  constexpr int kHigh = 512;  // half of 1,024, to which many systems limit a process
  const int high = descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, kHigh);
  if (high < 0) return descriptor;
  ::close(descriptor);
  return high;
}

/// Returns the file's descriptor, or -1 when there is none. The program may have closed it, and its
/// number may now be another file's, which must not be written to. The file is then opened again.
int file_descriptor() noexcept {
  int known = file.descriptor.load(std::memory_order_acquire);
  if (is_the_file(known)) return known;
  const int again = move_up(::open(file_path, O_RDWR | O_CLOEXEC));
  if (again < 0) return -1;
  if (is_the_file(again) && file.descriptor.compare_exchange_strong(known, again)) return again;
  ::close(again);  // the name is now another file's, or another thread was faster
  known = file.descriptor.load(std::memory_order_acquire);
  return is_the_file(known) ? known : -1;
}

void note_clocks(FileHeader& header) noexcept {
  header.later_ticks = ticks();
  header.later_ns = clock_ns();
}

std::uint64_t number_of(const char* text) noexcept {
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
}

void describe_process(FileHeader& header) noexcept {
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.header_bytes = kHeaderBytes;
  header.block_bytes = kBlockBytes;
  header.record_bytes = sizeof(CallRecord);
  header.pid = static_cast<std::uint64_t>(getpid());
  header.parent = static_cast<std::uint64_t>(getppid());
  header.start_ticks = ticks();
  header.start_ns = clock_ns();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.start_realtime_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                             static_cast<std::uint64_t>(now.tv_nsec);
  read_whole("/proc/sys/kernel/random/boot_id", header.boot_id, sizeof header.boot_id);
  if (char* end = std::strchr(header.boot_id, '\n')) *end = '\0';
  const auto size = read_whole("/proc/self/cmdline", header.program, sizeof header.program);
  for (std::size_t i = 0; i + 1 < size; ++i) {
    if (header.program[i] == '\0') header.program[i] = ' ';
  }
  copy_text(header.driver, sizeof header.driver, real_path());
  header.run_capacity = number_of(setting("EMM_RUN_CAPACITY"));
  header.only_windows = (shared.mode & mode::keeping) != 0 ? 1 : 0;
}

/// Gives the file its final name. A program that calls exec keeps its process number, so the name
/// may be taken.
void name_file(const char* from) noexcept {
  char path[kPathMost];
  for (int again = 1; again < 1000; ++again) {
    if (again == 1) {
      std::snprintf(path, sizeof path, "%s/%d.emmraw", folder, static_cast<int>(getpid()));
    } else {
      std::snprintf(path, sizeof path, "%s/%d.%d.emmraw", folder, static_cast<int>(getpid()),
                    again);
    }
    bool named = renameat2(AT_FDCWD, from, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
    if (!named && errno == EEXIST) continue;
    // This file system does not know RENAME_NOREPLACE.
    named = named || (::access(path, F_OK) != 0 && std::rename(from, path) == 0);
    if (named) return copy_text(file_path, sizeof file_path, path);
  }
}

std::size_t ring_bytes() noexcept { return (blocks_most + kRingMore) * sizeof(void*); }

/// Opens this process's file. Other threads wait for the short time that this takes.
bool open_file() noexcept {
  int none = kNone;
  if (!file.state.compare_exchange_strong(none, kOpening)) {
    while (file.state.load(std::memory_order_acquire) == kOpening) sched_yield();
    return file.state.load(std::memory_order_acquire) == kOpen;
  }
  char path[kPathMost];
  int error = 0;
  // The file has a temporary name until its header is complete, so that every recording that a
  // reader finds can be read.
  std::snprintf(path, sizeof path, "%s/%d.new", folder, static_cast<int>(getpid()));
  int opened = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  error = errno;
  const bool created = opened >= 0;
  opened = move_up(opened);
  struct stat about {};
  if (opened >= 0 && fstat(opened, &about) == 0) {
    file.device = about.st_dev;
    file.inode = about.st_ino;
    file.descriptor = opened;
    error = reserve(opened, 0, kHeaderBytes);
    void* const mapped =
        error == 0 ? mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0)
                   : MAP_FAILED;
    if (mapped != MAP_FAILED) file.header = static_cast<FileHeader*>(mapped);
    if (error == 0 && mapped == MAP_FAILED) error = errno;
  }
  if (file.header != nullptr && blocks_most != 0) {
    void* const pointers =
        mmap(nullptr, ring_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointers != MAP_FAILED) {
      file.ring = static_cast<std::atomic<BlockHeader*>*>(pointers);
      file.ring_blocks = blocks_most;
    }
  }
  if (file.header == nullptr) {
    complain("the program runs without a recording, because of", path, error);
    if (created) ::unlink(path);
    if (const int useless = file.descriptor.exchange(-1); useless >= 0) ::close(useless);
    if (control_page != nullptr) add(control_page->failed, 1);
    file.state.store(kFailed, std::memory_order_release);
    return false;
  }
  describe_process(*file.header);
  name_file(path);
  file.state.store(kOpen, std::memory_order_release);
  return true;
}

bool open_if_needed() noexcept {
  const int state = file.state.load(std::memory_order_acquire);
  if (state == kOpen) return true;
  return state != kFailed && open_file();
}

/// Takes a block that an ended thread left.
BlockHeader* take_spare() noexcept {
  for (auto& spare : file.spares) {
    if (spare.load(std::memory_order_relaxed) == nullptr) continue;
    if (auto* const block = spare.exchange(nullptr, std::memory_order_acquire)) return block;
  }
  return nullptr;
}

/// Takes the oldest full block of a ring and empties it.
BlockHeader* take_oldest() noexcept {
  for (;;) {
    BlockHeader* oldest = nullptr;
    const auto more = file.ring_more.load(std::memory_order_relaxed);
    const auto blocks = file.ring_blocks + (more < kRingMore ? more : kRingMore);
    for (std::uint64_t at = 0; at < blocks; ++at) {
      auto* const block = file.ring[at].load(std::memory_order_acquire);
      if (block == nullptr || std::atomic_ref<std::uint64_t>(block->state).load() != 2) continue;
      if (oldest == nullptr || block->turn < oldest->turn) oldest = block;
    }
    if (oldest == nullptr) return nullptr;
    std::uint64_t full = 2;
    if (!std::atomic_ref<std::uint64_t>(oldest->state).compare_exchange_strong(full, 1)) continue;
    oldest->dropped += kBlockRecords;
    std::memset(static_cast<void*>(oldest + 1), 0, kBlockBytes - sizeof(BlockHeader));
    return oldest;
  }
}

/// Takes a block that `emmctl record` has made ready. Returns its number, counted from 1, or 0 when
/// none is ready.
std::uint64_t take_ready() noexcept {
  for (auto& place : file.header->ready) {
    const std::atomic_ref<std::uint64_t> ready(place);
    if (ready.load(std::memory_order_relaxed) == 0) continue;
    if (const auto number = ready.exchange(0, std::memory_order_acquire); number != 0)
      return number;
  }
  return 0;
}

/// Tells `emmctl record` that a block was taken, so that it makes another one ready.
void tell_taken() noexcept {
  if (control_page == nullptr) return;
  std::atomic_ref<std::uint32_t>(control_page->taken).fetch_add(1, std::memory_order_release);
  (void)syscall(SYS_futex, &control_page->taken, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

/// Returns block `number`, counted from 0, if it is mapped; else null.
void* mapped_block(std::uint64_t number) noexcept {
  return number < kPlaces ? reinterpret_cast<void*>(std::atomic_ref(places[number]).load())
                          : nullptr;
}

/// Maps block `number`, counted from 0. Returns MAP_FAILED when the system refuses.
void* map_block(int descriptor, std::uint64_t number) noexcept {
  void* const mapped = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            static_cast<off_t>(kHeaderBytes + number * kBlockBytes));
  if (mapped != MAP_FAILED && number < kPlaces)
    std::atomic_ref(places[number]).store(reinterpret_cast<std::uint64_t>(mapped));
  return mapped;
}

/// Gives a full block to `emmctl record`, which empties it. False when it has enough of them.
bool give_to_empty(std::uint64_t number) noexcept {
  for (auto& place : file.header->full) {
    const std::atomic_ref<std::uint64_t> full(place);
    std::uint64_t none = 0;
    if (full.load(std::memory_order_relaxed) == 0 &&
        full.compare_exchange_strong(none, number, std::memory_order_release))
      return true;
  }
  return false;
}

/// Called when no thread writes to the block any more. A block that will be emptied stays mapped,
/// and so does one of a ring. A program may have about 65,000 mappings, so others are unmapped.
void finish(BlockHeader* block) noexcept {
  const auto number = block->number - 1;
  std::atomic_ref<std::uint64_t>(block->state).store(2);
  if (file.ring_blocks != 0) return;
  if (number < kPlaces) {
    if (control_page != nullptr && give_to_empty(number + 1)) return;
    std::atomic_ref(places[number]).store(0);
  }
  (void)munmap(block, kBlockBytes);
}

/// Does `emmctl record` still run? The system drops its lock however it ends. Where that cannot be
/// found out, yes.
bool is_collected() noexcept {
  if (control_seen == nullptr || control_seen->locked == 0) return true;
  char path[kPathMost];
  std::snprintf(path, sizeof path, "%s/control", folder);
  const int control = ::open(path, O_RDONLY | O_CLOEXEC);
  if (control < 0) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool is_free = fcntl(control, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  ::close(control);
  return !is_free;
}

/// May the process write a further block? Once nobody collects, all processes share what is left.
/// A ring has a limit of its own. Every eighth block is soon enough to ask.
bool may_grow(std::uint64_t turn) noexcept {
  constexpr std::uint64_t kAsked = 8;  // a question is a system call, a block 2,047 records
  if (file.ring_blocks != 0) return true;
  if (!nobody_collects.load(std::memory_order_relaxed)) {
    if (turn % kAsked != 0 || is_collected()) return true;
    nobody_collects = true;
  }
  static constinit std::uint64_t own = 0;
  auto& taken = control_page != nullptr ? control_page->uncollected : own;
  return std::atomic_ref<std::uint64_t>(taken).fetch_add(1) < uncollected_blocks_most;
}

BlockHeader* new_block() noexcept {
  const auto turn = file.taken.fetch_add(1, std::memory_order_relaxed);
  if (!may_grow(turn)) {
    std::atomic_ref<int>(file.header->stopped).store(kNobodyCollects);
    return nullptr;
  }
  auto number = take_ready();
  const bool has_room = number != 0;
  if (!has_room) {
    const std::atomic_ref<std::uint64_t> numbered(file.header->numbered);
    number = numbered.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  --number;
  if (file.ring_blocks != 0 && number >= file.ring_blocks) {
    // Stacks are defined again after every eighth of the ring. So only the oldest eighth of the
    // calls that are kept can lack the definitions of their stacks.
    if (turn % (file.ring_blocks < 8 ? 1 : file.ring_blocks / 8) == 0) forget_sites();
    if (auto* const block = take_oldest(); block != nullptr) {
      block->turn = turn + 1;
      return block;
    }
    // Other threads write to all blocks of the ring. The newest calls are to be kept, so this
    // thread gets a further block.
    const auto more = file.ring_more.fetch_add(1, std::memory_order_relaxed);
    if (more >= kRingMore) return nullptr;
    number = file.ring_blocks + more;
  }
  void* mapped = mapped_block(number);
  if (mapped == nullptr) {
    const int descriptor = file_descriptor();
    const int error = descriptor < 0 ? EBADF
                      : has_room
                          ? 0
                          : reserve(descriptor, kHeaderBytes + number * kBlockBytes, kBlockBytes);
    mapped = error == 0 ? map_block(descriptor, number) : MAP_FAILED;
    if (mapped == MAP_FAILED) {
      file.header->stopped = error != 0 ? error : errno;
      return nullptr;
    }
#if defined(MADV_POPULATE_WRITE)
    // One call instead of a page fault for each page saves 20 ns a record. Older systems refuse it.
    (void)madvise(mapped, kBlockBytes, MADV_POPULATE_WRITE);
#endif
  }
  tell_taken();
  auto* const block = static_cast<BlockHeader*>(mapped);
  block->magic = kBlockMagic;
  block->number = number + 1;
  block->turn = turn + 1;
  std::atomic_ref<std::uint64_t>(block->state).store(1);
  if (file.ring_blocks != 0) file.ring[number].store(block, std::memory_order_release);
  return block;
}

BlockHeader* block_of(const Thread& thread) noexcept {
  return reinterpret_cast<BlockHeader*>(thread.end - kBlockRecords) - 1;
}

/// Leaves the ended thread's block to other threads.
void on_thread_end(void*) noexcept {
  const auto left = self;
  self = {};
  if (left.next == nullptr) return;
  auto* const block = block_of(left);
  if (left.next == left.end) return finish(block);
  block->used = static_cast<std::uint64_t>(left.next - (left.end - kBlockRecords));
  for (auto& spare : file.spares) {
    BlockHeader* none = nullptr;
    if (spare.load(std::memory_order_relaxed) == nullptr &&
        spare.compare_exchange_strong(none, block, std::memory_order_release))
      return;
  }
  finish(block);
}

/// Unmaps the parent's blocks. Without this, a child that lives on would hold the disk's room for
/// them, although the files are deleted.
void unmap_blocks() noexcept {
  const auto numbered = file.header->numbered;
  for (std::uint64_t at = 0; at < kPlaces && at < numbered; ++at) {
    void* const block = mapped_block(at);
    if (block == nullptr) continue;
    (void)munmap(block, kBlockBytes);
    std::atomic_ref(places[at]).store(0);
  }
}

// A forked child has one thread, and the parent's file stays the parent's.
void reset_in_child() noexcept {
  self = {};
  if (is_the_file(file.descriptor)) ::close(file.descriptor);
  file.descriptor = -1;
  if (file.header != nullptr) {
    unmap_blocks();
    (void)munmap(file.header, kHeaderBytes);
  }
  file.header = nullptr;
  file.taken = 0;
  for (auto& spare : file.spares) {
    if (spare.load() != nullptr) spare = nullptr;
  }
  if (file.ring != nullptr) (void)munmap(file.ring, ring_bytes());
  file.ring = nullptr;
  file.ring_blocks = 0;
  file.ring_more = 0;
  file.adding_context = false;
  file.state = kNone;
  shared.seq = 0;
  window_begun = window_described = 0;
  reset_live_in_child();
  reset_sites_in_child();
}

class InsideCall {
 public:
  explicit InsideCall(Thread& thread) noexcept : thread_(thread), before_(thread.inside) {
    thread.inside = true;
  }
  ~InsideCall() { thread_.inside = before_; }

 private:
  Thread& thread_;
  bool before_;
};

/// Looks for a processor counter that runs at constant speed. Reading it takes a third of the time
/// of a system clock.
void find_clock() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  shared.has_tsc = __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
  const bool has_rdtscp = __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (d & (1u << 27)) != 0;
  // The system drops the counter from this list when the processors disagree on it.
  char clocks[128] = "";
  read_whole("/sys/devices/system/clocksource/clocksource0/available_clocksource", clocks,
             sizeof clocks);
  const char* const asked = setting("EMM_RECORD_ORDER");
  shared.clock_orders = shared.has_tsc && has_rdtscp && std::strstr(clocks, "tsc") != nullptr &&
                        (asked == nullptr || std::strcmp(asked, "counter") != 0);
  if (shared.clock_orders) shared.first_ticks = ticks() - 1;
#endif
}

}  // namespace

const char* setting(const char* name) noexcept {
  if (const char* const given = std::getenv(name)) return given;
  const auto size = std::strlen(name);
  for (const char* at = defaults; at != nullptr && *at != '\0'; at += std::strlen(at) + 1) {
    if (std::strncmp(at, name, size) == 0 && at[size] == '=') return at + size + 1;
  }
  return nullptr;
}

std::uint64_t clock_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void begin(const char* settings) noexcept {
  static constinit bool begun = false;  // the driver may be unloaded and loaded again
  if (begun) return;
  begun = true;
  defaults = settings;
  find_clock();
  shared.on = &always_on;
  const char* const given = setting("EMM_RECORD_FOLDER");
  const bool fits = given != nullptr && *given == '/' && std::strlen(given) + 1 < sizeof folder;
  if (given != nullptr && !fits)
    complain("the program runs without a recording, because of", given, ENAMETOOLONG);
  if (fits) {
    copy_text(folder, sizeof folder, given);
    const auto most = number_of(setting("EMM_RECORD_MOST"));
    if (most != 0) {
      blocks_most = most / kBlockBytes < 2 ? 2 : most / kBlockBytes;
      if (blocks_most > kRingMost) blocks_most = 0;
    }
    char path[kPathMost];
    std::snprintf(path, sizeof path, "%s/control", folder);
    int access = PROT_READ | PROT_WRITE;
    int control = ::open(path, O_RDWR | O_CLOEXEC);
    if (control < 0) {  // the process may run as another user
      access = PROT_READ;
      control = ::open(path, O_RDONLY | O_CLOEXEC);
    }
    struct stat about {};
    if (control >= 0 && fstat(control, &about) == 0 &&
        about.st_size >= static_cast<off_t>(sizeof(Control))) {
      void* const page = mmap(nullptr, sizeof(Control), access, MAP_SHARED, control, 0);
      if (page != MAP_FAILED) {
        control_seen = static_cast<const Control*>(page);
        shared.on = &control_seen->on;
        if (access != PROT_READ) control_page = static_cast<Control*>(page);
      }
    }
    if (control >= 0) ::close(control);
    if (const char* const blocks = setting("EMM_RECORD_UNCOLLECTED"))
      uncollected_blocks_most = number_of(blocks);  // tests set this
    has_thread_end = pthread_key_create(&thread_end, on_thread_end) == 0;
    pthread_atfork(nullptr, nullptr, reset_in_child);
    shared.mode |= mode::recording;
    if (setting("EMM_RECORD_KEEP") != nullptr) begin_live();
    if (setting("EMM_RECORD_REQUESTS") != nullptr) shared.mode |= mode::annotating;
    begin_sites();
  }
  begin_gate();
  begin_serving();
}

void describe_devices() noexcept {
  const InsideCall inside(self);  // a signal handler may call the driver meanwhile
  if ((shared.mode & mode::recording) == 0 || !open_if_needed()) return;
  auto& header = *file.header;
  if (header.device_count != 0) return;  // already described
  int count = 0;
  if (real().device_get_count(&count) != 0) return;
  (void)real().driver_get_version(&header.driver_version);
  const auto known = static_cast<std::size_t>(count) < kDevicesMost
                         ? static_cast<std::size_t>(count)
                         : kDevicesMost;
  for (std::size_t at = 0; at < known; ++at) {
    auto& device = header.devices[at];
    device.ordinal = static_cast<std::uint32_t>(at);
    int number = 0;
    if (real().device_get(&number, static_cast<int>(at)) != 0) continue;
    (void)real().device_get_name(device.name, static_cast<int>(sizeof device.name) - 1, number);
    Size total = 0;
    if (real().device_total_mem(&total, number) == 0) device.capacity = total;
  }
  header.device_count = static_cast<std::uint32_t>(known);
  note_clocks(header);
}

CallRecord* take_block(Thread& thread) noexcept {
  if (!open_if_needed()) return nullptr;
  if (thread.next != nullptr) {
    auto* const full = block_of(thread);
    thread.next = thread.end = thread.kernels = nullptr;
    finish(full);
  }
  auto* block = take_spare();
  if (block == nullptr && std::atomic_ref<int>(file.header->stopped).load() == 0)
    block = new_block();
  if (block == nullptr) return nullptr;
  auto* const first = reinterpret_cast<CallRecord*>(block + 1);
  thread.next = first + block->used;
  thread.end = first + kBlockRecords;
  block->used = 0;
  if (has_thread_end) pthread_setspecific(thread_end, &thread);
  note_clocks(*file.header);
  add(file.header->blocks, 1);
  auto& record = *thread.next;
  record.call = Call::thread;
  record.address = static_cast<std::uint64_t>(syscall(SYS_gettid));
  publish(thread, record, kNoPlace);
  return thread.next != thread.end ? thread.next : take_block(thread);
}

void look_up_context(Thread& thread) noexcept {
  thread.device = 255;
  thread.context = 0;
  Handle current = 0;
  int device = 0;
  if (real().ctx_get_current(&current) != 0 || current == 0 || real().ctx_get_device(&device) != 0)
    return;
  thread.device = static_cast<std::uint8_t>(device);
  thread.context_known = true;
  if ((shared.mode & mode::recording) == 0 || !open_if_needed()) return;
  auto& header = *file.header;
  while (file.adding_context.exchange(true, std::memory_order_acquire)) sched_yield();
  auto number = number_of_context(current);
  for (std::size_t at = 0; at < kContextsMost && number == 0; ++at) {
    auto& known = header.contexts[at];
    const auto on = static_cast<std::uint64_t>(device);
    if (known.handle != 0 && (known.handle != kEndedContext || known.device != on)) continue;
    known = {current, on};
    number = at + 1;
  }
  thread.context = static_cast<std::uint8_t>(number);
  if (number == 0) ++header.unnumbered;
  const auto at = static_cast<std::size_t>(device);
  const bool describe = at < kDevicesMost && header.devices[at].known == 0;
  if (describe) header.devices[at].known = 1;
  file.adding_context.store(false, std::memory_order_release);
  if (!describe) return;
  Size free = 0, total = 0;
  if (real().mem_get_info(&free, &total) == 0) {
    header.devices[at].free_at_start = free;
    if (header.devices[at].capacity == 0) header.devices[at].capacity = total;
  }
}

namespace {

void put_record(CallRecord record) noexcept {
  auto& thread = self;
  auto* const made = make_room(thread);
  if (made == nullptr) return count_lost();
  record.seq = 0;
  record.ticks = ticks();
  record.flags |= record_flag::preexisting;
  *made = record;
  publish(thread, *made, take_moment().seq);
}

}  // namespace

namespace {

void put_definition(const CallRecord& record) noexcept {
  auto& thread = self;
  auto* const made = make_room(thread);
  if (made == nullptr) return;
  *made = record;
  publish(thread, *made, kNoPlace);
}

constexpr bool has_site(Call call) noexcept {
  return call >= Call::mem_alloc && call <= Call::ipc_close_mem_handle;
}

}  // namespace

void annotate(Thread& thread, Call call, const void* caller) noexcept {
  const auto site = has_site(call) ? current_site(caller, put_definition) : 0;
  if (site == 0 && thread.request == 0) return;
  // Both records must be in one block, so that a reader finds one directly after the other.
  if (make_room(thread) == nullptr) return;
  if (thread.end - thread.next < 2 && take_block(thread) == nullptr) return;
  CallRecord about{};
  about.call = Call::about;
  about.address = site;
  about.size = thread.request;
  put_definition(about);
}

void begin_window(Thread& thread, std::uint32_t window) noexcept {
  thread.window = window;
  thread.kernels = nullptr;
  if ((shared.mode & mode::keeping) == 0) return;
  auto before = window_begun.load(std::memory_order_relaxed);
  while (before < window && !window_begun.compare_exchange_weak(before, window)) continue;
  // This thread dumps what lives; the others wait for the short time that it takes
  if (before < window) {
    CallRecord first{};
    first.call = Call::window;
    first.address = window;
    first.device = 255;
    put_record(first);
    live_dump(put_record);
    window_described.store(window, std::memory_order_release);
  }
  while (window_described.load(std::memory_order_acquire) < window) sched_yield();
}

void count_kernel(Handle stream) noexcept {
  auto& thread = self;
  if ((shared.mode & mode::recording) == 0 || thread.inside) return;
  const auto window = *shared.on;
  if (window == 0) return;
  if (window != thread.window) [[unlikely]] {
    const InsideCall inside(thread);
    begin_window(thread, window);
  }
  const auto now = ticks();
  auto* record = thread.kernels;
  if (record != nullptr && record->stream == stream) {
    ++record->size;
    const auto took = now - record->ticks;
    record->duration =
        took < ~std::uint32_t{0} ? static_cast<std::uint32_t>(took) : ~std::uint32_t{0};
    return;
  }
  thread.inside = true;
  if (!thread.context_known) look_up_context(thread);
  record = make_room(thread);
  if (record != nullptr) {
    *record = {};
    record->ticks = now;
    record->call = Call::kernels;
    record->device = thread.device;
    record->context = thread.context;
    record->size = 1;
    record->stream = stream;
    publish(thread, *record, take_moment().seq);
    thread.kernels = record;
  } else {
    count_lost();
  }
  thread.inside = false;
}

void forget_context(Handle context) noexcept {
  if (file.header == nullptr || context == 0) return;
  while (file.adding_context.exchange(true, std::memory_order_acquire)) sched_yield();
  if (const auto number = number_of_context(context); number != 0)
    file.header->contexts[number - 1].handle = kEndedContext;
  file.adding_context.store(false, std::memory_order_release);
}

std::uint64_t number_of_context(Handle context) noexcept {
  if (file.header == nullptr || context == 0) return 0;
  for (std::size_t at = 0; at < kContextsMost; ++at) {
    if (file.header->contexts[at].handle == context) return at + 1;
  }
  return 0;
}

void count_bypassed() noexcept {
  if ((shared.mode & mode::recording) == 0 || !open_if_needed()) return;
  std::atomic_ref<std::uint32_t>(file.header->bypassed).fetch_add(1, std::memory_order_relaxed);
}

void tell_init_failed(Code code) noexcept {
  if (control_page != nullptr) std::atomic_ref<Code>(control_page->init_code).store(code);
}

void count_lost() noexcept {
  if (file.state.load(std::memory_order_acquire) == kOpen) add(file.header->lost, 1);
}

void count_unkept() noexcept {
  if (open_if_needed()) add(file.header->unkept, 1);
}

}  // namespace emm::record

// Framework hooks call these two. emm_record_request says for which request the thread calls the
// driver. emm_record_place returns a request's place in the process's order. Requests get odd
// numbers, because calls have the even ones in a trace of both.
extern "C" [[gnu::visibility("default")]] void emm_record_request(std::uint64_t number) {
  emm::record::self.request = number;
}
/// Returns the file of this process's calls, or an empty string before the first call.
extern "C" [[gnu::visibility("default")]] const char* emm_record_file() {
  using namespace emm::record;
  return file.state.load(std::memory_order_acquire) == kOpen ? file_path : "";
}
extern "C" [[gnu::visibility("default")]] std::uint64_t emm_record_place() {
  using namespace emm::record;
  return (shared.mode & mode::recording) != 0 ? take_moment().seq * 2 + 1 : 0;
}

namespace emm::record {
namespace {

// At an orderly end, the newest pair of clocks gives the most precise length of a tick.
[[gnu::destructor]] void end() noexcept {
  if (file.state.load(std::memory_order_acquire) == kOpen) note_clocks(*file.header);
}

}  // namespace
}  // namespace emm::record

/// Measures what a record costs here, in ns for each call of a function that does nothing, with
/// records written to memory.
extern "C" [[gnu::visibility("default")]] double emm_record_cost() {
  using namespace emm::record;
  // The rounds are short, so that some of them run without interruption.
  constexpr std::size_t kCalls = 10'240;
  static CallRecord room_for[1024];
  find_clock();
  auto& thread = self;
  const auto before = thread;
  const auto shared_mode = shared.mode;
  const auto* const shared_on = shared.on;
  shared.mode = mode::recording;
  shared.on = &always_on;
  thread = {};
  thread.context_known = true;
  thread.window = always_on;
  std::uint64_t best = ~std::uint64_t{0};
  for (int turn = 0; turn < 60; ++turn) {
    const auto begun = clock_ns();
    for (std::size_t i = 0; i < kCalls; ++i) {
      if (i % 1024 == 0) {
        thread.next = room_for;
        thread.end = room_for + 1024;
      }
      recorded<Call::mem_alloc_async, OrderPoint::exit>(
          0, [] { return Code{0}; },
          [&](CallRecord& record, bool) {
            record.address = i;
            record.size = 4096;
            record.stream = 0;
            record.extra = 0;
          });
    }
    const auto took = clock_ns() - begun;
    best = took < best ? took : best;
  }
  thread = before;
  shared.mode = shared_mode;
  shared.on = shared_on;
  return static_cast<double>(best) / static_cast<double>(kCalls);
}
