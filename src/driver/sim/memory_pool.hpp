#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "driver/sim/answer.hpp"
#include "driver/sim/free_ranges.hpp"
#include "driver/sim/scheduler.hpp"

namespace emm::sim {

/// One stream-ordered pool: memory that it reserves from its device, and hands out in the order of
/// streams.
///
/// A stream gets at once what it freed itself, and what is free for everyone. What others freed it
/// gets where it waits for the free (reuse_follow_event_dependencies) or the free is done
/// (reuse_allow_opportunistic; without it what is done is anyone's after a synchronisation only).
/// Then the pool grows, and where it cannot, the stream is made to wait for another's free
/// (reuse_allow_internal_dependencies). (CUDA programming guide, stream ordered memory allocator.)
///
/// Measured on an H200: a pool is one row of pieces of 32 MiB. It grows by whole pieces, which go
/// on where its last free bytes begin, and each of them goes back alone; a trim keeps no less than
/// it is to, a synchronisation no more than the threshold; blocks begin at multiples of 512 bytes.
///
/// A model: a block takes the smallest hole, the highest of equal ones. Where it fits in none, idle
/// pieces (the highest first) are mapped anew where it is to lie, and the device is asked for the
/// rest only; a gap in the row is filled again, the lowest first. Pieces at the peaks of recorded
/// programs, here and on an H200 (driver 580.159.04, CUDA 13.0): GPT-2 204, 208; ResNet-50 226,
/// 231; MLP 6, 6; one that runs out of memory 103, 104; linear algebra 144, 140. Not followed: a
/// model of 2.6 G parameters, of which many single pieces are left idle, 172, 203.
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
  /// Ends an allocation of `size` bytes; free after `point`, or for everyone where that is of
  /// stream 0.
  void free(std::uint64_t at, std::uint64_t size, Point point);
  /// Gives back pieces that nobody uses while no less than `keep` bytes are left.
  void trim(std::uint64_t keep);
  /// What a synchronisation of the host's does: above the threshold, idle memory goes back.
  void synchronized();

  std::int32_t set(PoolAttribute attribute, std::uint64_t value);
  Answer<std::uint64_t> get(PoolAttribute attribute) const;

  /// From then on nothing idle is kept.
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
  std::optional<FreeRanges::Range> find(std::uint64_t size, Point point);
  /// Where a block begins, the free bytes that it begins with, and the addresses of the pieces that
  /// it lacks: [first, end).
  struct Growth {
    std::optional<FreeRanges::Range> free_before;
    std::uint64_t at = 0, first = 0, end = 0;
  };
  std::optional<Growth> place(std::uint64_t size, std::uint64_t stream) const;
  /// Maps idle pieces, then added ones, where they lack. False: nothing has changed.
  bool fill(const Growth& growth, std::uint64_t& spent_ns);
  std::optional<std::uint64_t> grow(std::uint64_t size, std::uint64_t stream,
                                    std::uint64_t& spent_ns);
  bool add_piece(std::uint64_t at, std::uint64_t& spent_ns);
  void drop_piece(std::uint64_t at);
  void move_highest(std::uint64_t to, std::uint64_t& spent_ns);
  void take(const FreeRanges::Range& range, std::uint64_t size);
  void give_to_everyone();
  void add(const FreeRanges::Range& range);
  void give_back_highest();

  SimPlatform& platform_;
  const Asker owner_;
  const std::uint64_t max_size_;
  std::array<bool, 4> policies_{true, true, true, true};  // by attribute
  std::uint64_t threshold_ = 0;
  std::uint64_t reserved_ = 0, reserved_high_ = 0;
  std::uint64_t used_ = 0, used_high_ = 0;
  std::uint64_t row_ = 0;                           // its addresses, while it has memory
  std::map<std::uint64_t, PhysicalHandle> pieces_;  // by address
  std::set<std::uint64_t> idle_;                    // of these, all of which is anyone's
  FreeRanges free_;
};

}  // namespace emm::sim
