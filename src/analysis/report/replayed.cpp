#include "report/replayed.hpp"

namespace emm::report {

void Replayed::on_record(const log::Record& record, const log::Gauges& gauges) {
  if (record.repeat != 0 || record.seq >= events_) return;
  const auto event = static_cast<std::uint32_t>(record.seq);
  auto& steps = reserved_[record.device];
  const auto before = steps.empty() ? 0 : steps.back().bytes;
  if (gauges.reserved_bytes != before) {
    if (!steps.empty() && steps.back().event == event) {
      steps.back().bytes = gauges.reserved_bytes;
    } else {
      steps.push_back({.event = event, .bytes = gauges.reserved_bytes});
    }
  }
  if (!asks_for_device_memory(record.op)) return;
  if (record.outcome == trace::Outcome::oom || record.outcome == trace::Outcome::error) {
    failed_.push_back(event);
  } else if (record.id < addresses_.size()) {
    addresses_[record.id] = record.pointer;
  }
}

}  // namespace emm::report
