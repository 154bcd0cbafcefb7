#include "inspect/need.hpp"

#include <map>

#include "base/text.hpp"
#include "inspect/columns.hpp"
#include "inspect/places.hpp"
#include "inspect/stream_need.hpp"
#include "limit/bounds.hpp"
#include "limit/solve.hpp"

namespace emm::inspect {
namespace {

constexpr double kGap = 0.01;

using Buffers = std::vector<limit::Buffer>;

std::map<std::uint32_t, Buffers> parts_of(const Lives& lives) {
  std::map<std::uint32_t, Buffers> parts;
  for (const auto& life : lives.all()) {
    if (life.what != Life::What::device) continue;
    const auto end = life.death == kNever ? std::uint64_t{lives.trace().size()} : std::uint64_t{life.death};
    parts[lives.device(life)].push_back({.lower = life.birth, .upper = end, .size = life.size});
  }
  return parts;
}

Need bound(const Lives& lives, std::uint32_t device, const Buffers& buffers) {
  Need need;
  need.device = device;
  need.allocs = buffers.size();
  need.requested = limit::requested_bound(buffers);
  need.aligned = limit::aligned_bound(buffers, Need::kAlignment);
  need.paged = limit::paged_bound(buffers, Need::kPage);
  need.per_stream = stream_need(lives, device);
  return need;
}

}  // namespace

std::vector<Need> bounds(const Lives& lives) {
  std::vector<Need> out;
  for (const auto& [device, buffers] : parts_of(lives)) out.push_back(bound(lives, device, buffers));
  return out;
}

std::vector<Need> needs(const Lives& lives, const Clock& clock, std::uint64_t search_ns) {
  std::vector<Need> out;
  for (const auto& [device, buffers] : parts_of(lives)) {
    const auto bracket = limit::minimal_capacity(buffers, kGap, {.clock = &clock, .time_ns = search_ns});
    auto need = bound(lives, device, buffers);
    need.laid_out = true;
    need.lower = bracket.lower;
    need.greedy = bracket.greedy_height;
    need.upper = bracket.upper;
    out.push_back(need);
  }
  return out;
}

std::string to_text(const std::vector<Need>& needs) {
  if (needs.empty()) return "\nWhat any manager needs: nothing, as no device memory is allocated\n";
  std::string out;
  for (const auto& need : needs) {
    out += needs.size() > 1 ? text::format("\nWhat any manager needs of device {}\n", need.device) : std::string("\nWhat any manager needs\n");
    std::vector<std::vector<std::string>> rows{
        {"at least", text::format("{}, the peak of what is live", bytes_in_full(need.requested))},
        {"", text::format("{} with sizes rounded up to {} bytes", bytes_in_full(need.aligned), Need::kAlignment)},
        {"", text::format("{} in pages of 2 MiB", bytes_in_full(need.paged))},
        {"", text::format("{} if streams share only what the trace orders", bytes_in_full(need.per_stream))}};
    if (need.laid_out) {
      const auto over = need.lower == 0 ? 0 : 100 * (static_cast<double>(need.upper) / static_cast<double>(need.lower) - 1);
      rows.push_back({"proven", bytes_in_full(need.lower)});
      rows.push_back({"enough", text::format("{}, a layout that was checked; {} % over what is proven",
                                             bytes_in_full(need.upper), text::fixed(over, 2))});
      rows.push_back({"", text::format("{} by the best greedy order alone", bytes_in_full(need.greedy))});
    }
    out += columns("ll", rows);
  }
  return out;
}

void to_json(format::JsonWriter& json, const std::vector<Need>& needs) {
  json.begin_array();
  for (const auto& need : needs) {
    json.begin_object().member("device", need.device).member("allocs", need.allocs);
    json.member("requested_bytes", need.requested).member("aligned_bytes", need.aligned).member("paged_bytes", need.paged);
    json.member("per_stream_bytes", need.per_stream);
    if (need.laid_out) {
      json.member("lower_bytes", need.lower).member("greedy_bytes", need.greedy).member("upper_bytes", need.upper);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace emm::inspect
