#include "inspect/need.hpp"

#include <map>

#include "base/text.hpp"
#include "inspect/columns.hpp"
#include "inspect/places.hpp"
#include "limit/bounds.hpp"
#include "limit/solve.hpp"

namespace emm::inspect {
namespace {

constexpr double kGap = 0.01;

struct Part {
  std::vector<limit::Buffer> buffers;
  std::vector<std::uint64_t> streams;
};

}  // namespace

std::vector<Need> needs(const Lives& lives, const Clock& clock, std::uint64_t search_ns) {
  std::map<std::uint32_t, Part> parts;
  for (const auto& life : lives.all()) {
    if (life.what != Life::What::device) continue;
    auto& part = parts[lives.device(life)];
    const auto end = life.death == kNever ? std::uint64_t{lives.trace().size()} : std::uint64_t{life.death};
    part.buffers.push_back({.lower = life.birth, .upper = end, .size = life.size});
    part.streams.push_back(index(life.stream));
  }
  std::vector<Need> out;
  for (const auto& [device, part] : parts) {
    const auto bracket = limit::minimal_capacity(part.buffers, kGap, {.clock = &clock, .time_ns = search_ns});
    out.push_back({.device = device,
                   .allocs = part.buffers.size(),
                   .requested = limit::requested_bound(part.buffers),
                   .aligned = limit::aligned_bound(part.buffers, Need::kAlignment),
                   .paged = limit::paged_bound(part.buffers, Need::kPage),
                   .per_stream = limit::per_stream_bound(part.buffers, part.streams),
                   .lower = bracket.lower,
                   .greedy = bracket.greedy_height,
                   .upper = bracket.upper});
  }
  return out;
}

std::string to_text(const std::vector<Need>& needs) {
  if (needs.empty()) return "\nWhat any manager needs: nothing, as no device memory is allocated\n";
  std::string out;
  for (const auto& need : needs) {
    out += needs.size() > 1 ? text::format("\nWhat any manager needs of device {}\n", need.device) : std::string("\nWhat any manager needs\n");
    const auto over = need.lower == 0 ? 0 : 100 * (static_cast<double>(need.upper) / static_cast<double>(need.lower) - 1);
    out += columns("ll", {{"at least", text::format("{}, the peak of what is live", bytes_in_full(need.requested))},
                          {"", text::format("{} with sizes rounded up to {} bytes", bytes_in_full(need.aligned), Need::kAlignment)},
                          {"", text::format("{} in pages of 2 MiB", bytes_in_full(need.paged))},
                          {"", text::format("{} if no stream uses what another freed", bytes_in_full(need.per_stream))},
                          {"proven", bytes_in_full(need.lower)},
                          {"enough", text::format("{}, a layout that was checked; {} % over what is proven", bytes_in_full(need.upper), text::fixed(over, 2))},
                          {"", text::format("{} by the best greedy order alone", bytes_in_full(need.greedy))}});
  }
  return out;
}

void to_json(format::JsonWriter& json, const std::vector<Need>& needs) {
  json.begin_array();
  for (const auto& need : needs) {
    json.begin_object().member("device", need.device).member("allocs", need.allocs);
    json.member("requested_bytes", need.requested).member("aligned_bytes", need.aligned).member("paged_bytes", need.paged);
    json.member("per_stream_bytes", need.per_stream).member("lower_bytes", need.lower).member("greedy_bytes", need.greedy);
    json.member("upper_bytes", need.upper).end_object();
  }
  json.end_array();
}

}  // namespace emm::inspect
