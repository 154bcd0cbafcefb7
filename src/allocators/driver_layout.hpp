#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace emm::allocators {

/// Addresses as the driver gives them to device memory of whole pages of 2 MiB.
///
/// The driver takes regions of a whole number of 32 MiB, each at the highest addresses where it and
/// 32 MiB more are free, and keeps a region as long as something lives in it. A request goes to the
/// newest region that has a hole for it, into its smallest one, the lowest among equals; where no
/// region has one, into a new region. (Found in recordings of PyTorch on an H200, driver 580: each
/// of the 1,891 addresses of programs that use nothing but its allocator. Libraries that load
/// kernels take memory in regions too, which no recording shows.) One thread at a time.
class DriverLayout {
 public:
  /// All regions lie below `top`, but for those that take_at() tells of.
  explicit DriverLayout(std::uint64_t top) : highest_(top) {}

  std::uint64_t take(std::uint64_t size) {
    size = round(size, kPage);
    for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
      const auto hole = smallest_hole(*region, size);
      if (!hole) continue;
      region->taken[*hole] = size;
      return *hole;
    }
    const auto length = round(size, kRegion);
    const auto base = room_for(length);
    bases_[base] = length;
    lowest_ = std::min(lowest_, base);
    if (base >= highest_) highest_ = base + length;
    is_bounded_ = true;
    regions_.push_back({base, length, {{base, size}}});
    return base;
  }
  /// Takes an address that the driver is known to have given. What was taken for two regions turns
  /// out to be one where it lies across both. REQUIRES: nothing taken overlaps it.
  void take_at(std::uint64_t address, std::uint64_t size) {
    size = round(size, kPage);
    auto base = address / kRegion * kRegion, end = round(address + size, kRegion);
    std::map<std::uint64_t, std::uint64_t> taken{{address, size}};
    for (auto region = regions_.begin(); region != regions_.end();) {
      if (region->base >= end || region->base + region->length <= base) {
        ++region;
        continue;
      }
      base = std::min(base, region->base);
      end = std::max(end, region->base + region->length);
      taken.merge(region->taken);
      bases_.erase(region->base);
      region = regions_.erase(region);
    }
    // Where the driver left addresses out, others have them: it would have taken the highest.
    if (is_bounded_) {
      if (end < lowest_) bases_[end] = lowest_ - end;
      if (base > highest_) bases_[highest_] = base - highest_;
      open(base, end);
    }
    lowest_ = is_bounded_ ? std::min(lowest_, base) : base;
    highest_ = is_bounded_ ? std::max(highest_, end) : end;
    is_bounded_ = true;
    bases_[base] = end - base;
    regions_.push_back({base, end - base, std::move(taken)});
  }
  void release(std::uint64_t address) {
    for (auto region = regions_.begin(); region != regions_.end(); ++region) {
      if (region->taken.erase(address) == 0) continue;
      if (region->taken.empty()) {
        bases_.erase(region->base);
        regions_.erase(region);
      }
      return;
    }
  }

 private:
  static constexpr std::uint64_t kPage = std::uint64_t{2} << 20, kRegion = std::uint64_t{32} << 20;
  struct Region {
    std::uint64_t base, length;
    std::map<std::uint64_t, std::uint64_t> taken;  // address, size
  };

  static std::uint64_t round(std::uint64_t size, std::uint64_t step) {
    return (size + step - 1) / step * step;
  }
  static std::optional<std::uint64_t> smallest_hole(const Region& region, std::uint64_t size) {
    std::optional<std::uint64_t> best;
    std::uint64_t best_length = 0, at = region.base;
    const auto look = [&](std::uint64_t end) {
      if (end - at >= size && (!best || end - at < best_length)) {
        best = at;
        best_length = end - at;
      }
    };
    for (const auto& [address, length] : region.taken) {
      look(address);
      at = address + length;
    }
    look(region.base + region.length);
    return best;
  }
  /// Takes [base, end) out of what others have.
  void open(std::uint64_t base, std::uint64_t end) {
    auto other = bases_.upper_bound(base);
    if (other == bases_.begin()) return;
    --other;
    const auto [begin, length] = *other;
    if (begin + length < end) return;
    bases_.erase(other);
    if (begin < base) bases_[begin] = base - begin;
    if (end < begin + length) bases_[end] = begin + length - end;
  }
  std::uint64_t room_for(std::uint64_t length) const {
    auto end = highest_;
    for (auto region = bases_.rbegin(); region != bases_.rend(); ++region) {
      const auto begin = region->first + region->second;
      if (begin <= end && end - begin >= length + kRegion) break;
      end = region->first;
    }
    // Ranges of addresses may lie so low that nothing fits below them: then above all.
    return end < length ? round(highest_, kRegion) : end - length;
  }

  std::uint64_t highest_, lowest_ = highest_;
  bool is_bounded_ = false;                       // something was taken
  std::map<std::uint64_t, std::uint64_t> bases_;  // of regions, and of what others have: length
  std::vector<Region> regions_;                   // the newest last
};

}  // namespace emm::allocators
