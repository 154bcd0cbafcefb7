#include "inspect/memory_need.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "bounds/bounds.hpp"
#include "bounds/solve.hpp"
#include "format/columns.hpp"
#include "inspect/report_parts.hpp"
#include "inspect/stream_need.hpp"

namespace emm::inspect {
namespace {

// The search for a layout ends when the capacity that is enough is within 1 % of the proven bound.
constexpr double kGapAccepted = 0.01;

/// The requests to one device.
struct RequestsOfDevice {
  std::vector<bounds::Buffer> buffers;
  std::uint64_t refused = 0;
};

std::map<std::uint32_t, RequestsOfDevice> parts_of(const trace::Lifetimes& lifetimes,
                                                   trace::CountedRequests asked) {
  const auto& trace = lifetimes.trace();
  std::map<std::uint32_t, RequestsOfDevice> parts;
  for (const auto& lifetime : lifetimes.all()) {
    if (lifetime.what != trace::Lifetime::MemoryKind::device) continue;
    const auto end = lifetime.death == trace::kNever ? std::uint64_t{trace.size()}
                                                     : std::uint64_t{lifetime.death};
    const auto begin = std::max<std::uint64_t>(lifetime.birth, trace.first_moment());
    if (end <= begin) continue;  // its free was asked for before the recording
    parts[lifetimes.device(lifetime)].buffers.push_back(
        {.lower = begin, .upper = end, .size = lifetime.size});
  }
  for (std::uint64_t at = 0; asked == trace::CountedRequests::all && at < trace.size(); ++at) {
    if (!trace::is_refused(trace[at])) continue;
    auto& part = parts[trace.contexts()[index(trace[at].context)].device];
    part.buffers.push_back({.lower = at, .upper = at + 1, .size = trace[at].size});
    ++part.refused;
  }
  return parts;
}

MemoryNeed bound(const trace::Lifetimes& lifetimes, std::uint32_t device,
                 const RequestsOfDevice& part, trace::CountedRequests asked) {
  MemoryNeed need;
  need.device = device;
  need.allocs = part.buffers.size() - part.refused;
  need.refused = part.refused;
  need.peak_live = bounds::requested_bound(part.buffers);
  need.aligned = bounds::aligned_bound(part.buffers, MemoryNeed::kAlignment);
  need.paged = bounds::paged_bound(part.buffers, MemoryNeed::kPage);
  need.no_wait = stream_need(lifetimes, device, asked);
  return need;
}

void add_layout(std::vector<std::vector<std::string>>& rows, const MemoryNeed& need) {
  const auto over =
      need.lower == 0
          ? 0
          : 100 * (static_cast<double>(need.upper) / static_cast<double>(need.lower) - 1);
  rows.push_back({"proven", bytes_in_full(need.lower)});
  rows.push_back(
      {"enough", text::format("{}, a layout that was checked;", bytes_in_full(need.upper))});
  rows.push_back({"", text::format("{} % over what is proven", text::fixed(over, 2))});
  rows.push_back(
      {"", text::format("{} by the best greedy order alone", bytes_in_full(need.greedy))});
}

}  // namespace

std::vector<MemoryNeed> bounds(const trace::Lifetimes& lifetimes, trace::CountedRequests asked) {
  std::vector<MemoryNeed> out;
  for (const auto& [device, part] : parts_of(lifetimes, asked))
    out.push_back(bound(lifetimes, device, part, asked));
  return out;
}

std::vector<MemoryNeed> needs(const trace::Lifetimes& lifetimes, const Clock& clock,
                              std::uint64_t search_ns, trace::CountedRequests asked) {
  std::vector<MemoryNeed> out;
  for (const auto& [device, part] : parts_of(lifetimes, asked)) {
    const auto bracket = bounds::minimal_capacity(part.buffers, kGapAccepted,
                                                  {.clock = &clock, .time_ns = search_ns});
    auto need = bound(lifetimes, device, part, asked);
    need.laid_out = true;
    need.lower = bracket.lower;
    need.greedy = bracket.greedy_height;
    need.upper = bracket.upper;
    out.push_back(need);
  }
  return out;
}

std::string to_text(const std::vector<MemoryNeed>& needs) {
  if (needs.empty()) return "\nWhat the program needs: nothing, as it asks for no device memory\n";
  std::string out;
  for (const auto& need : needs) {
    out += needs.size() > 1 ? text::format("\nWhat the program needs of device {}\n", need.device)
                            : std::string("\nWhat the program needs\n");
    std::vector<std::vector<std::string>> rows{
        {"peak live",
         text::format("{}; no manager serves it with less", bytes_in_full(need.peak_live))},
        {"", text::format("{} with sizes rounded up to {} bytes", bytes_in_full(need.aligned),
                          MemoryNeed::kAlignment)},
        {"", text::format("{} in pages of 2 MiB", bytes_in_full(need.paged))}};
    if (need.refused != 0) {
      rows.push_back(
          {"", text::format("{} the recording refused counts at its moment",
                            need.refused == 1 ? std::string("the request that")
                                              : text::format("each of the {} requests that",
                                                             text::grouped(need.refused)))});
    }
    if (need.no_wait > need.peak_live) {
      rows.push_back({"no-wait need", text::format("{}, of a manager that never waits;",
                                                   bytes_in_full(need.no_wait))});
      rows.push_back({"", "one that makes streams wait for each other may need less"});
    }
    if (need.laid_out) add_layout(rows, need);
    out += format::columns("ll", rows);
  }
  return out;
}

void write_members(format::JsonWriter& json, const MemoryNeed& need) {
  json.member("device", need.device).member("allocs", need.allocs).member("refused", need.refused);
  json.member("peak_live_bytes", need.peak_live).member("aligned_bytes", need.aligned);
  json.member("paged_bytes", need.paged).member("no_wait_need_bytes", need.no_wait);
  if (!need.laid_out) return;
  json.member("lower_bytes", need.lower).member("greedy_bytes", need.greedy);
  json.member("upper_bytes", need.upper);
}

}  // namespace emm::inspect
