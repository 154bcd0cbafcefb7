#pragma once

#include <cstdint>

#include "inspect/lifetimes.hpp"

namespace emm::inspect {

/// What a device's part of a trace needs at least where memory that one stream freed serves another
/// only if the trace orders the two: the sum of each stream's own peak live, lowered by order edges
/// (limit::StreamPeak says how).
///
/// Edges are event_record with stream_wait or event_sync, stream_sync, device_sync, reset and the
/// end of a context; and, of a stream that the trace creates as a blocking one, its order with the
/// legacy stream. A free that names no stream is on the memory's own; one that names another hands
/// it to both. What one thread waits for is done for all. A request that the recording refused
/// counts at its moment, where all is `asked`.
std::uint64_t stream_need(const Lifetimes& lifetimes, std::uint32_t device,
                          Asked asked = Asked::all);

}  // namespace emm::inspect
