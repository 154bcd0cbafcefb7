#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "conformance/model/contract_model.hpp"
#include "conformance/model/operation.hpp"
#include "conformance/model/trail.hpp"

namespace emm::model {

/// Plays a sequence from its start and writes to an empty trail.
using Runner = std::function<void(const Sequence&, Trail&)>;

/// Returns a runner of a model with `rules`. It reuses its memory between calls.
Runner runner_of(const Rules& rules);

struct Mismatch {
  /// The operations that are still needed to show the mismatch. The last one is where the two
  /// differ.
  Sequence shortest;
  std::size_t sequences = 0;  ///< How many were played until the mismatch, this one included.
  std::string story;          ///< Seed, operations and both sides, to be read by a person.
};

/// Plays up to `count` sequences on both, with seeds from `first_seed` on, until the two differ.
std::optional<Mismatch> find_mismatch(const Runner& expected, const Runner& actual,
                                      std::uint64_t first_seed, std::size_t count);

/// Removes every operation that the difference does not need.
Sequence shrink(Sequence sequence, const Runner& expected, const Runner& actual);

}  // namespace emm::model
