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

/// Memory that the driver gave in one piece: a physical handle, mapped at `address`, or what
/// cuMemAlloc gave.
struct Span {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  PhysicalHandle handle{};  ///< 0 of cuMemAlloc.
  std::uint64_t end() const noexcept { return address + size; }
};

inline Error full() noexcept { return {.code = Errc::out_of_memory, .native = 2}; }

inline std::uint64_t size_of(std::span<const Span> spans) noexcept {
  std::uint64_t size = 0;
  for (const auto& span : spans) size += span.size;
  return size;
}

/// Where the arenas of one pool have their memory from, all together no more than `max` bytes.
/// Whatever fails leaves all as it was, as far as the driver lets it: what it refuses to take back
/// is in take_failures(). Any thread may call.
class Backing {
 public:
  /// vmm: physical handles in reserved addresses, so that memory which is free in pieces can be
  /// mapped as one. cumem: cuMemAlloc, whose memory 64-byte IPC handles can name.
  enum class Kind : std::uint8_t { vmm, cumem };
  static constexpr std::uint64_t kPage = std::uint64_t{2}
                                         << 20;  ///< What the driver gives comes in these (H200).

  static constexpr std::uint64_t in_pages(std::uint64_t size) noexcept {
    return (size + kPage - 1) & ~(kPage - 1);
  }

  /// `asked_for` empty: vmm, or cumem where the device has no virtual memory to offer.
  Backing(Driver* driver, std::optional<Kind> asked_for, std::uint64_t max) noexcept
      : driver_(driver), kind_(asked_for), max_(max) {}

  /// Asks the device at the first need.
  Kind kind() noexcept;
  std::uint64_t max() const noexcept { return max_; }
  /// So many bytes more are within `max`, or may be once the driver has answered others.
  bool allows(std::uint64_t size) const noexcept;
  std::uint64_t reserved_bytes() const noexcept {
    return reserved_.load(std::memory_order_acquire);
  }
  std::uint64_t peak_reserved_bytes() const noexcept {
    return peak_.load(std::memory_order_relaxed);
  }
  /// Ever.
  std::uint64_t total_reserved_bytes() const noexcept {
    return total_.load(std::memory_order_relaxed);
  }
  /// Pieces that the driver gave, ever, and those that it was given back.
  std::uint64_t given() const noexcept { return given_.load(std::memory_order_relaxed); }
  std::uint64_t given_back() const noexcept { return given_back_.load(std::memory_order_relaxed); }
  /// Ranges of addresses, the same.
  std::uint64_t ranges_given_back() const noexcept {
    return ranges_given_back_.load(std::memory_order_relaxed);
  }

  /// All that the device has, once somebody was told.
  std::uint64_t device() const noexcept { return device_.load(std::memory_order_relaxed); }
  void device_has(std::uint64_t total) noexcept { device_.store(total, std::memory_order_relaxed); }
  /// How many arenas have addresses of it; at least 1.
  unsigned sharers() const noexcept {
    return std::max(1u, sharers_.load(std::memory_order_relaxed));
  }
  void is_shared_by_another() noexcept { sharers_.fetch_add(1, std::memory_order_relaxed); }
  void is_shared_by_one_less() noexcept { sharers_.fetch_sub(1, std::memory_order_relaxed); }

  /// Where this failed, there is no caller to answer: for take_failures().
  void note(Status done);
  /// What failed so since the last call.
  std::vector<Error> take_failures();
  /// How many failures there have been.
  std::uint64_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }

  // vmm
  Result<DevicePtr> reserve_addresses(std::uint64_t size) {
    return driver_->mem_address_reserve(size);
  }
  void free_addresses(DevicePtr base, std::uint64_t size) {
    note(driver_->mem_address_free(base, size));
    ranges_given_back_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Handles of `sizes` bytes, mapped one behind the other from `address` on, and appended to
  /// `spans`. The memory of those `behind` is mapped besides, behind them.
  Status create(std::uint64_t address, std::span<const std::uint64_t> sizes,
                std::span<const Span> behind, std::vector<Span>& spans);
  /// The memory of `spans`, one behind the other, at addresses of their own besides.
  Result<DevicePtr> map_again(std::span<const Span> spans);
  /// Ends what map_again() gave, or create() behind its own, but for the addresses. Nobody may be
  /// using it.
  void unmap(DevicePtr base, std::span<const Span> spans);

  // cumem
  Result<Span> allocate(std::uint64_t size);

  /// Back to the device. Nobody may be using it, except that cuMemFree waits by itself. It is no
  /// longer counted, also where that fails.
  void give_back(const Span& span);

 private:
  Status count(std::uint64_t size) noexcept;
  void discount(std::uint64_t size) noexcept {
    reserved_.fetch_sub(size, std::memory_order_acq_rel);
  }
  /// What count() counted, and the driver did not give.
  void undo(std::uint64_t size) noexcept;
  void has_given(std::size_t pieces, std::uint64_t size) noexcept;
  Status map(std::uint64_t address, std::span<const Span> spans);

  Driver* driver_;
  std::mutex deciding_;
  std::optional<Kind> kind_;
  std::atomic<bool> decided_{false};
  std::uint64_t max_;
  std::atomic<unsigned> sharers_{0};
  std::atomic<std::uint64_t> reserved_{0};
  std::atomic<std::uint64_t> asked_{0};   ///< Bytes of it that the driver has not given yet.
  std::atomic<std::uint64_t> undone_{0};  ///< How often it did not.
  std::atomic<std::uint64_t> peak_{0};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> given_{0};
  std::atomic<std::uint64_t> given_back_{0};
  std::atomic<std::uint64_t> ranges_given_back_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> device_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> taken_{0};  ///< Of them.
  std::mutex noting_;
  std::vector<Error> noted_;
};

}  // namespace emm::pool
