#include "replay/recorded_operations.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"

namespace emm::replay {

using trace::Event;
using trace::Op;
using trace::Outcome;

void RecordedOperations::count_backing(const Event& event) {
  ++backing_events_;
  if (core_.state.pass != 0) return;
  if (event.op == Op::flush) return add_flush(event);
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

void RecordedOperations::add_flush(const Event& event) {
  const auto& detail = core_.state.trace.detail(event);
  // A flush is recorded after the operation that caused it, which is the last one of the same
  // thread and context.
  auto cause = core_.state.at;
  while (cause > 0) {
    const auto& before = core_.state.trace[--cause];
    const bool counts = !before.has(trace::event_flag::backing) && before.op < Op::flush &&
                        before.op != Op::thread_begin && before.op != Op::thread_end;
    if (counts && before.context == event.context && before.thread == event.thread) break;
  }
  flushes_.push_back({.event = cause,
                      .seq = core_.state.trace.seq(cause),
                      .count = detail.count,
                      .bytes = detail.bytes});
}

void RecordedOperations::skip(const Event& event) {
  if (core_.state.pass != 0) return;
  ++skipped_[event.op];
  ++core_.judge.summary.skipped;
}

bool RecordedOperations::skip_elsewhere(const Event& event) {
  const auto id = static_cast<std::uint32_t>(event.id);
  switch (event.op) {
    case Op::open_ipc_handle:
    case Op::close_ipc_handle:
      return false;
    case Op::free:
      if (core_.held.imports.contains(id)) return false;
      break;
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
      core_.held.refused[id] = {.bytes = 0, .outcome = Outcome::unsupported};
      break;
    default:
      break;
  }
  if (core_.state.pass == 0) {
    ++elsewhere_;
    ++core_.judge.summary.skipped;
  }
  return true;
}

void RecordedOperations::summarize(log::Summary& summary) const {
  if (!flushes_.empty()) summary.recorded_flushes = log::compare_flushes(flushes_, summary.flushes);
}

void RecordedOperations::add_notes(std::vector<std::string>& notes) const {
  const auto& summary = core_.judge.summary;
  if (!skipped_.empty()) {
    std::vector<std::string_view> names;
    for (const auto& [op, count] : skipped_) names.push_back(trace::name(op));
    notes.push_back(text::format("{} operations were not carried out: {}",
                                 summary.skipped - elsewhere_, text::join(names)));
  }
  if (elsewhere_ != 0) {
    notes.push_back(text::format(
        "{} operations of other processes were left out; those open and close handles only",
        elsewhere_));
  }
  if (const auto extensions = core_.state.trace.extensions_skipped(); extensions != 0) {
    notes.push_back(
        text::format("{} operations are extensions (x-), which a replay leaves out", extensions));
  }
  if (gaps_ != 0) notes.push_back(text::format("the recording has {} gaps", gaps_));
  if (backing_peak_ != 0) {
    notes.push_back(text::format("the recorded manager held at most {} from the device",
                                 units::bytes(backing_peak_)));
  }
  std::uint64_t refused_streams = 0;
  for (const auto& context : core_.contexts.all()) refused_streams += context->refused_streams();
  if (refused_streams != 0) {
    notes.push_back(text::format("the device made no stream {} times; the default stream stood in",
                                 refused_streams));
  }
  if (const auto refused = core_.order.refused(); refused != 0) {
    notes.push_back(text::format(
        "{} operations of streams and events were not carried out, which the device does not "
        "offer; their order was looked at all the same",
        refused));
  }
  auto& reports = core_.contexts.reports();
  if (reports.failed_frees() != 0) {
    notes.push_back(text::format("{} frees failed; the first: {}", reports.failed_frees(),
                                 reports.first_failed_free()));
  }
}

}  // namespace emm::replay
