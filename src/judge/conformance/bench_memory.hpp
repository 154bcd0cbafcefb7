#pragma once

#include <cstdint>
#include <memory>

#include "emm/memory_pointer.hpp"

namespace emm::conformance {

class Bench;

/// Owns memory of any kind that the judged manager handed out. Its end frees the memory and is
/// written to the bench's trace. Move-only.
class BenchMemory {
 public:
  BenchMemory() = default;
  BenchMemory(BenchMemory&& other) noexcept;
  BenchMemory& operator=(BenchMemory&& other) noexcept;
  ~BenchMemory() { drop(); }

  /// The host address of host memory, else the device address.
  std::uint64_t address() const noexcept { return address_; }
  DevicePtr device() const noexcept { return device_; }  ///< Null if devices cannot access it.
  HostPtr host() const noexcept { return host_; }        ///< Null for device memory.
  std::uint64_t size() const noexcept { return size_; }
  MemoryView view() const noexcept { return {.device_pointer = device_, .size = size_}; }
  bool is_mapped() const noexcept { return mapped_; }
  bool alive() const noexcept { return lifetime_.alive(); }
  std::uint64_t id() const noexcept { return id_; }

  /// Frees the memory explicitly, and returns the manager's answer.
  Status free(StreamHandle stream = {});
  /// Drops the last reference.
  void drop() noexcept;

 private:
  friend class Bench;
  Bench* bench_ = nullptr;
  std::uint64_t id_ = 0;  // its number in the bench's trace; 0: no memory
  std::uint64_t address_ = 0;
  DevicePtr device_;
  HostPtr host_ = nullptr;
  std::uint64_t size_ = 0;
  bool mapped_ = false;
  std::shared_ptr<const void> owner_;
  Lifetime lifetime_;
};

}  // namespace emm::conformance
