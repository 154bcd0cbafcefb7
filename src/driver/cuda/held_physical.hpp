#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace emm {

/// The physical memory that a context created for mapping, in bytes. A released handle holds its
/// memory until its last mapping ends (measured on an H200). Any thread may call.
///
/// What a call gives away is taken off before the call is made, since the driver may hand the same
/// number to another thread before this one runs on, and put back where the driver refuses.
class HeldPhysical {
 public:
  struct Block {
    std::uint64_t size = 0;
    std::uint64_t references = 0;  ///< One of the handle until its release, and one a mapping.
  };
  struct Mapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::shared_ptr<Block> block;
  };

  void create(std::uint64_t handle, std::uint64_t size);
  /// Null of a handle that is not known.
  std::shared_ptr<Block> release(std::uint64_t handle) noexcept;
  void restore(std::uint64_t handle, std::shared_ptr<Block> block);
  void map(std::uint64_t address, std::uint64_t size, std::uint64_t handle);
  /// The mappings in [address, address + size), if it is nothing but whole ones.
  std::vector<Mapping> unmap(std::uint64_t address, std::uint64_t size);
  void restore(const std::vector<Mapping>& mappings);
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  void take(Block& block) noexcept;
  void drop(Block& block) noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Block>> handles_;
  std::unordered_map<std::uint64_t, Mapping> mappings_;  // by address
  std::uint64_t bytes_ = 0;
};

}  // namespace emm
