#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace emm {

/// The physical memory that a context created for mapping, in bytes. A released handle holds its
/// memory until its last mapping ends (measured on an H200). Any thread may call; calls that the
/// driver refused are not to be told.
class HeldPhysical {
 public:
  void create(std::uint64_t handle, std::uint64_t size);
  void release(std::uint64_t handle) noexcept;
  void map(std::uint64_t address, std::uint64_t size, std::uint64_t handle);
  /// Whole mappings in [address, address + size).
  void unmap(std::uint64_t address, std::uint64_t size) noexcept;
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  struct Handle {
    std::uint64_t size = 0;
    std::uint64_t references = 0;  // one of its own until its release, and one a mapping
  };
  struct Mapping {
    std::uint64_t size = 0;
    std::uint64_t handle = 0;
  };
  void drop(std::uint64_t handle) noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Handle> handles_;
  std::unordered_map<std::uint64_t, Mapping> mappings_;  // by address
  std::uint64_t bytes_ = 0;
};

}  // namespace emm
