#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "driver/types.hpp"

namespace emm {

/// What a manager has handed out and how it is to be ended.
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
  std::uint64_t address = 0;  ///< The device's for device and managed memory, else the host's.
  std::uint64_t size = 0;     ///< Bytes, as requested.
  MemoryKind kind = MemoryKind::device;
  std::uint32_t thread = 0;  ///< The number of the one that asked for it, where its end needs it.
  StreamHandle stream{};     ///< That it was asked for on, where its end needs it.
};

/// numba's `allocations`: the memory that is alive, in the order in which it was made. A record is
/// named by a cookie that is never used again, so a finalizer that comes late, after a reset has
/// taken its record, finds nothing, whoever has the address by then. All but ordered walks are
/// O(1); take() allocates nothing.
///
/// One thread at a time.
class LiveRecords {
 public:
  /// Empty where the address is alive already (BASE-10); addresses of host and device do not mix.
  std::optional<std::uint64_t> add(const LiveRecord& record);
  /// Removes and returns the record; empty where the cookie is of one that is gone.
  std::optional<LiveRecord> take(std::uint64_t cookie) noexcept;
  /// Removes and returns the oldest, if it was added no later than `mark`: a mark() taken before.
  std::optional<LiveRecord> take_first(std::uint64_t mark) noexcept;
  std::uint64_t mark() const noexcept { return added_; }

  std::size_t size() const noexcept { return size_; }
  /// Bytes of device and managed memory.
  std::uint64_t device_bytes() const noexcept { return device_bytes_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Slot {
    LiveRecord record;
    std::uint64_t number = 0;      ///< Counts the records that were added, from 1.
    std::uint32_t generation = 0;  ///< Odd while alive.
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;  ///< Links an idle slot to the next idle one.
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
