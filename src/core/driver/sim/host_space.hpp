#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "driver/free_addresses.hpp"
#include "driver/types.hpp"

namespace emm::sim {

/// The host memory that the devices of a platform know: page-locked and managed allocations, and
/// registered memory. All of it is real memory of this process. Device addresses equal host
/// addresses (measured on an H200, also without DEVICEMAP).
///
/// Allocations lie in one reserved range of addresses, each in the smallest free range that fits,
/// so that offsets in the range are the same in every run. An access to freed memory faults.
/// Managed memory takes no device memory: on a device only kernels that touch it cause that, and
/// none run. Any thread may call. The native codes are CUDA's, measured where a test says so.
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

  /// Returns zeroed memory; null if there is no room. REQUIRES: kind is not registered, size > 0.
  HostPtr allocate(Kind kind, std::uint64_t size, ContextHandle owner);
  /// Frees the allocation of `kind` that begins at `ptr`.
  Freed free(Kind kind, HostPtr ptr);
  std::int32_t register_range(HostRange range, ContextHandle owner);
  Freed unregister(HostPtr ptr);
  /// Ends all allocations and registrations of a context.
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
  FreeAddresses free_;                  // offsets in the range
  std::atomic<std::uint64_t> base_{0};  // the range's start; 0 until it is reserved
  std::atomic<std::uint64_t> size_{0};
};

}  // namespace emm::sim
