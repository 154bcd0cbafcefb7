#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocators/pool_plan.hpp"
#include "base/clock.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// A plan for a trace, and what of the trace it is for.
struct Planned {
  struct Stream {
    std::uint64_t requests = 0;  ///< The trace's. The plan has fewer if the program repeats them.
  };
  allocators::PoolPlan plan;
  std::vector<Stream> streams;  ///< Beside plan.streams.
};

/// Places the requests for device memory offline, with every lifetime known beforehand. A request
/// that the recording refused counts until the next one. Each stream is placed by itself, since a
/// pool sees no order between streams.
///
/// If the last requests of a stream repeat a period at least twice, the plan has the requests
/// before them and one period; each place is then free for as long as any repetition needs it. If
/// such a layout is more than 1 % and a page above the peak, the plan has all requests.
///
/// Requests beyond the most that a plan has, and streams of more than 2^50 bytes, are left out. The
/// search for layouts ends after `search_ns` of `clock`. REQUIRES: can_be_summed(); `alignment` is
/// a power of two, at most a page.
Planned plan(const trace::Lifetimes& lifetimes, const Clock& clock, std::uint64_t search_ns,
             std::uint64_t alignment, trace::CountedRequests asked = trace::CountedRequests::all);

std::string to_text(const Planned& planned);

}  // namespace emm::inspect
