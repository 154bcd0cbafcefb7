// The replay of the last generation: a request that came before gets the same stitched block.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

// Serves the request as the last generation did, if that asked for the same in the same state and
// the same memory is free: without a look at what else there is.
Arena::Allocation Arena::replay_stitch(const Request& request) {
  const auto* const record = stitches_.expected(request.wanted, spans_.active_count());
  if (record == nullptr) return {};
  activate_next_run(record->active_needed);
  const auto parts = stitches_.expected_parts();
  const bool are_free = std::all_of(parts.begin(), parts.end(), [&](const StitchedPart& part) {
    return blocks_.is_free_and_holds(part.block, part.start, part.end);
  });
  if (!are_free) return {};
  return use_parts(*record, request.size, parts);
}

// Activates spans until so many are active, and those that are next in their run with them.
void Arena::activate_next_run(std::uint32_t needed) {
  while (spans_.active_count() < needed) activate(spans_.next_run_before(needed));
}

// No mapping held the request here: the next generation need not look.
void Arena::remember_growth(std::uint64_t wanted, std::uint32_t active_before) {
  stitches_.remember({.wanted = wanted,
                      .mapping = kNone,
                      .active_before = active_before,
                      .active_needed = active_before},
                     {});
}

}  // namespace emm::pool
