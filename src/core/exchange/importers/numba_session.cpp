#include "exchange/importers/numba_session.hpp"

#include <algorithm>
#include <utility>

#include "base/text_format.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

namespace {

bool allocates(NumbaCall call) {
  return call == NumbaCall::alloc || call == NumbaCall::managed || call == NumbaCall::hostalloc ||
         call == NumbaCall::pin;
}

}  // namespace

Status NumbaSession::row(const NumbaRow& row) {
  last_seq_ = std::max(last_seq_, row.seq);
  const auto before = std::exchange(last_call_[row.thread], row.call);
  if (held_flush_ && held_flush_->thread == row.thread) {
    auto flush = *std::exchange(held_flush_, std::nullopt);
    flush.moved = allocates(row.call);
    unexplained_flushes_ += flush.moved ? 0 : 1;
    const auto& first = flush.moved ? row : flush;
    const auto& second = flush.moved ? flush : row;
    if (auto taken = take(first); !taken) return taken;
    return take(second);
  }
  const auto explained =
      before == NumbaCall::pending_add || (in_reset_ && row.thread == reset_thread_);
  if (row.call == NumbaCall::pending_flush && !explained) {
    if (auto taken = flush_held(); !taken) return taken;
    held_flush_ = row;
    return {};
  }
  return take(row);
}

Status NumbaSession::flush_held() {
  if (!held_flush_) return {};
  ++unexplained_flushes_;
  return take(*std::exchange(held_flush_, std::nullopt));
}

Status NumbaSession::take(const NumbaRow& row) {
  if (in_reset_ && row.thread == reset_thread_) {
    if (const auto id = ended_by_reset(row)) {
      if (depth_ > 0) {
        take_as_reset(row);  // nothing is flushed while any thread defers, so it stays queued
      } else {
        held_.push_back({.row = row, .id = *id});
      }
      return {};
    }
    if (row.call != NumbaCall::pending_flush) {
      if (auto left = leave_reset(); !left) return left;
    }
  }
  switch (row.call) {
    case NumbaCall::initialize:
      return plain(row, Op::initialize);
    case NumbaCall::memory_info:
      return plain(row, Op::get_memory_info);
    case NumbaCall::alloc:
      return make(row, Op::memalloc);
    case NumbaCall::managed:
      return make(row, Op::memallocmanaged);
    case NumbaCall::hostalloc:
      return make(row, Op::memhostalloc);
    case NumbaCall::pin:
      return pin(row);
    case NumbaCall::unpin:
      return unpin(row);
    case NumbaCall::ipc_export:
      return ipc_export(row);
    case NumbaCall::reset:
      return reset(row);
    case NumbaCall::defer_begin:
      return defer_begin(row);
    case NumbaCall::defer_end:
      return defer_end(row);
    case NumbaCall::pending_add:
      return pending_add(row);
    case NumbaCall::pending_flush:
      return pending_flush(row);
    case NumbaCall::unknown:
      return unknown(row);
  }
  return {};
}

Result<ImportCounts> NumbaSession::finish() {
  if (auto taken = flush_held(); !taken) return std::move(taken).error();
  if (in_reset_) {
    if (auto left = leave_reset(); !left) return std::move(left).error();
  }
  const auto open = depth_;
  for (; depth_ > 0; --depth_) {  // a trace must not end inside of defer_cleanup
    Operation end{.op = Op::end_defer_cleanup, .members = Members(Member::seq)};
    end.seq = ++last_seq_;  // operations that were held back came before
    if (auto given = run_.emit(end); !given) return std::move(given).error();
  }
  run_.note(open, "guards of defer_cleanup were open at the end, and are closed there");
  run_.note(of_resets_, "frees are a reset's own, and part of it");
  run_.note(late_, "allocations outlived a reset; a replay frees them late");
  run_.note(live_again_, "rows allocate at an address that is live");
  run_.note(foreign_exports_, "exports are of memory that was not allocated here");
  run_.note(unbalanced_, "rows end a defer_cleanup that did not begin here");
  run_.note(not_memory_, "frees are of events, streams or modules");
  run_.note(context_flushes_, "flushes are of events, streams or modules");
  run_.note(other_flushes_, "flushes are of another number of frees or bytes than were asked for");
  run_.note(unexplained_flushes_,
            "flushes follow from no call that was recorded; a replay will not make them");
  for (const auto& [call, count] : unknown_) {
    run_.counts().notes.push_back(
        text::format("{} rows are of an unknown call, \"{}\"", count, call));
  }
  auto live_bytes = memory_.bytes();
  live_bytes.add(pins_.bytes());
  return run_.finish(memory_.count() + pins_.count(), live_bytes);
}

