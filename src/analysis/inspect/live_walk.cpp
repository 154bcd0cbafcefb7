#include "inspect/live_walk.hpp"

#include <utility>

#include "base/text.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using trace::Op;
using What = trace::Lifetime::What;
namespace event_flag = trace::event_flag;

}  // namespace

LiveWalk::LiveWalk(std::string source, std::vector<LiveVisitor*> visitors)
    : visitors_(std::move(visitors)), memory_(1) {
  trace_.set_source(std::move(source));
  trace_.keep_window(0);
}

void LiveWalk::begin_in_the_middle() {
  in_the_middle_ = true;
  trace_.set_fault_handler([](std::uint32_t, const Error&, std::string_view) {});
}

Status LiveWalk::on_operation(const trace::Operation& operation) {
  has_seqs_ = has_seqs_ || operation.has(Member::seq);
  if (auto taken = trace_.on_operation(operation); !taken) {
    // The trace may be right once it is sorted by seq, but that needs it in memory.
    needs_memory_ = needs_memory_ || (has_seqs_ && taken.error().code == Errc::parse_error);
    return taken;
  }
  if (operation.op == Op::extension) {
    for (auto* visitor : visitors_) visitor->told(events_, operation);
  }
  if (operation.op == Op::extension || operation.op == Op::define || operation.op == Op::end)
    return {};
  const auto& event = trace_.last_event();
  const bool backing = event.has(event_flag::backing);
  if (!has_begun_ && !trace_.is_in_beginning()) begin_recording();
  if (events_ == trace::kNever - 1) {
    return Error{.code = Errc::not_supported,
                 .message = text::format("{}: more than {} events: expected fewer", trace_.source(),
                                         text::grouped(trace::kNever - 1))};
  }
  switch (event.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
    case Op::open_ipc_handle:
      if (has_begun_ && event.has(event_flag::preexisting) && !in_the_middle_) {
        needs_memory_ = true;  // it was live at all events until now
        return Error{.code = Errc::not_supported,
                     .message = text::format("{}:{}: memory from before the recording",
                                             trace_.source(), event.line)};
      }
      begin(operation, event);
      if (auto summed = add_up(event, (*this)[event.id].size); !summed) return summed;
      break;
    case Op::free:
    case Op::close_ipc_handle: {
      auto& memory = memory_[index(event.id)];
      if (backing && memory.what != What::backing) {
        // This row says that the memory of an earlier free was kept, which was unknown at that
        // free. The walk's caller then reads the trace into memory, and nobody sees this error.
        needs_memory_ = true;
        return Error{.code = Errc::not_supported,
                     .message = text::format("{}:{}: a free that completed after it was asked for",
                                             trace_.source(), event.line)};
      }
      if (!memory.over && memory.what != What::nothing) end(memory);
      break;
    }
    case Op::reset:
    case Op::context_destroy:
      if (backing || !trace::worked(event)) break;
      for (auto& memory : memory_) {
        const bool there = !memory.over && memory.what != What::nothing &&
                           memory.what != What::backing && memory.context == event.context &&
                           memory.process == trace_.detail(event).process;
        if (there) end(memory);
      }
      break;
    case Op::flush:
      if (auto summed = add_up(event, trace_.detail(event).bytes); !summed) return summed;
      break;
    default:
      break;
  }
  if (!has_begun_ && trace_.first_moment() == events_)
    first_moment_place_ = {.line = event.line, .time_ns = event.time_ns};
  for (auto* visitor : visitors_) visitor->passed(*this, events_, operation);
  ++events_;
  return {};
}

Status LiveWalk::finish() {
  if (!has_begun_) begin_recording();
  return trace_.finish();
}

void LiveWalk::begin_recording() {
  has_begun_ = true;
  for (auto* visitor : visitors_)
    visitor->recording_begins(*this, static_cast<std::uint32_t>(trace_.first_moment()));
}

void LiveWalk::begin(const trace::Operation& operation, const trace::Event& event) {
  const auto place = index(event.id);
  if (memory_.size() <= place) memory_.resize(place + 1);
  const auto what = trace::what_of(event);
  auto& memory = memory_[place];
  memory = {.size = what == What::nothing ? 0 : event.size,
            .time_ns = event.time_ns,
            .address = operation.has(Member::addr) ? operation.addr : 0,
            .granted = operation.has(Member::granted) ? operation.granted : 0,
            .birth = events_,
            .process = trace_.detail(event).process,
            .site = event.site,
            .thread = event.thread,
            .stream = event.stream,
            .context = event.context,
            .what = what,
            .preexisting = event.has(event_flag::preexisting),
            .mapped = operation.has(Member::kind) && operation.kind == trace::Kind::physical};
  if (what == What::nothing) return;
  for (auto* visitor : visitors_) visitor->began(*this, events_, memory);
}

void LiveWalk::end(LiveMemory& memory) {
  memory.over = true;
  for (auto* visitor : visitors_) visitor->ended(*this, events_, memory);
}

/// Counts the requested bytes. The visitors add sizes without a check.
Status LiveWalk::add_up(const trace::Event& event, std::uint64_t bytes) {
  sum_.add(bytes);
  if (!sum_.exceeds()) return {};
  return fail(Errc::parse_error,
              "{}:{}: 2^64 bytes or more were asked for up to here: expected sizes that a device "
              "could have",
              trace_.source(), event.line);
}

}  // namespace emm::inspect
