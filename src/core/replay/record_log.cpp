#include "replay/record_log.hpp"

#include <algorithm>

namespace emm::replay {
namespace {

std::uint8_t byte_of(std::uint64_t value) {
  return static_cast<std::uint8_t>(std::min<std::uint64_t>(value, 255));
}

}  // namespace

void RecordLog::begin_threads(std::size_t threads) {
  if (log_ == nullptr) return;
  order_ = std::make_unique<RecordOrder>(*log_, threads);
  log_ = order_.get();
}

void RecordLog::write_ordered() {
  if (order_) order_->write();
}

log::Gauges RecordLog::gauges(const ContextState& context) const {
  log::Gauges gauges{.live_bytes = accounts_.live_bytes, .live_count = accounts_.live_count};
  if (!context.open()) return gauges;
  gauges.reserved_bytes = context.driver().held_bytes();
  gauges.total_bytes = context.at_start().total;
  // Assumes that the memory which others hold from the device has not changed.
  const auto available = context.at_start().free + context.held_at_start();
  gauges.free_bytes = available > gauges.reserved_bytes ? available - gauges.reserved_bytes : 0;
  return gauges;
}

log::Record RecordLog::record_of(std::uint64_t at, const trace::Event& event,
                                 trace::Outcome outcome, Times times, std::uint64_t address,
                                 std::uint64_t size, trace::Op freed_kind) const {
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
          .device = byte_of(contexts_[event.context].device()),
          .repeat = byte_of(state_.pass)};
}

void RecordLog::add(const trace::Event& event, trace::Outcome outcome, Times times,
                    std::uint64_t address, std::uint64_t size, trace::Op freed_kind, bool late) {
  if (log_ == nullptr) return;
  auto record = record_of(state_.at, event, outcome, times, address, size, freed_kind);
  record.late = late;
  log_->on_record(record, gauges(contexts_[event.context]));
}

void RecordLog::add_at(RecordOrder::Buffer& buffer, std::uint64_t place, std::uint64_t at,
                       const trace::Event& event, trace::Outcome outcome, Times times,
                       std::uint64_t address, std::uint64_t size, trace::Op freed_kind) const {
  RecordOrder::add(buffer, place, record_of(at, event, outcome, times, address, size, freed_kind),
                   gauges(contexts_[event.context]));
}

void RecordLog::add_ended(trace::Op op, AllocId id, ContextId in, Times times,
                          std::uint64_t address, std::uint64_t size, trace::Op made_by) {
  if (log_ == nullptr) return;
  const auto& context = contexts_[in];
  const auto& trace = state_.trace;
  const bool in_trace = state_.at < trace.size();
  log_->on_record({.seq = state_.at,
                   .begin_ns = times.begin_ns,
                   .end_ns = times.end_ns,
                   .pointer = address,
                   .size = size,
                   .id = index(id),
                   .thread = in_trace ? static_cast<std::uint32_t>(trace[state_.at].thread) : 0,
                   .stream = 0,
                   .context = static_cast<std::uint8_t>(in),
                   .op = op,
                   .freed_kind = made_by,
                   .outcome = trace::Outcome::ok,
                   .device = byte_of(context.device()),
                   .repeat = byte_of(state_.pass),
                   .late = false},
                  gauges(context));
}

}  // namespace emm::replay
