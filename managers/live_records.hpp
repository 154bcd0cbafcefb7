#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "driver/types.hpp"

namespace emm {

/// What kind of memory a manager has handed out. The kind decides how to free it.
enum class MemoryKind : std::uint8_t {
  device,         ///< memalloc
  managed,        ///< memallocmanaged
  host_mapped,    ///< memhostalloc, mapped
  host_pinned,    ///< memhostalloc
  pinned_mapped,  ///< mempin, mapped
  pinned,         ///< mempin
};
constexpr bool is_on_device(MemoryKind kind) noexcept {
  return kind == MemoryKind::device || kind == MemoryKind::managed;
}

struct LiveRecord {
  std::uint64_t address =
      0;                   ///< A device address for device and managed memory, else a host address.
  std::uint64_t size = 0;  ///< Bytes, as requested.
  MemoryKind kind = MemoryKind::device;
  std::uint32_t thread = 0;  ///< The number of the allocating thread, if the free needs it.
  StreamHandle stream{};     ///< The stream of the request, if the free needs it.
};

/// The live memory in the order of allocation, like numba's `allocations`. A cookie identifies a
/// record and is not reused. So a late finalizer, whose record a reset has taken, finds nothing,
/// even if the address is in use again. Every call is O(1); take() allocates nothing.
///
/// One thread at a time.
class LiveRecords {
 public:
  /// Adds a record and returns its cookie. Empty if the address is already alive (BASE-10). Host
  /// and device addresses never collide.
  std::optional<std::uint64_t> add(const LiveRecord& record);
  /// Removes and returns the record; empty if the cookie's record is gone.
  std::optional<LiveRecord> take(std::uint64_t cookie) noexcept;
  /// Removes and returns the oldest record, if it was added before mark() returned `mark`.
  std::optional<LiveRecord> take_first(std::uint64_t mark) noexcept;
  std::uint64_t mark() const noexcept { return added_; }

  std::size_t size() const noexcept { return size_; }
  /// The bytes of device and managed memory.
  std::uint64_t device_bytes() const noexcept { return device_bytes_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};  // no slot
  struct Slot {
    LiveRecord record;
    std::uint64_t number = 0;      ///< The record is the number-th that was added, counted from 1.
    std::uint32_t generation = 0;  ///< Odd while alive.
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;  ///< In an idle slot, the next idle one.
  };
  LiveRecord remove(std::uint32_t at) noexcept;

  std::vector<Slot> slots_;
  std::unordered_set<std::uint64_t> addresses_;
  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
  std::uint32_t idle_ = kNone;
  std::size_t size_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t device_bytes_ = 0;
};

}  // namespace emm
