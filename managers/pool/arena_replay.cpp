// The replay of the last generation: a request that came before gets the same stitched block.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

// Serves the request as the last generation did, if that generation made the same request in the
// same state and the same memory is free. Does not look at other free memory.
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

// Activates spans until at least `needed` are active, run by run.
void Arena::activate_next_run(std::uint32_t needed) {
  while (spans_.active_count() < needed) activate(spans_.next_run_before(needed));
}

// Records that no mapping held the request here, so that the next generation need not look.
void Arena::remember_growth(std::uint64_t wanted, std::uint32_t active_before) {
  stitches_.remember({.wanted = wanted,
                      .mapping = kNone,
                      .active_before = active_before,
                      .active_needed = active_before},
                     {});
}

}  // namespace emm::pool
