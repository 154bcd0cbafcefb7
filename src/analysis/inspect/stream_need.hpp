#pragma once

#include <cstdint>

#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// Returns the least that one device's part of a trace needs if memory that one stream freed serves
/// another only where the trace orders the two. This is the sum of each stream's own peak live,
/// lowered by order edges (see bounds::StreamPeak).
///
/// Edges are event_record with stream_wait or event_sync, stream_sync, device_sync, reset and the
/// end of a context. A stream that the trace creates as a blocking one is also ordered with the
/// legacy stream. A free that names no stream is on the memory's own; one that names another stream
/// hands the memory to both. What one thread waits for is done for all. If all is `asked`, a
/// request that the recording refused counts at its moment.
std::uint64_t stream_need(const trace::Lifetimes& lifetimes, std::uint32_t device,
                          trace::CountedRequests asked = trace::CountedRequests::all);

}  // namespace emm::inspect
