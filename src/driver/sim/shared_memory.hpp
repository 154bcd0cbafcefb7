#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "driver/types.hpp"

namespace emm::sim {

/// Memory that another process can map too: a memfd, reached through /proc/<pid>/fd. It has no
/// name, so nothing is left behind however the processes end. Pages that nobody wrote to are zero
/// and take no memory.
class SharedMemory {
 public:
  static std::optional<SharedMemory> create(std::uint64_t size);
  /// Maps what `handle` names; nothing where that is gone or was never made by a simulated device.
  static std::optional<SharedMemory> open(const IpcMemHandle& handle);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The 64 bytes by which another process finds it.
  IpcMemHandle handle() const noexcept;

 private:
  SharedMemory(int fd, std::span<std::byte> bytes) noexcept : fd_(fd), bytes_(bytes) {}

  int fd_;  // -1 in an importer, which needs the mapping only
  std::span<std::byte> bytes_;
};

/// Whether the process that made `handle` is this one.
bool made_here(const IpcMemHandle& handle) noexcept;

}  // namespace emm::sim
