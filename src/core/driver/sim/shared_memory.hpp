#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "driver/types.hpp"

namespace emm::sim {

/// Memory that another process can map: a memfd, which the process opens through /proc/<pid>/fd. It
/// has no name in the file system, so nothing is left however the processes end. Pages that were
/// never written are zero and take no memory.
class SharedMemory {
 public:
  static std::optional<SharedMemory> create(std::uint64_t size);
  /// Maps the memory that `handle` names. Empty if it is gone, or no simulated device made it.
  static std::optional<SharedMemory> open(const IpcMemHandle& handle);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The 64 bytes by which another process finds it.
  IpcMemHandle handle() const noexcept;

 private:
  SharedMemory(int fd, std::span<std::byte> bytes) noexcept : fd_(fd), bytes_(bytes) {}

  int fd_;  // -1 in a process that opened it, which needs only the mapping
  std::span<std::byte> bytes_;
};

/// Answers whether this process made `handle`.
bool made_here(const IpcMemHandle& handle) noexcept;

}  // namespace emm::sim
