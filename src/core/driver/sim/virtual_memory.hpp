#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "driver/free_addresses.hpp"
#include "driver/sim/answer.hpp"
#include "driver/sim/content.hpp"
#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// Whether memory is read or written.
enum class Use : std::uint8_t { read, write };

/// Virtual memory management for all devices of a platform: reservations of addresses, physical
/// memory by handle, and the mappings of one onto the other.
///
/// Measured on an H200: sizes and addresses are multiples of 2 MiB. A handle is mapped whole (any
/// other size returns 801), any number of times, and every mapping shows the same content. Mappings
/// are unmapped whole (a part returns 1); one call may unmap several, even with gaps between them.
/// The last unmap of a released handle frees its memory. No call waits for running work. To free a
/// reservation with mappings, to map over a mapping, or to set the access of a part returns 1. A
/// mapping must lie in one reservation by the documentation; an H200 does not check it. Physical
/// pages are counted, not placed.
///
/// Costs are logarithmic in the number of mappings, and linear in those that a call covers. Any
/// thread may call. REQUIRES: the caller has checked the context of `asker`.
class VirtualMemory {
 public:
  /// One range for all devices, above all other addresses: 128 TiB, the size of a process's address
  /// space.
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 51;
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 47;
  static bool owns(std::uint64_t address) noexcept { return address - kFirstAddress < kAddresses; }

  VirtualMemory(SimPlatform& platform, Pattern fresh);

  Answer<DevicePtr> reserve(Asker asker, std::uint64_t size, std::uint64_t alignment, DevicePtr at);
  Answer<Nothing> free(DevicePtr ptr, std::uint64_t size);
  Answer<PhysicalHandle> create(Asker asker, std::uint64_t size);
  Answer<Nothing> release(PhysicalHandle handle);
  Answer<Nothing> map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                      PhysicalHandle handle);
  Answer<Nothing> unmap(DevicePtr ptr, std::uint64_t size);
  Answer<Nothing> set_access(int device, DevicePtr ptr, std::uint64_t size, AccessFlags access);
  /// Finds the mapping that `ptr` is in.
  Answer<AddressRange> find(DevicePtr ptr) const;
  /// Ends the reservations, the memory and the mappings of a device, after its reset.
  void drop(int device);

  std::mutex& mutex() const noexcept { return mutex_; }
  /// The content at `address`, up to the end of its mapping. `content` is null if `device` has no
  /// such access, or for `device` -1 if no device has. REQUIRES: the caller holds mutex().
  struct MappedContent {
    Content* content = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t left = 0;
  };
  MappedContent content_at(std::uint64_t address, Use use, int device);

 private:
  struct Reservation {
    std::uint64_t size = 0;
    int device = 0;
  };
  struct Physical {
    std::uint64_t size = 0;
    Asker owner;
    std::uint64_t mappings = 0;
    bool released = false;
    Content content;
  };
  struct AddressMapping {
    std::uint64_t size = 0;
    std::uint64_t handle = 0;
    Physical* physical = nullptr;
    std::uint64_t readers = 0;  // a bit for each device
    std::uint64_t writers = 0;
  };
  using AddressMappings = std::map<std::uint64_t, AddressMapping>;

  const AddressMappings::value_type* around(std::uint64_t address) const;
  bool is_reserved(std::uint64_t address, std::uint64_t size) const;
  /// The first of the mappings that make up the range exactly, or end().
  AddressMappings::iterator first_of(std::uint64_t address, std::uint64_t size);
  /// Answers whether a mapping lies across `address`.
  bool is_inside(std::uint64_t address) const;
  /// Ends a mapping. True if that freed its memory.
  bool unmap(const AddressMapping& mapping);
  void release_physical(std::uint64_t handle);

  SimPlatform& platform_;
  const Pattern fresh_;
  mutable std::mutex mutex_;
  FreeAddresses free_;
  std::map<std::uint64_t, Reservation> reservations_;
  std::unordered_map<std::uint64_t, Physical> physical_;
  std::uint64_t last_handle_ = 0;
  AddressMappings mappings_;
};

}  // namespace emm::sim
