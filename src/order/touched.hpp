#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "order/frontier.hpp"

namespace emm::order {

/// Memory that a trace was given, and what may touch it.
struct Block {
  std::uint64_t end = 0;  ///< The address after its last.
  std::uint32_t id = 0;
  bool live = true;
  std::uint64_t born = 0;  ///< Event of the trace,
  std::uint64_t ended = 0;
  Point birth{};              ///< A mark on its own stream when it was handed out.
  std::vector<Point> uses{};  ///< The last on each stream; of a live one, those that a trace names.
};

/// The blocks of one device by address: those that live, and of those that have ended what nobody
/// has been given since. One thread at a time.
class Touched {
 public:
  using Blocks = std::map<std::uint64_t, Block>;

  /// The live block of `id` that begins at `begin`; null where there is none.
  Block* live(std::uint64_t begin, std::uint32_t id) noexcept;
  /// Calls `each` with every block that has an address in [begin, end).
  void overlapping(std::uint64_t begin, std::uint64_t end,
                   const std::function<void(const Block&)>& each) const;
  /// Forgets what blocks, live ones too where `also_live`, have in [begin, end).
  void carve(std::uint64_t begin, std::uint64_t end, bool also_live);
  void add(std::uint64_t begin, Block block);
  /// Forgets what has ended and of which `over` is true.
  void sweep(const std::function<bool(const Block&)>& over);
  void clear() noexcept { blocks_.clear(); }
  std::size_t size() const noexcept { return blocks_.size(); }

 private:
  Blocks::const_iterator first(std::uint64_t begin) const;

  Blocks blocks_;
};

}  // namespace emm::order
