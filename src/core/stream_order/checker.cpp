#include "stream_order/checker.hpp"

#include <algorithm>
#include <set>

#include "stream_order/watch.hpp"

namespace emm::stream_order {
namespace {

thread_local unsigned quiet_depth = 0;

void last_use(std::vector<Point>& uses, Point point) {
  const auto known = std::find_if(uses.begin(), uses.end(),
                                  [&](const Point& use) { return use.timeline == point.timeline; });
  if (known == uses.end()) {
    uses.push_back(point);
  } else {
    known->at = std::max(known->at, point.at);
  }
}

}  // namespace

Quiet::Quiet() noexcept { ++quiet_depth; }
Quiet::~Quiet() { --quiet_depth; }
bool Quiet::is_on() noexcept { return quiet_depth != 0; }

Checker::Checker(std::uint64_t (*current_event)() noexcept) noexcept
    : current_event_(current_event) {}
Checker::~Checker() = default;

void Checker::report_hazard(Hazard::How how, const TracedAllocation& allocation,
                            std::uint32_t timeline, std::uint32_t to, std::uint32_t to_stream) {
  found_.push_back({.how = how,
                    .id = allocation.id,
                    .born = allocation.born,
                    .ended = allocation.live ? std::nullopt : std::optional(allocation.ended),
                    .stream = streams_.tag(timeline),
                    .event = current_event_(),
                    .to = to,
                    .to_stream = to_stream,
                    .description = allocation.description});
  any_found_.store(true, std::memory_order_relaxed);
}

std::vector<Hazard> Checker::take_found() {
  const std::lock_guard lock(mutex_);
  any_found_.store(false, std::memory_order_relaxed);
  return std::exchange(found_, {});
}

template <class Ordered>
std::optional<std::uint32_t> Checker::unordered(const TracedAllocation& allocation,
                                                Ordered ordered) const {
  if (allocation.live) return allocation.birth.timeline;
  for (const auto& use : allocation.uses) {
    if (!ordered(use)) return use.timeline;
  }
  return std::nullopt;
}

void Checker::name_stream(std::uint32_t device, StreamHandle stream, std::uint32_t tag) {
  const std::lock_guard lock(mutex_);
  streams_.set_tag(device, stream, tag);
}

TracedAllocation* Checker::live(Device& device, DevicePtr ptr, std::uint32_t id) {
  return device.shadow.live(device.extents.place_of(ptr.value), id);
}

void Checker::allocated(std::uint32_t device, std::uint32_t id, DevicePtr ptr, std::uint64_t size,
                        StreamHandle stream) {
  // Only a defective manager returns such an address; no memory has it.
  const bool nowhere =
      ptr.value >= PhysicalExtents::kPhysical || size > PhysicalExtents::kPhysical - ptr.value;
  if (size == 0 || ptr.value == 0 || nowhere) return;
  const std::lock_guard lock(mutex_);
  auto& on = devices_[device];
  const auto timeline = streams_.find(device, stream);
  const auto before = [&](const Point& use) { return streams_.before_next(use, timeline); };
  bool taken = false;
  std::set<const TracedAllocation*> accused;
  on.extents.for_each(ptr.value, size, [&](const PhysicalExtents::Extent& at) {
    on.shadow.overlapping(at.place, at.place + at.size, [&](const ShadowRange& range) {
      const auto& allocation = *range.allocation;
      if (allocation.live && allocation.reached_by(ptr.value, ptr.value + size)) {
        taken = true;  // The manager handed out live addresses twice. The engine reports that.
        return;
      }
      const auto work = unordered(allocation, before);
      if (work && accused.insert(&allocation).second) {
        report_hazard(Hazard::How::handed_out, allocation, *work, id, streams_.tag(timeline));
      }
    });
  });
  if (taken) return;
  const auto allocation = std::make_shared<TracedAllocation>(
      TracedAllocation{.id = id,
                       .live = true,
                       .address = ptr.value,
                       .size = size,
                       .born = current_event_(),
                       .ended = 0,
                       .birth = streams_.begin_of_memory(timeline),
                       .uses = {},
                       .freed_at = {},
                       .number = ++on.allocation_count,
                       .description = {}});
  if (tell_) tell_(id, false, allocation->description);
  on.extents.for_each(ptr.value, size, [&](const PhysicalExtents::Extent& at) {
    const auto end = at.place + at.size;
    on.shadow.erase(at.place, end, [](const ShadowRange&) { return true; });
    on.shadow.add(at.place, {.end = end, .allocation = allocation});
  });
}

void Checker::used(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto timeline = streams_.find(device, stream);
  streams_.enter(timeline);
  const auto point = streams_.mark(timeline);
  if (auto* allocation = live(devices_[device], ptr, id)) last_use(allocation->uses, point);
}

void Checker::came_back(std::uint32_t device, std::uint32_t id, DevicePtr ptr,
                        StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  auto* allocation = live(devices_[device], ptr, id);
  if (allocation == nullptr) return;
  const auto timeline = streams_.find(device, stream);
  last_use(allocation->uses, streams_.mark(timeline));
  streams_.after(allocation->birth.timeline, streams_.upto(timeline));
}

void Checker::ending(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  auto& on = devices_[device];
  auto* allocation = live(on, ptr, id);
  if (allocation == nullptr) return;
  const auto own = allocation->birth.timeline;
  const auto freed_on = stream.value == 0 ? own : streams_.find(device, stream);
  if (freed_on == own) {
    last_use(allocation->uses, streams_.mark(own));
  } else {
    // A wait of the freeing stream or of the host for the own stream, after the birth of the
    // memory, hands the memory over: the work on the own stream ended there.
    const auto known = streams_.known(freed_on, own);
    const bool handed_over = known >= allocation->birth.at;
    last_use(allocation->uses, handed_over                        ? Point{own, known}
                               : streams_.done(allocation->birth) ? allocation->birth
                                                                  : streams_.mark(own));
    last_use(allocation->uses, streams_.mark(freed_on));
  }
  streams_.end_of_memory(own);
  allocation->live = false;
  allocation->ended = current_event_();
  if (tell_) tell_(id, true, allocation->description);
  sweep(on);
}

void Checker::event_recorded(std::uint32_t record, std::uint32_t device, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto timeline = streams_.find(device, stream);
  streams_.enter(timeline);
  records_[record] = streams_.upto(timeline);
}

void Checker::stream_waits(std::uint32_t device, StreamHandle stream, std::uint32_t record) {
  const std::lock_guard lock(mutex_);
  const auto timeline = streams_.find(device, stream);
  streams_.enter(timeline);
  const auto known = records_.find(record);
  if (known != records_.end()) streams_.after(timeline, known->second);
}

void Checker::host_waits(std::uint32_t record) {
  const std::lock_guard lock(mutex_);
  const auto known = records_.find(record);
  if (known != records_.end()) streams_.complete(known->second);
}

void Checker::host_waits(std::uint32_t device, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto timeline = streams_.find(device, stream);
  streams_.enter(timeline);
  streams_.complete(streams_.upto(timeline));
}

void Checker::host_waits_for_device(std::uint32_t device) {
  const std::lock_guard lock(mutex_);
  streams_.complete(streams_.all(device));
}

void Checker::forget_record(std::uint32_t record) {
  const std::lock_guard lock(mutex_);
  records_.erase(record);
}

/// The driver takes back what the first `allocation_count` allocations have at [begin, begin +
/// size). It waits for no work, or it follows the order of the stream `on`: whoever gets the memory
/// next comes after that. Work that reaches the memory by other addresses continues.
void Checker::end_of_range(Device& device, std::uint64_t begin, std::uint64_t size, Hazard::How how,
                           std::optional<std::uint32_t> on, std::uint64_t allocation_count) {
  if (size == 0) return;
  const auto before = [&](const Point& use) {
    return on ? streams_.before_next(use, *on) : streams_.done(use);
  };
  const auto by_these = [&](const ShadowRange& range) {
    return range.allocation->number <= allocation_count &&
           range.allocation->reached_by(begin, begin + size);
  };
  std::set<const TracedAllocation*> accused;
  device.extents.for_each(begin, size, [&](const PhysicalExtents::Extent& at) {
    const auto end = at.place + at.size;
    device.shadow.overlapping(at.place, end, [&](const ShadowRange& range) {
      if (!by_these(range)) return;
      const auto work = unordered(*range.allocation, before);
      if (work && accused.insert(range.allocation.get()).second)
        report_hazard(how, *range.allocation, *work);
    });
    device.shadow.erase(at.place, end, [&](const ShadowRange& range) {
      if (!by_these(range)) return false;
      auto& allocation = *range.allocation;
      if (!on || allocation.live || !allocation.freed_at) return true;
      allocation.uses = {*allocation.freed_at};
      return false;
    });
  });
}

/// Forgets allocations whose work is done. Runs when the number of ranges has doubled since the
/// last sweep.
void Checker::sweep(Device& device) {
  if (device.shadow.size() < device.sweep_at) return;
  device.shadow.sweep([&](const TracedAllocation& allocation) {
    return std::all_of(allocation.uses.begin(), allocation.uses.end(),
                       [&](const Point& use) { return streams_.done(use); });
  });
  device.sweep_at = std::max<std::size_t>(1024, 2 * device.shadow.size());
}

}  // namespace emm::stream_order
