#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "driver/sim/answer.hpp"
#include "driver/sim/content.hpp"
#include "driver/sim/holes.hpp"
#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// Whether memory is read or written.
enum class Use : std::uint8_t { read, write };

/// Addresses that are apart from memory, of all devices of a platform: reservations, physical
/// memory by handle, and the mappings of one on the other.
///
/// Measured on an H200: all is in multiples of 2 MiB; a handle is mapped whole (any other size:
/// 801) and as often as one likes, every mapping showing one content; mappings are unmapped whole
/// (part: 1), several at once, whatever of the range is mapped; a released handle's memory comes
/// back at its last unmap; nothing waits for running work. A reservation with mappings is not
/// freed, mappings do not overlap and access is set for whole mappings (code 1). That a mapping
/// lies in one reservation is documented, and not what an H200 looks at. Physical pages are
/// counted, not placed.
///
/// Costs are logarithmic in the number of mappings, and linear in those that a call covers. Any
/// thread may call. REQUIRES of every asker: its context has been found fit.
class VirtualMemory {
 public:
  /// One range for all devices, above all other addresses: 128 TiB, as processes have.
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
  /// The mapping that `ptr` is in.
  Answer<AddressRange> find(DevicePtr ptr) const;
  /// Ends all that a device's context has, after its reset: addresses, memory, and mappings of
  /// both.
  void drop(int device);

  std::mutex& mutex() const noexcept { return mutex_; }
  /// What is mapped at `address`, up to the mapping's end; null where nothing is that may be used
  /// so, by a device, or by any where `device` is -1. REQUIRES: the caller holds mutex().
  struct Place {
    Content* content = nullptr;
    std::uint64_t offset = 0;
    std::uint64_t left = 0;
  };
  Place place(std::uint64_t address, Use use, int device);

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
  struct Mapping {
    std::uint64_t size = 0;
    std::uint64_t handle = 0;
    Physical* physical = nullptr;
    std::uint64_t readers = 0;  // one bit a device
    std::uint64_t writers = 0;
  };
  using Mappings = std::map<std::uint64_t, Mapping>;

  const Mappings::value_type* around(std::uint64_t address) const;
  bool is_reserved(std::uint64_t address, std::uint64_t size) const;
  /// The first of the mappings that make up the range exactly, or end().
  Mappings::iterator first_of(std::uint64_t address, std::uint64_t size);
  /// Whether a mapping lies across `address`.
  bool is_inside(std::uint64_t address) const;
  /// True where that gave memory back.
  bool unmap(const Mapping& mapping);
  void give_back(std::uint64_t handle);

  SimPlatform& platform_;
  const Pattern fresh_;
  mutable std::mutex mutex_;
  Holes holes_;
  std::map<std::uint64_t, Reservation> reservations_;
  std::unordered_map<std::uint64_t, Physical> physical_;
  std::uint64_t last_handle_ = 0;
  Mappings mappings_;
};

}  // namespace emm::sim
