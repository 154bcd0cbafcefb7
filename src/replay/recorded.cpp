#include "base/units.hpp"
#include "replay/run.hpp"

namespace emm::replay {

void Run::backing(const Event& event) {
  ++backing_events_;
  if (number_ != 0) return;
  if (event.op == Op::flush) return recorded_flush(event);
  const auto id = static_cast<std::uint32_t>(event.id);
  if (event.op == Op::memalloc) {
    backing_[id] = event.size;
    backing_bytes_ += event.size;
    backing_peak_ = std::max(backing_peak_, backing_bytes_);
  } else if (event.op == Op::free) {
    if (const auto found = backing_.find(id); found != backing_.end()) {
      backing_bytes_ -= found->second;
      backing_.erase(found);
    }
  }
}

void Run::recorded_flush(const Event& event) {
  const auto& detail = trace_.detail(event);
  // Recorded after the operation that caused it, which is then the last one of its thread in its
  // context.
  auto cause = at_;
  while (cause > 0) {
    const auto& before = trace_[--cause];
    const bool served = !before.has(trace::event_flag::backing) && before.op < Op::flush &&
                        before.op != Op::thread_begin && before.op != Op::thread_end;
    if (served && before.context == event.context && before.thread == event.thread) break;
  }
  recorded_flushes_.push_back(
      {.event = cause, .seq = trace_.seq(cause), .count = detail.count, .bytes = detail.bytes});
}

void Run::skip(const Event& event) {
  if (number_ != 0) return;
  ++skipped_[event.op];
  ++summary_.skipped;
}

bool Run::elsewhere(const Event& event) {
  const auto id = static_cast<std::uint32_t>(event.id);
  switch (event.op) {
    case Op::open_ipc_handle:
    case Op::close_ipc_handle:
      return false;
    case Op::free:
      if (imports_.contains(id)) return false;
      break;
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
      refused_[id] = {.bytes = 0, .outcome = Outcome::unsupported};
      break;
    default:
      break;
  }
  if (number_ == 0) {
    ++elsewhere_;
    ++summary_.skipped;
  }
  return true;
}

void Run::note_recording() {
  auto& notes = summary_.notes;
  if (!skipped_.empty()) {
    std::vector<std::string_view> names;
    for (const auto& [op, count] : skipped_) names.push_back(trace::name(op));
    notes.push_back(text::format("{} operations were not carried out: {}",
                                 summary_.skipped - elsewhere_, text::join(names)));
  }
  if (elsewhere_ != 0) {
    notes.push_back(text::format(
        "{} operations of other processes were left out; those open and close handles only",
        elsewhere_));
  }
  if (const auto extensions = trace_.extensions_skipped(); extensions != 0) {
    notes.push_back(
        text::format("{} operations are extensions (x-), which a replay leaves out", extensions));
  }
  if (gaps_ != 0) notes.push_back(text::format("the recording has {} gaps", gaps_));
  if (backing_peak_ != 0) {
    notes.push_back(text::format("the recorded manager held at most {} from the device",
                                 units::bytes(backing_peak_)));
  }
  if (seen_.streams_refused != 0) {
    notes.push_back(text::format("the device made no stream {} times; the default stream stood in",
                                 seen_.streams_refused));
  }
  if (order_refused_ != 0) {
    notes.push_back(text::format(
        "{} operations of streams and events were not carried out, which the device does not "
        "offer; their order was looked at all the same",
        order_refused_));
  }
  if (seen_.failed_frees != 0) {
    notes.push_back(text::format("{} frees failed; the first: {}", seen_.failed_frees,
                                 seen_.first_failed_free));
  }
}

}  // namespace emm::replay
