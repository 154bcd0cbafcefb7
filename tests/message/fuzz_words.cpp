// Any bytes as what people have in place of a recording: files of statistics, and logs with
// messages. Whatever it holds, ranges are ranges, and the answers are text and JSON.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/json_value.hpp"
#include "inspect/statistics.hpp"
#include "inspect/statistics/smi_rows.hpp"
#include "message/answer.hpp"

namespace {

using namespace emm;

void read_statistics(std::string_view bytes) {
  for (const auto* reader : inspect::statistics_readers()) {
    const auto sure = reader->sniff(bytes.substr(0, std::size_t{64} << 10));
    EMM_ASSERT(sure >= 0 && sure <= 100);
    const auto source = format::ByteSource::memory(bytes, "fuzz");
    const auto found = reader->read(*source);
    if (!found) {
      EMM_ASSERT(!found.error().message.empty());
      continue;
    }
    for (const auto& group : found->groups) {
      for (const auto& figure : group.figures)
        EMM_ASSERT(!figure.value || figure.value->low <= figure.value->high);
    }
    EMM_ASSERT(inspect::growth_of(*found, *found).empty());
    EMM_ASSERT(!inspect::to_text(*found, "fuzz", 10).empty());
    EMM_ASSERT(!inspect::brief(*found, "fuzz").answer.empty());
    EMM_ASSERT(format::parse_json(inspect::to_json(*found, *reader, "fuzz")).has_value());
  }
  const auto source = format::ByteSource::memory(bytes, "fuzz");
  const auto rows = inspect::each_smi_row(*source, [](const inspect::SmiRow& row) {
    EMM_ASSERT(!row.used || row.used->low <= row.used->high);
  });
  EMM_ASSERT(rows || !rows.error().message.empty());
}

void read_messages(std::string_view bytes) {
  const auto source = format::ByteSource::memory(bytes, "fuzz");
  const auto found = message::find_messages(*source);
  if (!found) {
    EMM_ASSERT(!found.error().message.empty());
    return;
  }
  EMM_ASSERT(found->count >= found->all.size());
  for (std::size_t i = 0; i < found->all.size(); ++i) {
    const auto& one = found->all[i];
    EMM_ASSERT(one.line >= 1 && one.line <= found->lines);
    for (const auto& figure : one.figures)
      EMM_ASSERT(!figure || figure->bytes.least <= figure->bytes.most);
    const auto answer = message::answer(one);
    EMM_ASSERT(!answer.lead.empty());
    for (const auto& range : {answer.idle, answer.available, answer.lacking, answer.spare})
      EMM_ASSERT(!range || range->least <= range->most);
    if (i >= 4) continue;
    EMM_ASSERT(!message::to_text(*found, i, "fuzz.log").empty());
    EMM_ASSERT(format::parse_json(message::to_json(*found, i, "fuzz.log")).has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_statistics(bytes);
  read_messages(bytes);
  return 0;
}
