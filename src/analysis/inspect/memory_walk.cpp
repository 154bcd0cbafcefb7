#include "inspect/memory_walk.hpp"

namespace emm::inspect {
namespace {

using trace::Op;
using MemoryKind = trace::Lifetime::MemoryKind;

bool ends_one(Op op) { return op == Op::free || op == Op::close_ipc_handle; }

}  // namespace

void MemoryWalk::look_up(AllocId id, LiveMemory& out) const {
  const auto& lifetime = lifetimes_[id];
  out.size = lifetime.size;
  out.time_ns = lifetime.birth == trace::kNever ? 0 : trace()[lifetime.birth].time_ns;
  out.birth = lifetime.birth;
  out.gone = lifetime.gone;
  out.site = lifetime.site;
  out.thread = lifetime.thread;
  out.stream = lifetime.stream;
  out.context = lifetime.context;
  out.what = lifetime.what;
  out.preexisting = lifetime.preexisting;
  out.mapped =
      lifetime.what == MemoryKind::backing && recording_ != nullptr && recording_->is_mapped(id);
}

std::optional<std::uint64_t> MemoryWalk::device_free() const {
  return recording_ == nullptr ? std::nullopt : recording_->device_free(event().id);
}

void MemoryWalk::each_live(const std::function<void(const LiveMemory&)>& each) const {
  LiveMemory memory;
  const auto last = events_ == trace().size() ? events_ - 1 : events_;
  for (std::uint32_t i = 0; i < lifetimes_.all().size(); ++i) {
    const auto& lifetime = lifetimes_.all()[i];
    if (!lifetime.live_at(last)) continue;
    look_up(static_cast<AllocId>(i), memory);
    each(memory);
  }
}

std::optional<AddressSpace> MemoryWalk::space(std::uint32_t event,
                                              std::optional<std::uint32_t> device) const {
  if (recording_ == nullptr || !recording_->has_addresses()) return std::nullopt;
  return address_space_after(*recording_, lifetimes_, event, device);
}

void MemoryWalk::pass(const std::vector<Visitor*>& visitors) {
  has_begun_ = false;
  std::uint32_t at = trace::kNever;
  const auto ids = lifetimes_.all().size();
  const auto go_to = [&](std::uint32_t event) {
    at = events_ = event;
    event_ = &trace()[event];
    if (index(event_->id) < ids) look_up(event_->id, of_event_);
    memory_ = &of_event_;
    if (event == trace().beginning()) begin_recording(visitors);
  };
  const auto step = [&](AllocId id, auto call) {
    if (id == event_->id) {
      for (auto* visitor : visitors) (visitor->*call)(*this, events_, of_event_);
      return;
    }
    LiveMemory memory;  // a reset ends it, or it is old memory that is named later
    look_up(id, memory);
    for (auto* visitor : visitors) (visitor->*call)(*this, events_, memory);
  };
  lifetimes_.walk(
      [&](std::uint32_t event, AllocId id) {
        if (at != event) go_to(event);
        step(id, &Visitor::began);
      },
      [&](std::uint32_t event, AllocId id) {
        if (at != event) go_to(event);
        step(id, &Visitor::ended);
      },
      [&](std::uint32_t event) {
        if (at != event) go_to(event);
        if (event_->has(trace::event_flag::backing) && ends_one(event_->op) &&
            of_event_.what != MemoryKind::backing && of_event_.gone == event &&
            lifetimes_[event_->id].death < event) {
          of_event_.by_reset = trace()[lifetimes_[event_->id].death].op != Op::free;
          step(event_->id, &Visitor::completed);
        }
        for (auto* visitor : visitors) visitor->passed(*this, event);
      });
  events_ = static_cast<std::uint32_t>(trace().size());
  if (!has_begun_) begin_recording(visitors);
}

void MemoryWalk::begin_recording(const std::vector<Visitor*>& visitors) {
  has_begun_ = true;
  const auto first = static_cast<std::uint32_t>(trace().first_moment());
  if (first < trace().size()) first_moment_place_ = trace().place(first);
  for (auto* visitor : visitors) visitor->recording_begins(*this, first);
}

}  // namespace emm::inspect
