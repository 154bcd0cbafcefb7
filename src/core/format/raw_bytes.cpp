#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "format/byte_stage.hpp"
#include "format/file_bytes.hpp"

namespace emm::format {
namespace {

class FileStage final : public RawStage {
 public:
  FileStage(int fd, bool owned, std::string name, const std::atomic<bool>* stop)
      : name_(std::move(name)), fd_(fd), owned_(owned), stop_(stop) {
    struct stat status {};
    if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) {
      total_ = static_cast<std::uint64_t>(status.st_size);
      regular_ = true;
    }
  }
  ~FileStage() override {
    if (owned_) ::close(fd_);
  }
  FileStage(const FileStage&) = delete;
  FileStage& operator=(const FileStage&) = delete;

  Result<std::string_view> magic() override {
    auto got = read_fully(magic_, kMagicBytes);
    if (!got) return std::move(got).error();
    magic_size_ = *got;
    return std::string_view(magic_, magic_size_);
  }

  Result<std::size_t> fill(char* out, std::size_t size) override {
    const auto again = std::min(size, magic_size_ - magic_given_);
    std::memcpy(out, magic_ + magic_given_, again);
    magic_given_ += again;
    auto got = read_fully(out + again, size - again);
    if (!got) return std::move(got).error();
    consumed_.fetch_add(again + *got, std::memory_order_relaxed);
    return again + *got;
  }

 private:
  Result<std::size_t> read_fully(char* out, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      if (auto ready = wait(); !ready) return std::move(ready).error();
      const auto got = ::read(fd_, out + done, size - done);
      if (got > 0) {
        done += static_cast<std::size_t>(got);
      } else if (got == 0) {
        break;
      } else if (errno != EINTR) {
        return fail(Errc::io_error, "cannot read {}: {}", name_,
                    std::generic_category().message(errno));
      }
    }
    return done;
  }

  /// Waits until there is something to read. Looks at `stop` now and then, since a signal may
  /// arrive between a look at `stop` and the read, or on another thread than the reading one.
  Status wait() const {
    constexpr int kLookMs = 100;  // an interrupt is noticed after so long at most
    if (stop_ == nullptr) return {};
    for (;;) {
      if (stop_->load(std::memory_order_relaxed)) return interrupted_reading(name_);
      pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
      if (regular_ || ::poll(&readable, 1, kLookMs) > 0) return {};
    }
  }

  std::string name_;
  int fd_;
  bool owned_;
  bool regular_ = false;
  const std::atomic<bool>* stop_;
  char magic_[kMagicBytes] = {};
  std::size_t magic_size_ = 0;
  std::size_t magic_given_ = 0;
};

class MemoryStage final : public RawStage {
 public:
  explicit MemoryStage(std::string_view bytes) : rest_(bytes) { total_ = bytes.size(); }

  Result<std::string_view> magic() override { return rest_.substr(0, kMagicBytes); }
  Result<std::size_t> fill(char* out, std::size_t size) override {
    const auto count = rest_.copy(out, size);
    rest_.remove_prefix(count);
    consumed_.fetch_add(count, std::memory_order_relaxed);
    return count;
  }

 private:
  std::string_view rest_;
};

}  // namespace

Error interrupted_reading(const std::string& name) {
  return fail(Errc::interrupted, "interrupted while reading {}", name);
}

Result<std::unique_ptr<RawStage>> open_raw(const std::string& path, const std::atomic<bool>* stop) {
  if (path == "-") return std::make_unique<FileStage>(STDIN_FILENO, false, "<stdin>", stop);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(Errc::usage, "cannot open {}: {}", path, std::generic_category().message(errno));
  }
  struct stat about {};
  if (::fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
    ::close(fd);
    return fail(Errc::usage, "cannot open {}: {}", path, std::generic_category().message(EISDIR));
  }
  return std::make_unique<FileStage>(fd, true, path, stop);
}

Result<std::string> file_bytes(const std::string& path, const std::atomic<bool>* stop) {
  auto raw = open_raw(path, stop);
  if (!raw) return std::move(raw).error();
  constexpr std::size_t kPiece = std::size_t{64} << 10;  // bytes of a read
  std::string bytes;
  for (std::size_t size = 0;;) {
    bytes.resize(size + kPiece);
    auto got = (*raw)->fill(bytes.data() + size, kPiece);
    if (!got) return std::move(got).error();
    size += *got;
    if (*got == kPiece) continue;
    bytes.resize(size);
    return bytes;
  }
}

std::unique_ptr<RawStage> raw_memory(std::string_view bytes) {
  return std::make_unique<MemoryStage>(bytes);
}

}  // namespace emm::format
