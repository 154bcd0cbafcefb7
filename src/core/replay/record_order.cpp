#include "replay/record_order.hpp"

#include <queue>
#include <utility>

namespace emm::replay {

using trace::Op;

void RecordOrder::write() {
  using First = std::pair<std::uint64_t, Buffer*>;  // a buffer and the place of its next record
  const auto later = [](const First& a, const First& b) { return a.first > b.first; };
  std::priority_queue<First, std::vector<First>, decltype(later)> firsts(later);
  for (auto& buffer : buffers_) {
    if (!buffer.kept.empty()) firsts.emplace(buffer.kept.front().place, &buffer);
  }
  while (!firsts.empty()) {
    auto& buffer = *firsts.top().second;
    firsts.pop();
    // Mostly only one buffer has records left, so the queue is not used for each record.
    do write(buffer.kept[buffer.next++]);
    while (buffer.next < buffer.kept.size() &&
           (firsts.empty() || buffer.kept[buffer.next].place < firsts.top().first));
    if (buffer.next < buffer.kept.size()) {
      firsts.emplace(buffer.kept[buffer.next].place, &buffer);
    } else {
      buffer.kept.clear();
      buffer.next = 0;
    }
  }
}

void RecordOrder::write(Buffer::Kept& kept) {
  auto& [place, record, gauges] = kept;
  if (asks_for_device_memory(record.op) && record.outcome == trace::Outcome::ok) {
    live_bytes_ += record.size;
    ++live_count_;
  } else if (!asks_for_device_memory(record.op) && record.id != log::kNoId && !record.late &&
             asks_for_device_memory(record.freed_kind) &&
             (record.op == Op::free || record.op == Op::reset ||
              record.op == Op::context_destroy)) {
    live_bytes_ -= record.size;
    --live_count_;
  }
  gauges.live_bytes = live_bytes_;
  gauges.live_count = live_count_;
  log_.on_record(record, gauges);
}

}  // namespace emm::replay
