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
/// What a call ends is taken off the count before the call is made: the driver may hand the same
/// number to another thread before this one runs on. It is restored where the driver refuses.
class HeldPhysical {
 public:
  struct PhysicalBlock {
    std::uint64_t size = 0;
    std::uint64_t references = 0;  ///< One of the handle until its release, and one a mapping.
  };
  struct HeldMapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::shared_ptr<PhysicalBlock> block;
  };

  void create(std::uint64_t handle, std::uint64_t size);
  /// Null where the handle is not known.
  std::shared_ptr<PhysicalBlock> release(std::uint64_t handle) noexcept;
  void restore(std::uint64_t handle, std::shared_ptr<PhysicalBlock> block);
  void map(std::uint64_t address, std::uint64_t size, std::uint64_t handle);
  /// Takes off the mappings in [address, address + size). Nothing where they are not whole ones.
  std::vector<HeldMapping> unmap(std::uint64_t address, std::uint64_t size);
  void restore(const std::vector<HeldMapping>& mappings);
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  void take(PhysicalBlock& block) noexcept;
  void drop(PhysicalBlock& block) noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<PhysicalBlock>> handles_;
  std::unordered_map<std::uint64_t, HeldMapping> mappings_;  // by address
  std::uint64_t bytes_ = 0;
};

}  // namespace emm
