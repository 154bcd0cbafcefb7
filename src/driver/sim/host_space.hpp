#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "driver/sim/free_addresses.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// What the devices of a platform know of host memory: page-locked memory that they handed out,
/// managed memory, and memory that its owner registered. All of it is real memory of this process,
/// at device addresses that are the host addresses (measured on an H200: dev==host, also without
/// DEVICEMAP).
///
/// Handed-out memory lies in one reserved range of addresses, each block in the smallest free range
/// that it fits, so that offsets in the range are the same in every run. Touching freed memory
/// faults.
/// Managed memory takes no device memory: on a device it does so only as kernels touch it, and none
/// run. Any thread may call. The native codes returned are CUDA's, measured where a test says so.
class HostSpace {
 public:
  enum class Kind : std::uint8_t { page_locked, managed, registered };
  /// The allocation or registration that an address belongs to.
  struct Found {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    Kind kind = Kind::registered;
  };
  struct Freed {
    std::int32_t native = 0;
    std::uint64_t size = 0;
  };

  HostSpace() = default;
  HostSpace(const HostSpace&) = delete;
  HostSpace& operator=(const HostSpace&) = delete;
  ~HostSpace();

  /// Answers zeroed memory, null where there is no room. REQUIRES: kind is not registered, size >
  /// 0.
  HostPtr allocate(Kind kind, std::uint64_t size, ContextHandle owner);
  /// Frees what begins at `ptr`, if it is of `kind`.
  Freed free(Kind kind, HostPtr ptr);
  std::int32_t register_range(HostRange range, ContextHandle owner);
  Freed unregister(HostPtr ptr);
  /// Ends all that belongs to a context.
  void release(ContextHandle owner);

  std::optional<Found> find(std::uint64_t address) const;
  /// The bytes at `address` if all `size` of them lie in one allocation, else null. They are valid
  /// while the lock is held.
  std::byte* bytes(std::uint64_t address, std::uint64_t size,
                   const std::unique_lock<std::mutex>& lock) const;
  std::mutex& mutex() const noexcept { return mutex_; }

  std::uint64_t log_address(const std::byte* ptr) const noexcept;

 private:
  struct HostBlock {
    std::uint64_t size = 0;
    Kind kind = Kind::registered;
    ContextHandle owner;
  };
  using HostBlocks = std::map<std::uint64_t, HostBlock>;

  void reserve();
  void end(HostBlocks::iterator block);
  HostBlocks::const_iterator around(std::uint64_t address) const;

  mutable std::mutex mutex_;
  HostBlocks blocks_;                   // by address
  FreeAddresses free_;                  // of the range, by offset
  std::atomic<std::uint64_t> base_{0};  // of the range; 0 until it is needed
  std::atomic<std::uint64_t> size_{0};
};

}  // namespace emm::sim
