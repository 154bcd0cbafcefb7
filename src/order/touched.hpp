#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "order/frontier.hpp"

namespace emm::order {

/// An allocation of a trace, and what may touch its memory.
struct Block {
  std::uint32_t id = 0;
  bool live = true;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  bool reached_by(std::uint64_t begin, std::uint64_t end) const noexcept {
    return address < end && begin < address + size;
  }
  std::uint64_t born = 0;  ///< Event of the trace,
  std::uint64_t ended = 0;
  Point birth{};              ///< A mark on its own stream when it was handed out.
  std::vector<Point> uses{};  ///< The last on each stream; of a live one, those that a trace names.
  std::uint64_t number = 0;   ///< Of those on its device, from 1.
};

/// What a block has of memory that lies in one piece: one of several where it is mapped so.
struct Piece {
  std::uint64_t end = 0;  ///< The place after its last.
  std::shared_ptr<Block> block;
};

/// The memory of one device by place (places.hpp): what blocks that live have, and of those that
/// have ended what nobody has been given since. One thread at a time.
class Touched {
 public:
  using Which = std::function<bool(const Piece&)>;

  /// The live block of `id` that has a piece which begins at `begin`; null where there is none.
  Block* live(std::uint64_t begin, std::uint32_t id) noexcept;
  /// Calls `each` with every piece that has a place in [begin, end).
  void overlapping(std::uint64_t begin, std::uint64_t end,
                   const std::function<void(const Piece&)>& each) const;
  /// Forgets what the pieces of which `which` is true have in [begin, end).
  void carve(std::uint64_t begin, std::uint64_t end, const Which& which);
  /// Nothing else may be there.
  void add(std::uint64_t begin, Piece piece);
  /// Forgets what has ended and of which `over` is true.
  void sweep(const std::function<bool(const Block&)>& over);
  std::size_t size() const noexcept { return pieces_.size(); }

 private:
  using Pieces = std::map<std::uint64_t, Piece>;
  Pieces::const_iterator first(std::uint64_t begin) const;

  Pieces pieces_;
};

}  // namespace emm::order
