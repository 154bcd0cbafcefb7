#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "driver/types.hpp"

namespace emm::stream_order {

/// Translates addresses to places. All addresses of the same memory have one place. Where no handle
/// is mapped, the address is the place itself. The physical memory of handles has places above all
/// addresses, the same place through each mapping. One thread at a time.
class PhysicalExtents {
 public:
  static constexpr std::uint64_t kPhysical = std::uint64_t{1}
                                             << 63;  ///< The first place of a handle.

  /// The memory at [address, address + size) begins at `place`.
  struct Extent {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t place = 0;
  };

  void created(PhysicalHandle handle, std::uint64_t size);
  /// Forgets the handle. Returns its place, for undo_release(), or 0 if the handle is not known.
  std::uint64_t release(PhysicalHandle handle);
  void undo_release(PhysicalHandle handle, std::uint64_t place);

  /// The driver maps only whole handles: it refuses an offset with CUDA_ERROR_NOT_SUPPORTED
  /// (measured on an H200, driver 580.159.04).
  void map(std::uint64_t address, std::uint64_t size, PhysicalHandle handle);
  /// Forgets and returns the mappings that begin in [address, address + size).
  std::vector<Extent> unmap(std::uint64_t address, std::uint64_t size);
  void undo_unmap(const std::vector<Extent>& mappings);

  std::uint64_t place_of(std::uint64_t address) const;
  /// Calls `each` with the extents of [address, address + size) in order. No extent is empty.
  void for_each(std::uint64_t address, std::uint64_t size,
                const std::function<void(const Extent&)>& each) const;

 private:
  /// The first mapping that ends after `address`.
  std::map<std::uint64_t, Extent>::const_iterator first(std::uint64_t address) const;

  std::map<std::uint64_t, std::uint64_t> handles_;  ///< The place of each handle.
  std::map<std::uint64_t, Extent> mappings_;        ///< By address.
  std::uint64_t next_ = kPhysical;                  ///< Place of the next handle.
};

}  // namespace emm::stream_order
