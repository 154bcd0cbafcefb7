#include "record/room_ahead.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace emm::record {
namespace {

/// A raw file that a process is writing or has written.
class GrowingFile {
 public:
  explicit GrowingFile(const std::string& path) noexcept
      : descriptor_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    struct stat about {};
    if (descriptor_ < 0 || fstat(descriptor_, &about) != 0 ||
        about.st_size < static_cast<off_t>(kHeaderBytes))
      return;
    void* const mapped =
        mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (mapped != MAP_FAILED) header_ = static_cast<FileHeader*>(mapped);
    if (header_ != nullptr &&
        (std::memcmp(header_->magic, kMagic, sizeof kMagic) != 0 || header_->version != kVersion)) {
      munmap(header_, kHeaderBytes);
      header_ = nullptr;
    }
  }
  ~GrowingFile() {
    if (header_ != nullptr) munmap(header_, kHeaderBytes);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  /// Empties full blocks, so that the process can take them again.
  void empty_full() noexcept {
    if (header_ == nullptr) return;
    std::size_t at = 0;
    for (auto& place : header_->full) {
      const std::atomic_ref<std::uint64_t> full(place);
      const auto number = full.load(std::memory_order_acquire);
      if (number == 0) continue;
      while (at < kReadyMost && std::atomic_ref<std::uint64_t>(header_->ready[at]).load() != 0)
        ++at;
      if (at == kReadyMost) return;
      if (!copy_out(number - 1)) return give_up();
      full.store(0, std::memory_order_relaxed);
      std::atomic_ref<std::uint64_t>(header_->ready[at]).store(number, std::memory_order_release);
    }
  }

  /// Keeps one more block ready than the process has taken. A short program's file thus stays
  /// small.
  void make_ready(std::uint64_t blocks_most) noexcept {
    if (header_ == nullptr) return;
    const auto taken = std::atomic_ref<std::uint64_t>(header_->blocks).load();
    const auto wanted = std::min<std::uint64_t>(taken + 1, kReadyMost);
    for (std::uint64_t at = 0; at < wanted; ++at) {
      const std::atomic_ref<std::uint64_t> ready(header_->ready[at]);
      if (ready.load() != 0) continue;
      const std::atomic_ref<std::uint64_t> numbered(header_->numbered);
      if (blocks_most != 0 && numbered.load() >= blocks_most) return;
      const auto number = numbered.fetch_add(1);
      if (blocks_most != 0 && number >= blocks_most) return;
      if (!write_zeros(number)) return give_up();
      ready.store(number + 1, std::memory_order_release);
    }
  }

 private:
  /// Leaves the process alone from now on. It will meet the same error and report it.
  void give_up() noexcept {
    munmap(header_, kHeaderBytes);
    header_ = nullptr;
  }

  /// Copies a full block to the end of the file and writes zeros to it. A kill at any moment leaves
  /// one whole copy at least: the new header, which makes the copy count, is written last, and the
  /// old one is overwritten after that.
  bool copy_out(std::uint64_t number) noexcept {
    static std::array<char, kBlockBytes> block{};
    if (!transfer<::pread>(block.data(), kBlockBytes, offset_of(number))) return false;
    BlockHeader header{};
    std::memcpy(&header, block.data(), sizeof header);
    // The program can write to what it shares. What looks different from a full block stays.
    if (header.magic != kBlockMagic || header.number != number + 1 || header.state != 2)
      return false;
    const auto copy = std::atomic_ref<std::uint64_t>(header_->numbered).fetch_add(1);
    header.number = copy + 1;
    std::memcpy(block.data(), &header, sizeof header);
    return transfer<::pwrite>(block.data() + sizeof header, kBlockBytes - sizeof header,
                              offset_of(copy) + sizeof header) &&
           transfer<::pwrite>(block.data(), sizeof header, offset_of(copy)) && write_zeros(number);
  }

  bool write_zeros(std::uint64_t number) const noexcept {
    static std::array<char, kBlockBytes> zeros{};
    return transfer<::pwrite>(zeros.data(), kBlockBytes, offset_of(number));
  }

  static std::uint64_t offset_of(std::uint64_t number) noexcept {
    return kHeaderBytes + number * kBlockBytes;
  }

  /// Reads or writes all of the bytes. False when the system does less.
  template <auto kCall>
  bool transfer(char* bytes, std::size_t size, std::uint64_t offset) const noexcept {
    while (size != 0) {
      const auto part = kCall(descriptor_, bytes, size, static_cast<off_t>(offset));
      if (part <= 0) return false;
      bytes += part;
      offset += static_cast<std::uint64_t>(part);
      size -= static_cast<std::size_t>(part);
    }
    return true;
  }

  int descriptor_;
  FileHeader* header_ = nullptr;
};

/// The raw files of a folder, found as they appear.
class Files {
 public:
  explicit Files(const std::string& folder) : folder_(folder) {}

  void find_new() {
    DIR* const folder = opendir(folder_.c_str());
    if (folder == nullptr) return;
    while (const auto* entry = readdir(folder)) {
      const std::string_view name = entry->d_name;
      constexpr std::size_t kFilesMost = 64;  // processes beyond this make room themselves
      if (!name.ends_with(".emmraw") || all_.size() == kFilesMost) continue;
      const auto known = std::find_if(all_.begin(), all_.end(),
                                      [&](const auto& one) { return one.first == name; });
      if (known != all_.end()) continue;
      all_.emplace_back(name, std::make_unique<GrowingFile>(folder_ + "/" + std::string(name)));
    }
    closedir(folder);
  }
  void serve(std::uint64_t blocks_most) const noexcept {
    for (const auto& [name, file] : all_) {
      file->empty_full();
      file->make_ready(blocks_most);
    }
  }

 private:
  std::string folder_;
  std::vector<std::pair<std::string, std::unique_ptr<GrowingFile>>> all_;
};

long futex(std::uint32_t& word, int what, std::uint32_t value) noexcept {
  return syscall(SYS_futex, &word, what, value, nullptr, nullptr, 0);
}

}  // namespace

RoomAhead::RoomAhead(std::string folder, Control& control, Limits limits)
    : folder_(std::move(folder)),
      control_(control),
      blocks_most_(limits.file_bytes == 0
                       ? 0
                       : std::max<std::uint64_t>(limits.file_bytes / kBlockBytes, 2)) {
  sigset_t all, before;  // the thread that waits for the program handles signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // the programs make room themselves
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RoomAhead::~RoomAhead() {
  if (!thread_.joinable()) return;
  const sched_param none{};
  pthread_setschedparam(thread_.native_handle(), SCHED_OTHER, &none);  // it is waited for
  std::atomic_ref<bool>(ends_).store(true);
  std::atomic_ref<std::uint32_t>(control_.taken).fetch_add(1);
  futex(control_.taken, FUTEX_WAKE, 1);
  thread_.join();
}

void RoomAhead::work() noexcept {
  // This thread runs only when a processor is idle. A program's thread that lost its processor
  // while it holds the driver's lock would delay all others. A program that finds no block ready
  // makes room itself.
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
  Files files(folder_);
  const std::atomic_ref<std::uint32_t> taken(control_.taken);
  for (;;) {
    const auto seen = taken.load(std::memory_order_acquire);
    files.find_new();
    files.serve(blocks_most_);
    if (std::atomic_ref<bool>(ends_).load()) return;
    futex(control_.taken, FUTEX_WAIT, seen);
  }
}

}  // namespace emm::record
