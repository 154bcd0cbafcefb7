#include "exchange/importers/numba_row.hpp"

#include <algorithm>

#include "exchange/importers/json_row.hpp"

namespace emm::trace {
namespace {

constexpr std::string_view kNumbaBytes = "a count of bytes";
constexpr std::string_view kNumbaAddress = "an address";

NumbaCall call_named(std::string_view name) {
  const auto* const found = std::find(kNumbaCallNames.begin(), kNumbaCallNames.end(), name);
  return static_cast<NumbaCall>(found - kNumbaCallNames.begin());
}

void members_of(JsonRow& json, NumbaRow& row) {
  const auto address = [&] { row.pointer = json.address("ptr", kNumbaAddress); };
  const auto size = [&] { row.size = json.u64("size", kNumbaBytes); };
  switch (row.call) {
    case NumbaCall::memory_info:
      row.free = json.u64("free", kNumbaBytes);
      row.total = json.u64("total", kNumbaBytes);
      break;
    case NumbaCall::alloc:
      size(), address();
      break;
    case NumbaCall::managed:
      size(), address();
      row.attach_global = json.boolean("attach_global");
      break;
    case NumbaCall::hostalloc:
      size(), address();
      row.mapped = json.boolean("mapped");
      row.portable = json.boolean("portable");
      row.wc = json.boolean("wc");
      break;
    case NumbaCall::pin:
      size(), address();
      row.mapped = json.boolean("mapped");
      break;
    case NumbaCall::unpin:
      address();
      break;
    case NumbaCall::ipc_export:
      size(), address();
      row.offset = json.u64("offset", kNumbaBytes);
      break;
    case NumbaCall::pending_add: {
      const auto dtor = json.string("dtor", "the name of a destructor");
      row.memory = dtor == "cuMemFree" || dtor == "cuMemFreeHost";
      if (row.memory) size(), address();
      break;
    }
    case NumbaCall::pending_flush:
      row.count = json.u64("n", "a count");
      row.bytes = json.u64("bytes", kNumbaBytes);
      break;
    case NumbaCall::initialize:
    case NumbaCall::reset:
    case NumbaCall::defer_begin:
    case NumbaCall::defer_end:
    case NumbaCall::unknown:
      break;
  }
}

}  // namespace

Result<std::optional<BadField>> parse_numba_row(std::string_view line, const std::string& name,
                                                std::uint64_t line_number, NumbaRow& row) {
  auto value = format::parse_json(line, name, line_number);
  if (!value) return std::move(value).error();
  JsonRow json(line, *value);
  row.line = static_cast<std::uint32_t>(line_number);
  const auto op = json.string("op", "the name of a call");
  row.call = call_named(op);
  if (row.call == NumbaCall::unknown) row.unknown = op;
  row.seq = json.u64("seq", "a count");
  row.time_ns = json.time("t_ns", "nanoseconds");
  row.thread = json.u64("tid", "a thread's number");
  members_of(json, row);
  return json.bad();
}

}  // namespace emm::trace
