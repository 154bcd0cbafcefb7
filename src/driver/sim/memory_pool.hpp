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

/// One stream-ordered pool: memory that it reserves from its device and hands out in the order of
/// streams.
///
/// A stream gets at once what it freed itself and what is free for everyone. It gets what others
/// freed where it waits for the free (reuse_follow_event_dependencies) or the free is done
/// (reuse_allow_opportunistic; without it, finished frees become anyone's at a synchronisation
/// only). Else the pool grows. Where it cannot grow, the pool makes the stream wait for another's
/// free (reuse_allow_internal_dependencies). (CUDA programming guide, stream ordered memory
/// allocator.)
///
/// Measured on an H200: a pool is one row of pieces of 32 MiB. It grows by whole pieces, which go
/// on where its last free bytes begin, and each of them is released by itself; a trim keeps no less
/// than it is to, a synchronisation no more than the threshold; blocks begin at multiples of 512
/// bytes.
///
/// Found in the addresses that an H200 gave to recorded programs (driver 580.159.04, CUDA 13.0):
/// what a stream freed since it was last given other work is a store of its own. A block takes the
/// smallest range that fits there; else the smallest other one, but not the last of the row; else
/// that store is given up, and it looks again. Where nothing fits, the pool takes the smallest gap
/// in the row that is large enough, where the end of the row counts as the largest. It fills the
/// gap with idle pieces, the highest first, which it unmaps and maps there, and with new ones.
/// Pieces at the peak, on the H200 and here: GPT-2 210, 210, and the same after each of 92,688
/// operations; ResNet-50 238, 237; MLP 7, 7; linear algebra 147, 148; a model of 2.6 G parameters
/// 302, 302, each block of 18,692 at the same place. The same where memory is filled between: 208,
/// 209; 231, 229; 6, 6; 140, 142; 203, 211. Which idle pieces are taken is what is not known.
///
/// One thread at a time.
class MemoryPool {
 public:
  /// `max_size` 0: no limit but the device's.
  MemoryPool(SimPlatform& platform, Asker owner, std::uint64_t max_size) noexcept
      : platform_(platform), owner_(owner), max_size_(max_size) {}

  int device() const noexcept { return owner_.device; }

  bool owns(std::uint64_t address) const {
    const auto next = pieces_.upper_bound(address);
    return next != pieces_.begin() && address - std::prev(next)->first < kPiece;
  }

  /// REQUIRES: size > 0. `point` is where the stream stands.
  Answer<DevicePtr> allocate(std::uint64_t size, Point point);
  /// Ends an allocation of `size` bytes. The memory is free after `point`, or for everyone where
  /// that is of stream 0. `before` is where the stream stood.
  void free(std::uint64_t at, std::uint64_t size, Point before, Point point);
  /// Ends the `recent` mark of what the stream freed last, since it was given other work.
  void end_recent(std::uint64_t stream);
  /// Releases idle pieces while no less than `keep` bytes are left.
  void trim(std::uint64_t keep);
  /// Releases idle memory above the threshold, as a synchronisation by the host does.
  void synchronized();

  std::int32_t set(PoolAttribute attribute, std::uint64_t value);
  Answer<std::uint64_t> get(PoolAttribute attribute) const;

  /// Releases what is idle, and from then on keeps nothing.
  void destroy() {
    threshold_ = 0;
    trim(0);
  }
  bool is_empty() const noexcept { return reserved_ == 0; }

 private:
  static constexpr std::uint64_t kPiece = std::uint64_t{32} << 20;

  bool policy(PoolAttribute attribute) const noexcept {
    return policies_[static_cast<std::size_t>(attribute)];
  }
  std::optional<FreeRanges::FreeRange> find(std::uint64_t size, Point point);
  void end_recent_before_work(Point point);
  /// The start of a block for which no free range has room, and the pieces that are missing there.
  struct Growth {
    std::uint64_t at = 0;
    std::vector<std::uint64_t> lacking;
  };
  std::optional<Growth> place(std::uint64_t size, std::uint64_t stream) const;
  /// Adds the pieces that the idle ones outside of the block cannot fill. False: nothing has
  /// changed.
  bool add_pieces(const Growth& growth, std::uint64_t size, std::uint64_t& spent_ns);
  std::optional<std::uint64_t> grow(std::uint64_t size, std::uint64_t stream,
                                    std::uint64_t& spent_ns);
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
  /// Makes finished frees anyone's memory, but for what is recent on stream `but`.
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
  std::uint64_t row_ = 0;  // where its addresses begin, while it has memory
  std::map<std::uint64_t, PhysicalHandle> pieces_;  // by address
  std::set<std::uint64_t> idle_;                    // the pieces that are anyone's as a whole
  FreeRanges free_;
  std::map<std::uint64_t, std::uint64_t> last_free_;  // the number of its last free, by stream
};

}  // namespace emm::sim
