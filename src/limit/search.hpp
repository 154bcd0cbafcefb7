#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "limit/instance.hpp"

namespace emm::limit {

/// Places the items of one instance within a capacity, or proves that nothing can, by backtracking.
///
/// A state is a floor under each section and the items not yet placed. The search takes a section
/// with a low floor and asks which item begins exactly there: each item in turn whose sections all
/// lie as low, and last that none does, which raises the floor to where the next one could rest. So
/// no two paths lead to the same layout, and every layout in which all items rest on something is
/// reached. A state is given up where a section cannot hold what is still to come: items in the
/// order of their own floors, each on top of the one before. States that were refuted are
/// remembered. Where the items left fall into groups that no item connects, the groups are placed
/// one by one, the smallest first.
///
/// The order in which items are tried decides how soon an answer comes: try again with another.
/// One thread at a time. The instance must outlive it.
class Search {
 public:
  enum class Outcome : std::uint8_t { placed, infeasible, gave_up };
  /// Asked every few hundred nodes; true ends the search.
  using Stop = std::function<bool()>;

  Search(const Instance& instance, std::uint64_t capacity);

  struct Limits {
    std::uint64_t nodes;  ///< Give up after so many states.
    /// Which section is asked about: the least of its floor plus so many sixteenths of the bytes
    /// that it has to spare; of equal ones, that with the fewest answers.
    std::uint64_t spare_weight;
    bool waste_counts;  ///< That nothing begins there is one of the answers, where there are bytes
                        ///< to spare.
  };
  /// `ranks` orders the items, least first. REQUIRES: a rank for each item, no two equal.
  Outcome run(const std::vector<std::uint32_t>& ranks, const Limits& limits, const Stop& stop);

  /// The offsets of the items, after run() placed them.
  const std::vector<std::uint64_t>& offsets() const noexcept { return offsets_; }
  /// States that the last run() looked at.
  std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  using Items = std::vector<std::uint32_t>;
  using Floors = std::vector<std::uint64_t>;
  // 128 bits: a state taken for another would make a proof false.
  struct Print {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Print&, const Print&) = default;
  };
  struct PrintHash {
    std::size_t operator()(const Print& print) const noexcept { return print.low; }
  };
  struct Question {
    std::uint32_t section;
    std::uint64_t
        waste_to;  // where the floor would be if nothing begins there; kTooMany: nothing fits
    Items answers;
  };

  Outcome descend(const Items& left, Floors& floors, std::size_t depth);
  Outcome place_group(const Items& left, Floors& floors, std::size_t depth);
  bool raise_floors(const Items& left, Floors& floors);
  Question ask(const Items& left, const Floors& floors) const;
  Print fingerprint(const Items& left, const Floors& floors) const;
  bool is_next_of_equals(std::uint32_t item) const {
    return !has_equal_[item] || placed_[item - 1] != 0;
  }

  const Instance& instance_;
  std::uint64_t capacity_;
  std::uint64_t unit_ = 0;       // divides every offset at which an item can rest
  std::vector<bool> has_equal_;  // to the item before
  std::vector<std::uint8_t> placed_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint32_t> ranks_;
  Limits limits_{};
  const Stop* stop_ = nullptr;
  std::uint64_t nodes_ = 0;
  bool stopped_ = false;
  std::unordered_set<Print, PrintHash> refuted_;  // whatever the ranks: kept from run to run

  // These describe the state at hand, by item and by section; each node fills them before it reads
  // them.
  std::vector<std::uint64_t> lowest_;
  std::vector<std::uint64_t> tops_;
  std::vector<std::uint32_t> answers_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_floor_;
};

}  // namespace emm::limit
