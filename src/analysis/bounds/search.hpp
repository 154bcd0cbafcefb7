#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "bounds/instance.hpp"

namespace emm::bounds {

/// Places the items of one instance within a capacity, or proves that no layout exists, by
/// backtracking.
///
/// A state is a floor under each section and the set of items not yet placed. The search picks a
/// section with a low floor and asks which item begins exactly there. It tries each item that can
/// lie on that floor. Last it tries that no item begins there, which raises the floor to where the
/// next item could rest. So no two paths lead to the same layout, and the search reaches every
/// layout in which each item rests on the bottom or on another item.
///
/// The search gives up a state when some section cannot hold the items that are left, stacked in
/// the order of their lowest possible offsets. It remembers the states that it refuted. If the
/// items left fall into groups that no item connects, it places each group by itself, the smallest
/// first.
///
/// The order in which items are tried decides how soon an answer comes, so a failed run is worth
/// repeating with another order. One thread at a time. The instance must outlive it.
class Search {
 public:
  enum class Outcome : std::uint8_t { placed, infeasible, gave_up };
  /// Called every few hundred nodes. Returning true ends the search.
  using Stop = std::function<bool()>;

  Search(const Instance& instance, std::uint64_t capacity);

  struct Limits {
    std::uint64_t nodes;  ///< The run gives up after this many states.
    /// Chooses the section to ask about: the one with the least floor plus this many sixteenths of
    /// its spare bytes. Among equal ones, the section with the fewest answers wins.
    std::uint64_t spare_weight;
    bool waste_counts;  ///< Whether "no item begins here" counts as an answer in a section with
                        ///< spare bytes.
  };
  /// Tries the items in the order of `ranks`, least first. REQUIRES: a rank for each item, no two
  /// equal.
  Outcome run(const std::vector<std::uint32_t>& ranks, const Limits& limits, const Stop& stop);

  /// The offsets of the items, after run() placed them.
  const std::vector<std::uint64_t>& offsets() const noexcept { return offsets_; }
  /// How many states the last run() looked at.
  std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  using Items = std::vector<std::uint32_t>;
  using Floors = std::vector<std::uint64_t>;
  // A fingerprint of a state. It has 128 bits, since two states with one fingerprint would make a
  // proof false.
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
    std::uint64_t waste_to;  // the floor if no item begins there; kTooMany if nothing fits then
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
  std::vector<bool> has_equal_;  // by item: does it equal the item before it?
  std::vector<std::uint8_t> placed_;
  std::vector<std::uint64_t> offsets_;
  std::vector<std::uint32_t> ranks_;
  Limits limits_{};
  const Stop* stop_ = nullptr;
  std::uint64_t nodes_ = 0;
  bool stopped_ = false;
  std::unordered_set<Print, PrintHash> refuted_;  // holds for any ranks: kept between runs

  // The current state, by item and by section. Each node fills these before it reads them.
  std::vector<std::uint64_t> lowest_;
  std::vector<std::uint64_t> tops_;
  std::vector<std::uint32_t> answers_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> by_floor_;
};

}  // namespace emm::bounds
