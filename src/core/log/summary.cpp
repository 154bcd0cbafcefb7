#include "log/summary.hpp"

#include "base/text_format.hpp"

namespace emm::log {
namespace {

std::string worded(const Flush& flush) {
  return text::format("event {}: {} frees, {} bytes", flush.event, flush.count, flush.bytes);
}

}  // namespace

FlushComparison compare_flushes(const std::vector<Flush>& recorded,
                                const std::vector<Flush>& replayed) {
  FlushComparison comparison;
  comparison.recorded = recorded.size();
  const auto differs = [&](const std::string& words) {
    if (comparison.first_difference.empty()) comparison.first_difference = words;
  };
  // Both lists are sorted by event. Flushes of the same event are matched in order.
  std::size_t r = 0, p = 0;
  while (r < recorded.size() || p < replayed.size()) {
    if (p == replayed.size() || (r < recorded.size() && recorded[r].event < replayed[p].event)) {
      differs(text::format("recorded at {}; the replay did not flush there", worded(recorded[r])));
      ++r;
    } else if (r == recorded.size() || replayed[p].event < recorded[r].event) {
      differs(
          text::format("replayed at {}; the recording has no flush there", worded(replayed[p])));
      ++comparison.unrecorded;
      ++p;
    } else {
      if (recorded[r].count == replayed[p].count && recorded[r].bytes == replayed[p].bytes) {
        ++comparison.as_recorded;
      } else {
        differs(text::format("recorded at {}; replayed with {} frees, {} bytes",
                             worded(recorded[r]), replayed[p].count, replayed[p].bytes));
      }
      ++r;
      ++p;
    }
  }
  return comparison;
}

}  // namespace emm::log
