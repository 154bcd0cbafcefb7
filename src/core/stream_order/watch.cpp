#include "stream_order/watch.hpp"

#include <utility>

#include "driver/call.hpp"

namespace emm::stream_order {
namespace {

/// A driver call that this thread has in progress.
struct UnderWay {
  /// The work that the call waits for, taken before the call. The call need not wait for what other
  /// threads put on a stream in the meantime.
  VectorClock waits;
  /// The memory that the call takes away, removed before the call. Another thread may be given it
  /// before the call returns.
  std::vector<PhysicalExtents::Extent> unmapped;
  std::uint64_t released = 0;
  std::uint64_t freed = 0;  ///< Bytes that the call frees.
  /// Allocations made before the call. Only these can lie in its memory.
  std::uint64_t allocation_count = 0;
};
thread_local UnderWay under_way;

constexpr bool frees(Call call) noexcept {
  return call == Call::mem_free || call == Call::runtime_free || call == Call::mem_free_async;
}

/// Reports when a host function begins: all earlier work on its stream is done then.
class HostFunctions final : public ForwardingDriver {
 public:
  HostFunctions(std::unique_ptr<Driver> inner, Checker& checker, std::uint32_t device)
      : ForwardingDriver(*inner, none_), inner_(std::move(inner)), watch_(checker, device) {}

  Status launch_host_func(StreamHandle stream, HostFunction function, void* argument) override {
    auto launched =
        std::make_unique<Launched>(Launched{&watch_, watch_.launched(stream), function, argument});
    auto answer = inner_->launch_host_func(stream, &begin, launched.get());
    if (answer) static_cast<void>(launched.release());  // begin() owns it now
    return answer;
  }

 private:
  struct Launched {
    Watch* watch;
    VectorClock clock;
    HostFunction function;
    void* argument;
  };
  static void begin(void* self) {
    const std::unique_ptr<Launched> launched(static_cast<Launched*>(self));
    launched->watch->began(launched->clock);
    launched->function(launched->argument);
  }