Operation NumbaSession::common(const NumbaRow& row, Op op) const {
  Operation made{.op = op, .members = Members(Member::time_ns), .line = row.line};
  made.time_ns = row.time_ns;
  if (!row.moved) {
    made.seq = row.seq;
    made.members.add(Member::seq);
  }
  if (row.thread != default_thread_) {
    made.thread = Id::of(row.thread);
    made.members.add(Member::thread);
  }
  return made;
}

Status NumbaSession::plain(const NumbaRow& row, Op op) {
  auto made = common(row, op);
  if (op == Op::get_memory_info) {
    made.free = row.free;
    made.total = row.total;
    made.members = made.members | Members(Member::free, Member::total);
  }
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::make(const NumbaRow& row, Op op) {
  if (memory_.has(row.pointer)) {
    ++live_again_;
    run_.duplicate();
    return {};
  }
  auto made = common(row, op);
  made.id = Id::of(run_.next_id());
  made.size = row.size;
  made.addr = row.pointer;
  made.members = made.members | Members(Member::id, Member::size, Member::addr);
  if (op == Op::memallocmanaged) {
    made.attach_global = row.attach_global;
    made.members.add(Member::attach);
  }
  if (op == Op::memhostalloc) {
    made.mapped = row.mapped;
    made.portable = row.portable;
    made.wc = row.wc;
    made.members = made.members | Members(Member::mapped, Member::portable, Member::wc);
  }
  memory_.add(row.pointer, {.id = made.id.number, .size = row.size});
  ended_by_reset_.remove(row.pointer);
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::pin(const NumbaRow& row) {
  if (pins_.has(row.pointer)) {
    ++live_again_;
    run_.duplicate();
    return {};
  }
  constexpr std::uint64_t kPage = 4096;  // bytes: page-locked memory lies in the pages of the host
  const auto buffer = buffers_.emplace(row.pointer, buffers_.size() + 1).first->second;
  const auto buffer_name = text::format("b{}", buffer);
  auto made = common(row, Op::mempin);
  made.id = Id::of(run_.next_id());
  made.size = row.size;
  made.addr = row.pointer;
  made.mapped = row.mapped;
  made.buffer = Id::of(buffer_name);
  made.page_offset = static_cast<std::uint32_t>(row.pointer % kPage);
  made.members = made.members | Members(Member::id, Member::size, Member::addr, Member::mapped,
                                        Member::buffer, Member::page_offset);
  pins_.add(row.pointer, {.id = made.id.number, .size = row.size});
  pins_ended_by_reset_.remove(row.pointer);
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::unpin(const NumbaRow& row) {
  if (const auto ended = pins_.remove(row.pointer)) return free(row, ended->id);
  if (const auto late = pins_ended_by_reset_.remove(row.pointer)) {
    ++late_;
    return free(row, late->id);
  }
  run_.unmatched();
  return {};
}

Status NumbaSession::ipc_export(const NumbaRow& row) {
  const auto located = memory_.containing(row.pointer);
  if (!located) {
    ++foreign_exports_;
    run_.other();
    return {};
  }
  const auto handle = text::format("h{}", ++handles_);
  auto made = common(row, Op::get_ipc_handle);
  made.id = Id::of(located->live.id);
  made.handle = Id::of(handle);
  made.offset = row.pointer - located->address;
  made.size = row.size;
  made.members = made.members | Members(Member::id, Member::handle, Member::offset, Member::size);
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::defer_begin(const NumbaRow& row) {
  ++depth_;
  return plain(row, Op::defer_cleanup);
}

Status NumbaSession::defer_end(const NumbaRow& row) {
  if (depth_ == 0) {
    ++unbalanced_;
    run_.other();
    return {};
  }
  --depth_;
  return plain(row, Op::end_defer_cleanup);
}

Status NumbaSession::reset(const NumbaRow& row) {
  if (in_reset_) {  // another thread's reset
    if (auto left = leave_reset(); !left) return left;
  }
  in_reset_ = true;
  reset_thread_ = row.thread;
  ended_by_reset_ = std::exchange(memory_, {});
  pins_ended_by_reset_ = std::exchange(pins_, {});
  return plain(row, Op::reset);
}

/// The allocation that the row frees, if the reset has just ended it. Removes it from the list of
/// these.
std::optional<std::uint64_t> NumbaSession::ended_by_reset(const NumbaRow& row) {
  if (row.call == NumbaCall::pending_add && row.memory) {
    if (const auto ended = ended_by_reset_.remove(row.pointer)) return ended->id;
  }
  if (row.call == NumbaCall::unpin) {
    if (const auto ended = pins_ended_by_reset_.remove(row.pointer)) return ended->id;
  }
  return std::nullopt;
}

/// The reset is over. It did not flush the frees that are still held, so they come later.
Status NumbaSession::leave_reset() {
  in_reset_ = false;
  for (const auto& [row, id] : std::exchange(held_, {})) {
    if (row.call == NumbaCall::pending_add) {
      context_added_last_ = false;
      ++queued_;
      queued_bytes_ += row.size;
    }
    ++late_;
    if (auto given = free(row, id); !given) return given;
  }
  return {};
}

/// Counts a free that the reset made as queued. It becomes no operation.
void NumbaSession::take_as_reset(const NumbaRow& row) {
  if (row.call == NumbaCall::pending_add) {
    ++queued_;
    queued_bytes_ += row.size;
  }
  ++of_resets_;
  run_.used();
}

Status NumbaSession::pending_flush(const NumbaRow& row) {
  if (in_reset_ && row.thread == reset_thread_) {
    for (const auto& own : std::exchange(held_, {})) take_as_reset(own.row);
  }
  const auto managers = row.count == queued_ && row.bytes == queued_bytes_;
  const auto contexts = row.count == context_queued_ && row.bytes == 0;
  if (contexts && (context_added_last_ || !managers)) {
    context_queued_ = 0;
    ++context_flushes_;
    run_.other();
    return {};
  }
  other_flushes_ += managers ? 0 : 1;
  queued_ = queued_bytes_ = 0;
  auto made = common(row, Op::flush);
  made.layer = Layer::backing;
  made.count = row.count;
  made.bytes = row.bytes;
  made.members = made.members | Members(Member::layer, Member::count, Member::bytes);
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::free(const NumbaRow& row, std::uint64_t id) {
  auto made = common(row, Op::free);
  made.id = Id::of(id);
  made.cause = Cause::finalizer;
  made.members = made.members | Members(Member::id, Member::cause);
  run_.used();
  return run_.emit(made);
}

Status NumbaSession::pending_add(const NumbaRow& row) {
  context_added_last_ = !row.memory;
  if (!row.memory) {
    ++context_queued_;
    ++not_memory_;
    run_.other();
    return {};
  }
  ++queued_;
  queued_bytes_ += row.size;
  if (const auto ended = memory_.remove(row.pointer)) return free(row, ended->id);
  if (const auto late = ended_by_reset_.remove(row.pointer)) {
    ++late_;
    return free(row, late->id);
  }
  run_.unmatched();
  return {};
}

Status NumbaSession::unknown(const NumbaRow& row) {
  ++unknown_[row.unknown];
  run_.other();
  return {};
}

}  // namespace emm::trace
