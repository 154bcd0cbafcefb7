#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "driver/types.hpp"

namespace emm::order {

/// Where memory is, whatever address reaches it. An address that no handle is mapped at is the
/// place itself; physical memory has places of its own above all addresses, the same through each
/// of its mappings. One thread at a time.
class Places {
 public:
  static constexpr std::uint64_t kPhysical = std::uint64_t{1} << 63;  ///< Places from here on.

  /// What is at [address, address + size) of a mapping begins at `place`.
  struct Mapping {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t place = 0;
  };

  void created(PhysicalHandle handle, std::uint64_t size);
  /// The place of what it named, for undo_release(); 0 of a handle that is not known.
  std::uint64_t release(PhysicalHandle handle);
  void undo_release(PhysicalHandle handle, std::uint64_t place);

  /// The driver maps whole handles only: an offset is refused with CUDA_ERROR_NOT_SUPPORTED
  /// (measured on an H200, driver 580.159.04).
  void map(std::uint64_t address, std::uint64_t size, PhysicalHandle handle);
  /// Forgets the mappings that begin in [address, address + size), and tells which they were.
  std::vector<Mapping> unmap(std::uint64_t address, std::uint64_t size);
  void undo_unmap(const std::vector<Mapping>& mappings);

  std::uint64_t of(std::uint64_t address) const;
  /// Calls `each` with what [address, address + size) consists of, in order; no piece is empty.
  void each(std::uint64_t address, std::uint64_t size,
            const std::function<void(const Mapping&)>& each) const;

 private:
  /// The first mapping that ends behind `address`.
  std::map<std::uint64_t, Mapping>::const_iterator first(std::uint64_t address) const;

  std::map<std::uint64_t, std::uint64_t> handles_;  ///< To places.
  std::map<std::uint64_t, Mapping> mappings_;       ///< By address.
  std::uint64_t next_ = kPhysical;
};

}  // namespace emm::order
