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

/// Plays a sequence from its start on something, into a trail that is empty.
using Runner = std::function<void(const Sequence&, Trail&)>;

/// Returns a runner of a model that keeps `rules`. It reuses its memory from call to call.
Runner runner_of(const Rules& rules);

struct Mismatch {
  Sequence
      shortest;  ///< The operations that are still needed for it; its last is where they differ.
  std::size_t sequences = 0;  ///< Played until it was met, this one included.
  std::string story;          ///< Seed, operations, and both sides, for a person.
};

/// Plays `count` sequences on both, of the seeds from `first_seed` on, until the two differ.
std::optional<Mismatch> find_mismatch(const Runner& expected, const Runner& actual,
                                      std::uint64_t first_seed, std::size_t count);

/// Returns only those operations without which the two do not differ.
Sequence shrink(Sequence sequence, const Runner& expected, const Runner& actual);

}  // namespace emm::model
