#pragma once

#include <cstdint>
#include <map>

#include "driver/free_addresses.hpp"

namespace emm {

/// Models the addresses that the driver gives to device memory in whole pages of 2 MiB.
///
/// The driver takes regions in multiples of 32 MiB. It puts each at the highest addresses where the
/// region and 32 MiB more are free, and keeps it while anything in it is allocated. A request goes
/// to the newest region that has a hole for it: into the smallest hole, the lowest among equals. If
/// no region has one, the driver takes a new region.
///
/// These rules explain all 1,891 addresses in recordings of PyTorch programs on an H200, driver
/// 580, that use nothing but PyTorch's allocator. Libraries that load kernels take regions too,
/// which no recording shows. Costs are logarithmic in what is taken, but for a new region, which
/// costs a step for each gap between regions. One thread at a time.
class DriverLayout {
 public:
  /// All regions lie below `top`, except those of take_at(), and those that find no room there.
  explicit DriverLayout(std::uint64_t top) : highest_(top) { gaps_.release(0, top); }

  std::uint64_t take(std::uint64_t size);
  /// Takes an address that the driver is known to have given. Regions that it reaches into become
  /// one. REQUIRES: nothing taken overlaps it.
  void take_at(std::uint64_t address, std::uint64_t size);
  /// REQUIRES: so much was taken at `address`.
  void release(std::uint64_t address, std::uint64_t size);

 private:
  struct Region {
    std::uint64_t length = 0, age = 0;  ///< `age` is larger the newer the region is.
    FreeAddresses holes;
    std::size_t taken = 0;     ///< How many addresses in it are.
    std::uint64_t listed = 0;  ///< The longest hole, as by_longest_ has it.
    bool is_listed = false;
  };
  using Regions = std::map<std::uint64_t, Region>;  // by base

  Regions::iterator newest_with(std::uint64_t size);
  Regions::iterator new_region(std::uint64_t length);
  Regions::iterator begin_region(std::uint64_t base, std::uint64_t length, FreeAddresses holes);
  static std::uint64_t end_of(Regions::const_iterator region);
  void list(Regions::iterator region);
  void unlist(Regions::iterator region);

  std::uint64_t highest_, lowest_ = highest_;
  bool is_bounded_ = false;  // Whether anything was taken.
  FreeAddresses gaps_;       // Below `highest_`, but for what belongs to others.
  Regions regions_;
  std::uint64_t ages_ = 0;
  // The regions by their longest hole, and by age: the base.
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> by_longest_;
};

}  // namespace emm
