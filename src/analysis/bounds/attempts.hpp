#pragma once

#include <cstdint>
#include <vector>

#include "bounds/instance.hpp"

namespace emm::bounds {

/// The orders in which the attempts of a search try the items: first a few that are good on many
/// inputs, then seeded mixtures of the same measures. It computes with integers only, so the orders
/// are the same on every machine and with every compiler. The instance must outlive it.
class Attempts {
 public:
  explicit Attempts(const Instance& instance);

  /// The rank of each item in attempt `number`, counted from 0.
  std::vector<std::uint32_t> ranks(std::uint64_t number) const;
  /// How many nodes attempt `number` may take. Most attempts get few and some get many (Luby's
  /// sequence), since a good order meets few dead ends.
  std::uint64_t nodes(std::uint64_t number) const;

 private:
  const Instance& instance_;
  std::vector<std::uint64_t> contention_;  // by item: the most live bytes in any section of it
};

}  // namespace emm::bounds
