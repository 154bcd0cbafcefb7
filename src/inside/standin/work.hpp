#pragma once

#include <atomic>
#include <memory>

#include "standin/calls.hpp"

/// Work on a stream that ends when other processes have done their part, as a collective of NCCL's
/// does. It runs in the order of its stream, on a thread that waits for it. A query finds what is
/// behind it "not ready", and does not wait. Any thread may call.
namespace emm::standin::work {

/// Set when the work has ended.
using Done = std::shared_ptr<std::atomic<bool>>;

/// Would work that is put on the stream now wait for such work?
bool holds_stream(Handle stream);
/// Likewise for the event's last record.
bool holds_event(Handle event);
/// The event was recorded on the stream, or the stream waits for the event.
void recorded(Handle event, Handle stream);
void waits(Handle stream, Handle event);
void forget_event(Handle event);
/// The stream was made as one that the legacy stream does not order.
void made_apart(Handle stream);
void forget_stream(Handle stream);

}  // namespace emm::standin::work

extern "C" {

/// What libraries of CUDA's call; none is a CUDA function. They reach the device beside the hooks
/// and the recorders, which would else show calls that no real library makes.
///
/// Puts the work on the stream of the calling thread's context. `mark` is for
/// emm_standin_finish(); it is 0 if the stream is being captured.
emm::standin::Code emm_standin_put_work(emm::standin::Handle on, void (*function)(void*),
                                        void* argument, const emm::standin::work::Done* done,
                                        emm::standin::Handle* mark);
/// A mark behind all that is on the stream now.
emm::standin::Code emm_standin_mark(emm::standin::Handle on, emm::standin::Handle* mark);
/// Waits until all before the mark is done, and ends the mark.
void emm_standin_finish(emm::standin::Handle mark);
/// Ends a mark that nobody waits for.
void emm_standin_drop(emm::standin::Handle mark);
/// Access memory now, whatever is on the streams. Work does so in its turn.
emm::standin::Code emm_standin_read(emm::standin::Address from, void* to, std::size_t size);
emm::standin::Code emm_standin_write(emm::standin::Address to, const void* from, std::size_t size);
/// Writes behind all that is on the stream now.
emm::standin::Code emm_standin_put_write(emm::standin::Handle on, emm::standin::Address to,
                                         const void* from, std::size_t size);
}
