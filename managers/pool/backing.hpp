#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "driver/driver.hpp"

namespace emm::pool {

/// Memory that the driver gave in one piece: a physical handle that is mapped at `address`, or a
/// slab from cuMemAlloc.
struct Span {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  PhysicalHandle handle{};  ///< 0 if cuMemAlloc gave the span.
  std::uint64_t end() const noexcept { return address + size; }
};

inline Error full() noexcept { return {.code = Errc::out_of_memory, .native = 2}; }
inline bool is_out_of_memory(const Error& error) noexcept {
  return error.code == Errc::out_of_memory;
}

inline std::uint64_t size_of(std::span<const Span> spans) noexcept {
  std::uint64_t size = 0;
  for (const auto& span : spans) size += span.size;
  return size;
}

/// Gets memory from the driver for the arenas of one pool, together at most `max` bytes.
///
/// A call that fails undoes what it did. If the driver refuses the undoing too, take_failures()
/// returns that error, since no caller can receive it. Any thread may call.
class Backing {
 public:
  /// vmm: physical handles in reserved addresses, which can be stitched. cumem: cuMemAlloc, whose
  /// memory 64-byte IPC handles can name.
  enum class Kind : std::uint8_t { vmm, cumem };
  static constexpr std::uint64_t kPage = std::uint64_t{2}
                                         << 20;  ///< The granularity of handles (H200).

  static constexpr std::uint64_t in_pages(std::uint64_t size) noexcept {
    return (size + kPage - 1) & ~(kPage - 1);
  }

  /// An empty `asked_for` means vmm, or cumem on a device without virtual memory management.
  /// `lends`: arenas lend one another what is idle.
  Backing(Driver* driver, std::optional<Kind> asked_for, std::uint64_t max, bool lends) noexcept
      : driver_(driver), kind_(asked_for), max_(max), lends_(lends) {}

  bool lends() const noexcept { return lends_; }

  /// The first call asks the device.
  Kind kind() noexcept;
  std::uint64_t max() const noexcept { return max_; }
  /// Answers whether `size` more bytes are within `max`, or may be once the driver has answered
  /// other threads.
  bool allows(std::uint64_t size) const noexcept;
  std::uint64_t reserved_bytes() const noexcept {
    return reserved_.load(std::memory_order_acquire);
  }
  void reset_peak() noexcept { peak_.store(reserved_bytes(), std::memory_order_relaxed); }
  std::uint64_t peak_reserved_bytes() const noexcept {
    return peak_.load(std::memory_order_relaxed);
  }
  /// All bytes that the driver ever gave.
  std::uint64_t total_reserved_bytes() const noexcept {
    return total_.load(std::memory_order_relaxed);
  }
  /// How many spans the driver ever gave, and how many of them were released.
  std::uint64_t spans_made() const noexcept { return spans_made_.load(std::memory_order_relaxed); }
  std::uint64_t spans_released() const noexcept {
    return spans_released_.load(std::memory_order_relaxed);
  }
  /// How often a stream was made to wait for a free on another.
  std::uint64_t stream_waits() const noexcept {
    return stream_waits_.load(std::memory_order_relaxed);
  }
  void note_stream_wait() noexcept { stream_waits_.fetch_add(1, std::memory_order_relaxed); }
  /// How many address ranges were ever freed.
  std::uint64_t ranges_freed() const noexcept {
    return ranges_freed_.load(std::memory_order_relaxed);
  }

  /// All bytes of the device; the largest number before set_device_bytes().
  std::uint64_t device() const noexcept { return device_.load(std::memory_order_relaxed); }
  void set_device_bytes(std::uint64_t total) noexcept {
    device_.store(total, std::memory_order_relaxed);
  }
  /// How many arenas have reserved addresses; at least 1.
  unsigned sharers() const noexcept {
    return std::max(1u, sharers_.load(std::memory_order_relaxed));
  }
  void add_sharer() noexcept { sharers_.fetch_add(1, std::memory_order_relaxed); }
  void remove_sharer() noexcept { sharers_.fetch_sub(1, std::memory_order_relaxed); }

  /// Keeps a failure that no caller receives for take_failures().
  void note(Status done);
  /// The failures that were noted since the last call.
  std::vector<Error> take_failures();
  /// How many failures were ever noted.
  std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }

  // vmm
  Result<DevicePtr> reserve_addresses(std::uint64_t size) {
    return driver_->mem_address_reserve(size);
  }
  void free_addresses(DevicePtr base, std::uint64_t size) {
    note(driver_->mem_address_free(base, size));
    ranges_freed_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Makes handles of `sizes` bytes, maps them one behind the other from `address` on, and appends
  /// them to `spans`. Maps the memory of `aliased_behind` a second time, behind the new spans.
  Status create(std::uint64_t address, std::span<const std::uint64_t> sizes,
                std::span<const Span> aliased_behind, std::vector<Span>& spans);
  /// Maps the memory of `spans` a second time, one behind the other, in a new address range.
  Result<DevicePtr> map_alias(std::span<const Span> spans);
  /// Unmaps what map_alias() or create() mapped a second time. No work may be using it. Keeps the
  /// addresses.
  void unmap(DevicePtr base, std::span<const Span> spans);

  // cumem
  Result<Span> allocate(std::uint64_t size);

  /// Releases a span to the driver. No work may be using it, unless it came from cuMemAlloc:
  /// cuMemFree waits by itself. The span no longer counts as reserved, even if the release fails.
  void release(const Span& span);

 private:
  Status count(std::uint64_t size) noexcept;  ///< Before the driver is asked.
  void discount(std::uint64_t size) noexcept {
    reserved_.fetch_sub(size, std::memory_order_acq_rel);
  }
  void undo_count(std::uint64_t size) noexcept;  ///< After the driver refused.
  void confirm_count(std::size_t spans, std::uint64_t size) noexcept;  ///< After the driver gave.
  Status map(std::uint64_t address, std::span<const Span> spans);

  Driver* driver_;
  std::mutex deciding_;
  std::optional<Kind> kind_;
  std::atomic<bool> decided_{false};
  std::uint64_t max_;
  const bool lends_;
  std::atomic<unsigned> sharers_{0};
  std::atomic<std::uint64_t> reserved_{0};
  std::atomic<std::uint64_t> asked_{0};   ///< Bytes of reserved_ that the driver has not given yet.
  std::atomic<std::uint64_t> undone_{0};  ///< How often the driver refused.
  std::atomic<std::uint64_t> peak_{0};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> spans_made_{0};
  std::atomic<std::uint64_t> spans_released_{0};
  std::atomic<std::uint64_t> stream_waits_{0};
  std::atomic<std::uint64_t> ranges_freed_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> device_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> taken_{0};  ///< How many failures take_failures() has given.
  std::mutex noting_;
  std::vector<Error> noted_;
};

}  // namespace emm::pool
