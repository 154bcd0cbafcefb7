#pragma once

#include <cstddef>

#include "standin/calls.hpp"

/// Captures streams into graphs. Work on a capturing stream becomes a node of the graph and does
/// not run. Each launch of the graph runs its host functions. Memory that a capture allocates has
/// reserved addresses but takes no device memory, since no kernel here would use it. Any thread may
/// call.
namespace emm::standin::graph {

// CUresults of stream capture: CUDA_ERROR_STREAM_CAPTURE_*, and CUDA_ERROR_ILLEGAL_STATE.
inline constexpr Code kUnsupported = 900, kInvalidated = 901, kUnmatched = 903, kIllegalState = 401;

/// Answers whether the stream is being captured.
bool is_capturing(Handle stream);
/// Add nodes to the graph. Error kIllegalState if the stream is not capturing.
Code add_alloc(Address* out, std::size_t size, Handle stream);
Code add_free(Address ptr, Handle stream);
Code add_host_function(Handle stream, void (*function)(void*), void* argument);
/// A kernel was launched. Nobody tells here on which stream: it counts for each capture.
void note_kernel();
/// Makes the event mark a place in the capture.
Code add_event(Handle event, Handle stream);
/// Makes a stream that waits for such an event join its capture. False if the event marks no
/// capture.
bool join(Handle stream, Handle event);
/// Called when the event is recorded outside of captures, or destroyed.
void forget_event(Handle event);
/// Refuses a call that cannot be captured, and invalidates the capture.
Code refuse(Handle stream);

}  // namespace emm::standin::graph
