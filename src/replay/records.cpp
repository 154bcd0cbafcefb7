#include "replay/run.hpp"

namespace emm::replay {
namespace {

std::uint8_t byte_of(std::uint64_t value) {
  return static_cast<std::uint8_t>(std::min<std::uint64_t>(value, 255));
}

}  // namespace

HostRange Run::range_of(const HostMemory& memory) {
  return std::visit([](const auto& of) { return HostRange{of.host_pointer(), of.size()}; }, memory);
}

log::Gauges Run::gauges(const Lane& lane) const {
  log::Gauges gauges{.live_bytes = live_bytes_, .live_count = live_count_};
  if (!lane.open()) return gauges;
  gauges.reserved_bytes = lane.driver().held_bytes();
  gauges.total_bytes = lane.at_start().total;
  // What others hold of the device is taken to stay as it was.
  const auto available = lane.at_start().free + lane.held_at_start();
  gauges.free_bytes = available > gauges.reserved_bytes ? available - gauges.reserved_bytes : 0;
  return gauges;
}

log::Record Run::record_of(std::uint64_t at, const Event& event, Outcome outcome, Times times,
                           std::uint64_t address, std::uint64_t size, Op freed_kind) const {
  return {.seq = at,
          .begin_ns = times.begin_ns,
          .end_ns = times.end_ns,
          .pointer = address,
          .size = size,
          .id = names_memory(event.op) ? index(event.id) : log::kNoId,
          .thread = static_cast<std::uint32_t>(event.thread),
          .stream = static_cast<std::uint16_t>(event.stream),
          .context = static_cast<std::uint8_t>(event.context),
          .op = event.op,
          .freed_kind = freed_kind,
          .outcome = outcome,
          .device = byte_of(lanes_[index(event.context)]->device()),
          .repeat = byte_of(number_)};
}

void Run::record(const Event& event, Outcome outcome, Times times, std::uint64_t address,
                 std::uint64_t size, Op freed_kind, bool late) {
  if (log_ == nullptr) return;
  auto made = record_of(at_, event, outcome, times, address, size, freed_kind);
  made.late = late;
  log_->on_record(made, gauges(*lanes_[index(event.context)]));
}

void Run::record_at(RecordOrder::Buffer& buffer, std::uint64_t place, std::uint64_t at,
                    const Event& event, Outcome outcome, Times times, std::uint64_t address,
                    std::uint64_t size, Op freed_kind) const {
  RecordOrder::add(buffer, place, record_of(at, event, outcome, times, address, size, freed_kind),
                   gauges(*lanes_[index(event.context)]));
}

void Run::record_ended(Op op, AllocId id, ContextId context, Times times, std::uint64_t address,
                       std::uint64_t size, Op made_by) {
  if (log_ == nullptr) return;
  const auto& lane = *lanes_[index(context)];
  const bool in_trace = at_ < trace_.size();
  log_->on_record({.seq = at_,
                   .begin_ns = times.begin_ns,
                   .end_ns = times.end_ns,
                   .pointer = address,
                   .size = size,
                   .id = index(id),
                   .thread = in_trace ? static_cast<std::uint32_t>(trace_[at_].thread) : 0,
                   .stream = 0,
                   .context = static_cast<std::uint8_t>(context),
                   .op = op,
                   .freed_kind = made_by,
                   .outcome = Outcome::ok,
                   .device = byte_of(lane.device()),
                   .repeat = byte_of(number_),
                   .late = false},
                  gauges(lane));
}

}  // namespace emm::replay