  CallHook none_;
  std::unique_ptr<Driver> inner_;
  Watch watch_;
};

}  // namespace

OpenedDevice Checker::watch(OpenedDevice device, std::uint32_t ordinal) {
  watches_.push_back(std::make_unique<Watch>(*this, ordinal));
  device.driver = std::make_unique<HostFunctions>(std::move(device.driver), *this, ordinal);
  return hooked(std::move(device), *watches_.back());
}

VectorClock Watch::launched(StreamHandle stream) {
  const std::lock_guard lock(checker_.mutex_);
  const auto timeline = checker_.streams_.find(device_, stream);
  checker_.streams_.enter(timeline);
  return checker_.streams_.upto(timeline);
}

void Watch::began(const VectorClock& clock) {
  const std::lock_guard lock(checker_.mutex_);
  checker_.streams_.complete(clock);
}

VectorClock Watch::waited_for(const CallEvent& event) {
  auto& streams = checker_.streams_;
  const auto on = [&](StreamHandle stream) {
    const auto timeline = streams.find(device_, stream);
    streams.enter(timeline);
    return streams.upto(timeline);
  };
  switch (event.call) {
    case Call::mem_free:
    case Call::runtime_free:
    case Call::mem_free_host:
    case Call::mem_host_unregister:
      return event.pointer == 0 ? VectorClock() : streams.all(device_);
    case Call::ctx_synchronize:
    case Call::primary_ctx_reset:
      return streams.all(device_);
    case Call::stream_synchronize:
    case Call::stream_query:
      return on({event.pointer});
    case Call::event_synchronize:
    case Call::event_query: {
      const auto& events = checker_.devices_[device_].events;
      const auto known = events.find(event.pointer);
      return known == events.end() ? VectorClock() : known->second;
    }
    case Call::memset_d8:
    case Call::memset_d32:
    case Call::memcpy_htod:
    case Call::memcpy_dtoh:
    case Call::memcpy_dtod:
    case Call::memcpy_peer:
      return on({});
    default:
      return {};
  }
}

std::int32_t Watch::before(const CallEvent& event) {
  if (Quiet::is_on()) return 0;
  const std::lock_guard lock(checker_.mutex_);
  auto& device = checker_.devices_[device_];
  under_way = {.waits = waited_for(event),
               .unmapped = {},
               .released = 0,
               .freed = 0,
               .allocation_count = device.allocation_count};
  if (event.call == Call::mem_unmap || (event.call == Call::mem_set_access && event.other == 0)) {
    checker_.end_of_range(device, event.pointer, event.size, Hazard::How::unmapped, std::nullopt,
                          device.allocation_count);
  }
  if (event.call == Call::mem_unmap) {
    under_way.unmapped = device.extents.unmap(event.pointer, event.size);
  } else if (event.call == Call::mem_release) {
    under_way.released = device.extents.release({event.pointer});
  } else if (frees(event.call)) {
    const auto given = device.given.find(event.pointer);
    if (given == device.given.end()) return 0;
    under_way.freed = given->second;
    device.given.erase(given);
    if (event.call == Call::mem_free_async) {
      const auto timeline = checker_.streams_.find(device_, event.stream);
      mark_freed(event, checker_.streams_.mark(timeline));
    }
  }
  return 0;
}

void Watch::after(const CallEvent& event) {
  if (Quiet::is_on()) return;
  const std::lock_guard lock(checker_.mutex_);
  if (event.native == 0) return apply(event);
  auto& device = checker_.devices_[device_];
  auto& extents = device.extents;
  if (under_way.freed != 0 && frees(event.call)) device.given[event.pointer] = under_way.freed;
  if (event.call == Call::mem_free_async) mark_freed(event, std::nullopt);
  if (event.call == Call::mem_unmap) extents.undo_unmap(under_way.unmapped);
  if (event.call == Call::mem_release) extents.undo_release({event.pointer}, under_way.released);
}

/// Another thread may be given the memory before the call returns, so it is marked before the call.
/// A former owner may have had more of the driver's pool than this memory: its other parts were not
/// freed again.
void Watch::mark_freed(const CallEvent& event, std::optional<Point> at) {
  auto& shadow = checker_.devices_[device_].shadow;
  if (at)
    shadow.set_apart(event.pointer, event.pointer + under_way.freed, [](const ShadowRange& range) {
      return !range.allocation->live && range.allocation->freed_at.has_value();
    });
  shadow.overlapping(event.pointer, event.pointer + under_way.freed, [&](const ShadowRange& range) {
    if (range.allocation->number <= under_way.allocation_count) range.allocation->freed_at = at;
  });
}

/// The driver orders the memory that it hands out in the order of `event.stream` after the frees by
/// its former owners. It does so for no other stream.
void Watch::follow_former_owners(const CallEvent& event) {
  auto& streams = checker_.streams_;
  const auto timeline = streams.find(device_, event.stream);
  streams.enter(timeline);
  VectorClock before;
  checker_.devices_[device_].shadow.overlapping(event.result, event.result + event.size,
                                                [&](const ShadowRange& range) {
                                                  const auto& allocation = *range.allocation;
                                                  if (allocation.live) return;
                                                  for (const auto& use : allocation.uses)
                                                    before.raise(use);
                                                  if (allocation.freed_at)
                                                    before.raise(*allocation.freed_at);
                                                });
  streams.after(timeline, before);
}

void Watch::apply(const CallEvent& event) {
  auto& streams = checker_.streams_;
  auto& device = checker_.devices_[device_];
  const auto take_back = [&](Hazard::How how, std::optional<std::uint32_t> on) {
    checker_.end_of_range(device, event.pointer, under_way.freed, how, on,
                          under_way.allocation_count);
  };
  switch (event.call) {
    case Call::mem_alloc:
    case Call::mem_alloc_managed:
    case Call::runtime_malloc:
    case Call::mem_host_alloc:
      // The driver itself orders the memory that it hands out after the work of its former owners,
      // also where the call that freed it has not returned.
      device.shadow.erase(event.result, event.result + event.size,
                          [](const ShadowRange& range) { return !range.allocation->live; });
      if (event.call != Call::mem_host_alloc) device.given[event.result] = event.size;
      return;
    case Call::mem_alloc_async:
    case Call::mem_alloc_from_pool_async:
      follow_former_owners(event);
      device.given[event.result] = event.size;
      return;
    case Call::mem_free:
    case Call::runtime_free:
      streams.complete(under_way.waits);
      return take_back(Hazard::How::given_back, std::nullopt);
    case Call::mem_free_async: {
      const auto timeline = streams.find(device_, event.stream);
      streams.enter(timeline);
      return take_back(Hazard::How::given_back, timeline);
    }
    case Call::stream_query:
    case Call::event_query:
      if (event.result != 0) streams.complete(under_way.waits);
      return;
    case Call::mem_free_host:
    case Call::mem_host_unregister:
    case Call::ctx_synchronize:
    case Call::stream_synchronize:
    case Call::event_synchronize:
    case Call::memset_d8:
    case Call::memset_d32:
    case Call::memcpy_htod:
    case Call::memcpy_dtoh:
    case Call::memcpy_dtod:
    case Call::memcpy_peer:
      return streams.complete(under_way.waits);
    case Call::primary_ctx_reset:
      streams.complete(under_way.waits);
      device = {};
      return;
    case Call::event_record: {
      const auto timeline = streams.find(device_, event.stream);
      streams.enter(timeline);
      device.events[event.pointer] = streams.upto(timeline);
      return;
    }
    case Call::event_destroy:
      device.events.erase(event.pointer);
      return;
    case Call::stream_wait_event: {
      const auto timeline = streams.find(device_, {event.pointer});
      streams.enter(timeline);
      const auto known = device.events.find(event.other);
      if (known != device.events.end()) streams.after(timeline, known->second);
      return;
    }
    case Call::mem_create:
      return device.extents.created({event.result}, event.size);
    case Call::mem_map:
      return device.extents.map(event.pointer, event.size, {event.other});
    case Call::memset_d8_async:
    case Call::memcpy_dtod_async:
    case Call::launch_host_func:
      return streams.enter(streams.find(device_, event.stream));
    case Call::stream_create:
      return streams.created(device_, {event.result}, static_cast<StreamKind>(event.other));
    case Call::stream_destroy:
      return streams.destroyed(device_, {event.pointer});
    default:
      return;
  }
}

}  // namespace emm::stream_order
