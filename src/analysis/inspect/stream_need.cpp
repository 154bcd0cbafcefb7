#include "inspect/stream_need.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bounds/stream_peak.hpp"

namespace emm::inspect {
namespace {

using bounds::StreamPeak;
using trace::Op;

class NeedWalk {
 public:
  NeedWalk(const trace::Lifetimes& lifetimes, std::uint32_t device, trace::CountedRequests asked)
      : lifetimes_(lifetimes), trace_(lifetimes.trace()), device_(device), asked_(asked) {}

  std::uint64_t peak() {
    lifetimes_.walk([&](std::uint32_t event, AllocId id) { began(event, id); },
                    [&](std::uint32_t event, AllocId id) { ended(event, id); },
                    [&](std::uint32_t event) { passed(event); });
    return peak_.peak();
  }

 private:
  struct Kinds {
    bool made_as_blocking = false;
    std::uint32_t device = 0;
  };

  std::uint32_t device_of(ContextId context) const {
    return trace_.contexts()[index(context)].device;
  }

  /// Returns the number of a stream of the trace on a device, from 0.
  StreamPeak::Stream stream_on(std::uint32_t device, StreamId stream) {
    const auto [found, is_new] =
        numbers_.try_emplace({device, index(stream)}, static_cast<std::uint32_t>(kinds_.size()));
    if (is_new) kinds_.push_back({.device = device});
    return found->second;
  }
  StreamPeak::Stream stream_of(const trace::Lifetime& lifetime) {
    return stream_on(lifetimes_.device(lifetime), lifetime.stream);
  }
  StreamPeak::Stream stream_of(const trace::Event& event) {
    return stream_on(device_of(event.context), event.stream);
  }

  /// The legacy stream and a blocking stream wait for each other.
  void order_with_legacy(StreamPeak::Stream stream, StreamId named) {
    if (!any_blocking_) return;
    const auto device = kinds_[stream].device;
    if (index(named) != 0) {
      if (kinds_[stream].made_as_blocking) after(stream, stream_on(device, StreamId{}));
      return;
    }
    for (std::uint32_t other = 0; other < kinds_.size(); ++other) {
      if (kinds_[other].made_as_blocking && kinds_[other].device == device) after(stream, other);
    }
  }
  void after(StreamPeak::Stream stream, StreamPeak::Stream other) {
    const auto point = peak_.upto(other);
    auto& waited = waited_[{stream, other}];
    if (waited == point) return;
    waited = point;
    peak_.after(stream, point);
  }

  bool counts(const trace::Lifetime& lifetime) const {
    return lifetime.what == trace::Lifetime::MemoryKind::device &&
           lifetimes_.device(lifetime) == device_;
  }
  /// Answers whether the event that ends it names another stream.
  bool ends_apart(const trace::Lifetime& lifetime) const {
    if (lifetime.death == trace::kNever || trace_[lifetime.death].op != Op::free) return false;
    const auto stream = trace_[lifetime.death].stream;
    return index(stream) != 0 && stream != lifetime.stream;
  }

  void began(std::uint32_t, AllocId id) {
    const auto& lifetime = lifetimes_[id];
    if (!counts(lifetime)) return;
    const auto stream = stream_of(lifetime);
    order_with_legacy(stream, lifetime.stream);
    peak_.begins(stream, lifetime.size);
    if (ends_apart(lifetime)) begun_[id] = peak_.upto(stream);
  }

  void ended(std::uint32_t event, AllocId id) {
    const auto& lifetime = lifetimes_[id];
    if (!counts(lifetime)) return;
    const auto stream = stream_of(lifetime);
    const auto begun = begun_.find(id);
    if (begun == begun_.end()) {
      order_with_legacy(stream, lifetime.stream);
      peak_.ends(stream, lifetime.size);
      return;
    }
    peak_.ends_apart(begun->second, lifetime.size, stream, stream_of(trace_[event]));
    begun_.erase(begun);
  }

  /// A refused request lives only at its own event.
  void refused(const trace::Event& event) {
    if (device_of(event.context) != device_) return;
    const auto stream = stream_of(event);
    order_with_legacy(stream, event.stream);
    peak_.begins(stream, event.size);
    peak_.ends(stream, event.size);
  }

  void passed(std::uint32_t at) {
    const auto& event = trace_[at];
    if (event.has(trace::event_flag::backing)) return;
    if (asked_ == trace::CountedRequests::all && trace::is_refused(event)) return refused(event);
    const auto record = [&] { return trace_.detail(event).record; };
    switch (event.op) {
      case Op::stream_create:
        if (event.has(trace::event_flag::non_blocking)) break;
        kinds_[stream_of(event)].made_as_blocking = true;
        any_blocking_ = true;
        break;
      case Op::event_record:
        records_[record()] = peak_.upto(stream_of(event));
        break;
      case Op::stream_wait:
        peak_.after(stream_of(event), records_[record()]);
        break;
      case Op::event_sync:
        peak_.all_after(records_[record()]);
        break;
      case Op::stream_sync:
        peak_.all_after(peak_.upto(stream_of(event)));
        break;
      case Op::device_sync:
      case Op::reset:
      case Op::context_destroy:
        all_done(device_of(event.context));
        break;
      default:
        break;
    }
  }

  void all_done(std::uint32_t device) {
    if (trace_.device_count() == 1) return peak_.all_after_all();
    for (std::uint32_t stream = 0; stream < kinds_.size(); ++stream) {
      if (kinds_[stream].device == device) peak_.all_after(peak_.upto(stream));
    }
  }

  const trace::Lifetimes& lifetimes_;
  const trace::Trace& trace_;
  std::uint32_t device_;
  trace::CountedRequests asked_;
  StreamPeak peak_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, StreamPeak::Stream> numbers_;
  std::vector<Kinds> kinds_;  // by number
  bool any_blocking_ = false;
  std::map<std::uint32_t, StreamPeak::Point> records_;
  std::map<std::pair<StreamPeak::Stream, StreamPeak::Stream>, StreamPeak::Point>
      waited_;  // by pair: how far the first has waited for the second
  std::unordered_map<AllocId, StreamPeak::Point> begun_;  // memory that ends on another stream
};

}  // namespace

std::uint64_t stream_need(const trace::Lifetimes& lifetimes, std::uint32_t device,
                          trace::CountedRequests asked) {
  return NeedWalk(lifetimes, device, asked).peak();
}

}  // namespace emm::inspect
