#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace emm {

/// The physical memory that a context created for mapping, in bytes. A released handle holds its
/// memory until its last mapping ends (measured on an H200). Any thread may call.
///
/// The count falls before a call that frees: the driver may give the same number to another thread
/// before this one continues. If the driver refuses, the count is restored.
class HeldPhysical {
 public:
  struct PhysicalBlock {
    std::uint64_t size = 0;
    std::uint64_t references =
        0;  ///< One for the handle until its release, and one for each mapping.
  };
  struct HeldMapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::shared_ptr<PhysicalBlock> block;
  };

  void create(std::uint64_t handle, std::uint64_t size);
  /// Null if the handle is unknown.
  std::shared_ptr<PhysicalBlock> release(std::uint64_t handle) noexcept;
  void restore(std::uint64_t handle, std::shared_ptr<PhysicalBlock> block);
  void map(std::uint64_t address, std::uint64_t size, std::uint64_t handle);
  /// Removes and returns the mappings in [address, address + size), which may have gaps. Changes
  /// nothing and returns none if part of a mapping lies outside: the driver refuses that.
  std::vector<HeldMapping> unmap(std::uint64_t address, std::uint64_t size);
  void restore(const std::vector<HeldMapping>& mappings);
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  void take(PhysicalBlock& block) noexcept;
  void drop(PhysicalBlock& block) noexcept;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<PhysicalBlock>> handles_;
  std::map<std::uint64_t, HeldMapping> mappings_;  // by address
  std::uint64_t bytes_ = 0;
};

}  // namespace emm
