#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "allocators/device_memory.hpp"
#include "driver/driver_layout.hpp"

namespace emm::allocators {

/// Says how addresses are made up. Addresses decide which of two equal blocks in different segments
/// serves. `recorded` falls back to `driver` if a recorded address does not fit.
enum class Addresses : std::uint8_t { recorded, driver, first_fit, ascending, descending };

/// Hands out addresses without a device. It uses the recorded addresses in their order while they
/// fit, and otherwise any free address.
class MadeUpMemory final : public DeviceMemory {
 public:
  /// Address and size of each segment that was recorded.
  using Segments = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

  /// `recorded` must outlive this object. Null means that there are no recorded addresses.
  MadeUpMemory(Addresses addresses, std::uint64_t capacity, const Segments* recorded)
      : addresses_(addresses), capacity_(capacity), recorded_(recorded) {}

  /// Begins with what a heap holds. Returns false, and has no room from then on, if that is more
  /// than the capacity.
  template <class Heap>
  bool begin_with(const Heap& heap) {
    for (const auto& [address, segment] : heap.segments()) {
      taken_[address] = segment->size;
      layout_.take_at(address, segment->size);
    }
    held_ = heap.reserved();
    if (held_ <= capacity_) {
      alike_.least = held_;
      return true;
    }
    alike_.below = held_;
    capacity_ = 0;
    return false;
  }

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    if (!has_room(size)) return std::nullopt;
    held_ += size;
    return place(size);
  }
  void free(std::uint64_t address, std::uint64_t size) override {
    held_ -= size;
    unplace(address);
  }
  std::optional<std::uint64_t> reserve(std::uint64_t size) override {
    if (const auto recorded = next_recorded(); recorded && is_free(recorded->first, size)) {
      taken_[recorded->first] = size;
      layout_.take_at(recorded->first, size);
      return recorded->first;
    }
    return place_anew(size);
  }
  void release(std::uint64_t address, std::uint64_t) override { unplace(address); }
  bool map(std::uint64_t, std::uint64_t size, std::uint64_t) override {
    if (!has_room(size)) return false;
    held_ += size;
    ++next_;
    return true;
  }
  void unmap(std::uint64_t, std::uint64_t size, std::uint64_t) override { held_ -= size; }

  /// With any capacity from `least` to `below` - 1, all answers so far would have been the same.
  struct Alike {
    std::uint64_t least = 0, below = std::numeric_limits<std::uint64_t>::max();
  };
  Alike alike() const noexcept { return alike_; }

 private:
  bool is_as_driver() const {
    return addresses_ == Addresses::driver || addresses_ == Addresses::recorded;
  }
  bool has_room(std::uint64_t size) {
    if (held_ > capacity_ || size > capacity_ - held_) {
      alike_.below = std::min(alike_.below, held_ + size);
      return false;
    }
    alike_.least = std::max(alike_.least, held_ + size);
    return true;
  }
  std::optional<std::pair<std::uint64_t, std::uint64_t>> next_recorded() const {
    if (addresses_ != Addresses::recorded || recorded_ == nullptr || next_ >= recorded_->size())
      return std::nullopt;
    return (*recorded_)[next_];
  }
  bool is_free(std::uint64_t address, std::uint64_t size) const {
    const auto after = taken_.lower_bound(address);
    if (after != taken_.end() && after->first - address < size) return false;
    return after == taken_.begin() || address - std::prev(after)->first >= std::prev(after)->second;
  }
  std::uint64_t place(std::uint64_t size) {
    const auto recorded = next_recorded();
    ++next_;
    if (recorded && recorded->second == size && is_free(recorded->first, size)) {
      taken_[recorded->first] = size;
      layout_.take_at(recorded->first, size);
      return recorded->first;
    }
    return place_anew(size);
  }
  std::uint64_t place_anew(std::uint64_t size) {
    // A range of expandable segments takes more than the device has: there is room for millions.
    constexpr std::uint64_t kBase = std::uint64_t{1} << 62, kUnit = std::uint64_t{2} << 20;
    size = (size + kUnit - 1) / kUnit * kUnit;
    std::uint64_t at = kBase;
    if (is_as_driver()) {
      at = layout_.take(size);
    } else if (addresses_ == Addresses::ascending) {
      at = kBase + grown_;
      grown_ += size;
    } else if (addresses_ == Addresses::descending) {
      grown_ += size;
      at = kBase - grown_;
    } else {
      for (auto next = taken_.lower_bound(kBase); next != taken_.end() && next->first - at < size;
           ++next)
        at = next->first + next->second;
    }
    taken_[at] = size;
    return at;
  }
  void unplace(std::uint64_t address) {
    const auto taken = taken_.find(address);
    if (is_as_driver()) layout_.release(address, taken->second);
    taken_.erase(taken);
  }

  Addresses addresses_;
  std::uint64_t capacity_;
  const Segments* recorded_;
  std::uint64_t held_ = 0, grown_ = 0;
  std::size_t next_ = 0;
  Alike alike_;
  std::map<std::uint64_t, std::uint64_t> taken_;
  DriverLayout layout_{std::uint64_t{1} << 47};
};

}  // namespace emm::allocators
