#pragma once

#include <cstddef>

#include "standin/calls.hpp"

/// Captures of streams into graphs. What is put on a capturing stream becomes a node of the graph
/// and does not run; each launch of the graph runs its host functions. Memory that a capture
/// allocates has addresses of its own and takes no device memory, since nothing here runs kernels
/// that would use it. Any thread may call.
namespace emm::standin::graph {

inline constexpr Code kUnsupported = 900, kInvalidated = 901, kUnmatched = 903, kIllegalState = 401;

/// Does what is put on the stream become a node?
bool is_capturing(Handle stream);
/// The nodes. Each stream must be capturing.
Code add_alloc(Address* out, std::size_t size, Handle stream);
Code add_free(Address ptr, Handle stream);
Code add_host_function(Handle stream, void (*function)(void*), void* argument);
/// The event marks a place in the capture.
Code add_event(Handle event, Handle stream);
/// A stream that waits for such an event joins its capture. False: the event marks no capture.
bool join(Handle stream, Handle event);
/// The event is recorded outside of captures, or ended.
void forget_event(Handle event);
/// A call that no capture can hold. It ends the capture, and is refused.
Code refuse(Handle stream);

}  // namespace emm::standin::graph
