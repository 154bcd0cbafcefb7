#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "driver/sim/answer.hpp"
#include "driver/sim/free_ranges.hpp"
#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// A stream-ordered pool: reserves memory from its device, and allocates it in the order of
/// streams.
///
/// A stream may reuse at once the memory that it freed itself, and memory that is free for every
/// stream. It may reuse other streams' frees that it waits for (reuse_follow_event_dependencies) or
/// that are done (reuse_allow_opportunistic; without it, finished frees become free for every
/// stream only at a synchronisation). Else the pool grows. If it cannot grow, it makes the stream
/// wait for another's free (reuse_allow_internal_dependencies). (CUDA programming guide, stream
/// ordered memory allocator.)
///
/// Measured on an H200: a pool is one row of pieces of 32 MiB. It grows by whole pieces, with the
/// new block beginning in its last free bytes, and releases each piece separately. A trim leaves at
/// least `keep` bytes, a synchronisation at most the threshold. Blocks begin at multiples of 512
/// bytes.
///
/// Inferred from the addresses that an H200 gave to recorded programs (driver 580.159.04, CUDA
/// 13.0): the memory that a stream freed since it was last given other work is a separate store. A
/// block takes the smallest range that fits there; else the smallest other range, except the last
/// of the row; else the store is dissolved and the search repeated. If nothing fits, the pool takes
/// the smallest gap in the row that is large enough; the end of the row counts as the largest. It
/// fills the gap with idle pieces, the highest first, which it unmaps and maps there, and with new
/// pieces. Pieces at the peak, on the H200 and here: GPT-2 210, 210, and equal after each of 92,688
/// operations; ResNet-50 238, 237; MLP 7, 7; linear algebra 147, 148; a model of 2.6 G parameters
/// 302, 302, with each of 18,692 blocks at the same place. If programs fill memory between: 208,
/// 209; 231, 229; 6, 6; 140, 142; 203, 211. It is unknown which idle pieces the H200 takes.
///
/// One thread at a time.
class MemoryPool {
 public:
  /// `max_size` 0 means no limit except the device's.
  MemoryPool(SimPlatform& platform, Asker owner, std::uint64_t max_size) noexcept
      : platform_(platform), owner_(owner), max_size_(max_size) {}

  int device() const noexcept { return owner_.device; }

  bool owns(std::uint64_t address) const {
    const auto next = pieces_.upper_bound(address);
    return next != pieces_.begin() && address - std::prev(next)->first < kPiece;
  }

  /// REQUIRES: size > 0. `point` is the last work of the stream.
  Answer<DevicePtr> allocate(std::uint64_t size, Point point);
  /// Ends an allocation of `size` bytes. The memory is free after `point`, or for every stream if
  /// `point` is of stream 0. `before` is the last work of the stream before the free.
  void free(std::uint64_t at, std::uint64_t size, Point before, Point point);
  /// Ends the `recent` mark of the stream's last frees, because it was given other work.
  void end_recent(std::uint64_t stream);
  /// Releases idle pieces as long as at least `keep` bytes are left.
  void trim(std::uint64_t keep);
  /// Releases idle memory above the threshold, as a synchronisation by the host does.
  void synchronized();

  std::int32_t set(PoolAttribute attribute, std::uint64_t value);
  Answer<std::uint64_t> get(PoolAttribute attribute) const;

  /// Releases idle memory, and from then on keeps none.
  void destroy() {
    threshold_ = 0;
    trim(0);
  }
  bool is_empty() const noexcept { return reserved_ == 0; }

 private:
  // Bytes: what an H200's pool takes from the device at a time.
  static constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

  bool policy(PoolAttribute attribute) const noexcept {
    return policies_[static_cast<std::size_t>(attribute)];
  }
  std::optional<FreeRanges::FreeRange> find(std::uint64_t size, Point point);
  void end_recent_before_work(Point point);
  /// The place of a block for which no free range has room, and the pieces that are missing there.
  struct Growth {
    std::uint64_t at = 0;
    std::vector<std::uint64_t> lacking;
  };
  std::optional<Growth> place(std::uint64_t size, std::uint64_t stream) const;
  /// Adds the missing pieces that idle pieces outside of the block cannot replace. If it returns
  /// false, nothing has changed.
  bool add_pieces(const Growth& growth, std::uint64_t size, std::uint64_t& spent_ns);
  std::optional<std::uint64_t> grow(std::uint64_t size, std::uint64_t stream,
                                    std::uint64_t& spent_ns);
  static std::uint64_t piece_ns();
  bool add_piece(std::uint64_t at, std::uint64_t& spent_ns);
  void drop_piece(std::uint64_t at);
  void move_highest(std::uint64_t to, std::uint64_t& spent_ns);
  void take(std::uint64_t at, std::uint64_t size);
  std::uint64_t piece_of(std::uint64_t at) const noexcept {
    return row_ + (at - row_) / kPiece * kPiece;
  }
  std::uint64_t top() const noexcept {
    return pieces_.empty() ? row_ : std::prev(pieces_.end())->first + kPiece;
  }
  /// Makes finished frees free for every stream, except recent ones of stream `but`.
  void share_finished(std::uint64_t but = 0);
  void add(const FreeRanges::FreeRange& range);
  void release_highest();

  SimPlatform& platform_;
  const Asker owner_;
  const std::uint64_t max_size_;
  std::array<bool, 4> policies_{true, true, true, true};  // by attribute
  std::uint64_t threshold_ = 0;
  std::uint64_t reserved_ = 0, reserved_high_ = 0;
  std::uint64_t used_ = 0, used_high_ = 0;
  std::uint64_t row_ = 0;                           // the start of the row, while it has memory
  std::map<std::uint64_t, PhysicalHandle> pieces_;  // by address
  std::set<std::uint64_t> idle_;  // the pieces that are wholly free for every stream
  FreeRanges free_;
  std::map<std::uint64_t, std::uint64_t> last_free_;  // the number of each stream's last free
};

}  // namespace emm::sim
