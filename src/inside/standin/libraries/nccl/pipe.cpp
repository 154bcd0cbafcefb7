#include "standin/libraries/nccl/pipe.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace emm::standin::nccl {
namespace {

constexpr std::uint64_t kMessages = 256;  // that a rank may send ahead
// Bytes of their values that are under way at a time.
constexpr std::uint64_t kRing = std::uint64_t{4} << 20;

}  // namespace

struct Pipe::Page {
  struct Message {
    CollectiveCall part;
    std::uint64_t begin = 0;  // of its values, in all bytes that were ever sent
  };
  std::atomic<std::uint64_t> sent{0}, received{0};  // messages
  std::atomic<std::uint64_t> released{0};           // bytes that the receiver has taken
  std::uint64_t filled = 0;                         // bytes that were ever sent; the sender's own
  Message messages[kMessages];
  std::byte ring[kRing];
};

std::unique_ptr<Pipe> Pipe::open(const std::string& meeting, int from, int to) {
  static_assert(std::is_trivially_copyable_v<CollectiveCall>);
  std::unique_ptr<Pipe> made(new Pipe);
  made->path_ =
      program_folder() + "/" + meeting + "." + std::to_string(from) + "." + std::to_string(to);
  const int file = ::open(made->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return nullptr;
  made->file_ = file;
  void* memory = MAP_FAILED;
  // Both make it as large. A file system that is full must not end the process later.
  if (ftruncate(file, sizeof(Page)) == 0 && posix_fallocate(file, 0, offsetof(Page, ring)) == 0)
    memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return nullptr;
  made->page_ = static_cast<Page*>(memory);
  return made;
}

Pipe::~Pipe() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
  if (file_ >= 0) ::close(file_);
}

void Pipe::unlink() const noexcept { ::unlink(path_.c_str()); }

bool Pipe::send(const CollectiveCall& part, std::span<const std::byte> values,
                std::uint64_t& number) {
  auto& page = *page_;
  const auto sent = page.sent.load(std::memory_order_relaxed);
  const auto received = page.received.load(std::memory_order_acquire);
  if (sent - received >= kMessages) return false;
  if (sent == received) {
    // The receiver looks at nothing now. From the start, so that small pieces take few pages.
    page.filled = (page.filled + kRing - 1) / kRing * kRing;
    page.released.store(page.filled, std::memory_order_relaxed);
  }
  if (page.filled + values.size() - page.released.load(std::memory_order_acquire) > kRing)
    return false;
  const auto end = std::min(page.filled % kRing + values.size(), kRing);
  if (room_ < end) {
    const bool is_there =
        posix_fallocate(file_, offsetof(Page, ring), static_cast<off_t>(end)) == 0;
    if (!is_there)
      return send({part.kind, part.type, part.operation, part.root, part.count, kUnknown}, {},
                  number);
    room_ = end;
  }
  auto& message = page.messages[sent % kMessages];
  message.part = part;
  message.part.content = values.size();
  message.begin = page.filled;
  for (std::size_t done = 0; done < values.size();) {
    const auto at = (page.filled + done) % kRing;
    const auto size = std::min<std::uint64_t>(values.size() - done, kRing - at);
    std::memcpy(page.ring + at, values.data() + done, size);
    done += size;
  }
  page.filled += values.size();
  number = sent + 1;
  page.sent.store(number, std::memory_order_release);
  return true;
}

bool Pipe::is_received(std::uint64_t number) const noexcept {
  return page_->received.load(std::memory_order_acquire) >= number;
}

bool Pipe::receive(CollectiveCall& part, std::vector<std::byte>& values) {
  auto& page = *page_;
  const auto received = page.received.load(std::memory_order_relaxed);
  if (page.sent.load(std::memory_order_acquire) == received) return false;
  const auto& message = page.messages[received % kMessages];
  part = message.part;
  values.resize(part.content);
  for (std::size_t done = 0; done < values.size();) {
    const auto at = (message.begin + done) % kRing;
    const auto size = std::min<std::uint64_t>(values.size() - done, kRing - at);
    std::memcpy(values.data() + done, page.ring + at, size);
    done += size;
  }
  page.released.store(message.begin + values.size(), std::memory_order_release);
  page.received.store(received + 1, std::memory_order_release);
  return true;
}

}  // namespace emm::standin::nccl
