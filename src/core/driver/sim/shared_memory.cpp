#include "driver/sim/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/host_memory.hpp"
#include "base/text_format.hpp"

namespace emm::sim {
namespace {

constexpr std::uint64_t kMagic = 0x314350494d4d45;  // "EMMIPC1"
constexpr const char* kName = "emm-sim";
constexpr std::uint64_t kSpace = std::uint64_t{1} << 46;  // no machine has room for more

/// The content of the 64 bytes. The inode shows whether the descriptor was closed and reused since
/// the handle was made.
struct Ticket {
  std::uint64_t magic = 0;
  std::uint64_t size = 0;
  std::uint64_t inode = 0;
  std::int32_t pid = 0;
  std::int32_t fd = -1;
};
static_assert(sizeof(Ticket) <= sizeof(IpcMemHandle::bytes));

Ticket read_ticket(const IpcMemHandle& handle) noexcept {
  Ticket ticket;
  std::memcpy(&ticket, handle.bytes.data(), sizeof ticket);
  return ticket;
}

std::span<std::byte> map_whole(int fd, std::uint64_t size) {
  auto* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED && errno == ENOMEM && size < kSpace) host_memory_refused();
  if (memory == MAP_FAILED) return {};
  return {static_cast<std::byte*>(memory), size};
}

}  // namespace

std::optional<SharedMemory> SharedMemory::create(std::uint64_t size) {
  const int fd = memfd_create(kName, MFD_CLOEXEC);
  if (fd < 0) return std::nullopt;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0) {
    if (const auto bytes = map_whole(fd, size); !bytes.empty()) return SharedMemory(fd, bytes);
  }
  ::close(fd);
  return std::nullopt;
}

std::optional<SharedMemory> SharedMemory::open(const IpcMemHandle& handle) {
  const auto ticket = read_ticket(handle);
  if (ticket.magic != kMagic || ticket.size == 0) return std::nullopt;
  const auto path = text::format("/proc/{}/fd/{}", ticket.pid, ticket.fd);
  // The descriptor may now be a terminal or a pipe, and opening those has side effects. The link
  // shows what it is without opening it.
  char link[64] = {};
  const auto length = readlink(path.c_str(), link, sizeof link - 1);
  if (length <= 0 || std::string_view(link).find(kName) == std::string_view::npos)
    return std::nullopt;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat status {};
  std::span<std::byte> bytes;
  if (fstat(fd, &status) == 0 && status.st_ino == ticket.inode &&
      static_cast<std::uint64_t>(status.st_size) == ticket.size) {
    bytes = map_whole(fd, ticket.size);
  }
  ::close(fd);
  if (bytes.empty()) return std::nullopt;
  return SharedMemory(-1, bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

IpcMemHandle SharedMemory::handle() const noexcept {
  struct stat status {};
  fstat(fd_, &status);
  const Ticket ticket{
      .magic = kMagic, .size = bytes_.size(), .inode = status.st_ino, .pid = getpid(), .fd = fd_};
  IpcMemHandle handle;
  std::memcpy(handle.bytes.data(), &ticket, sizeof ticket);
  return handle;
}

bool made_here(const IpcMemHandle& handle) noexcept {
  const auto ticket = read_ticket(handle);
  return ticket.magic == kMagic && ticket.pid == getpid();
}

}  // namespace emm::sim
