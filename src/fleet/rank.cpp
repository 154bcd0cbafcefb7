#include "fleet/rank.hpp"

#include <algorithm>
#include <filesystem>

#include "format/file_bytes.hpp"
#include "format/json_value.hpp"
#include "inspect/lifetimes.hpp"
#include "inspect/oom.hpp"

namespace emm::fleet {
namespace {

constexpr std::uint64_t kFiguresMost = std::uint64_t{4} << 20;  // a file of figures is small

std::optional<std::uint64_t> number_of(const format::JsonValue& of, std::string_view name) {
  const auto* member = of.find(name);
  return member != nullptr ? member->as_u64() : std::nullopt;
}

}  // namespace

Figures figures_of(const std::string& path) {
  Figures figures;
  std::error_code error;
  if (path.empty() || std::filesystem::file_size(path, error) > kFiguresMost || error)
    return figures;
  auto text = format::file_bytes(path, nullptr);
  if (!text) return figures;
  const auto json = format::parse_json(*text, path);
  if (!json) return figures;
  figures.world = number_of(*json, "world").value_or(number_of(*json, "world_size").value_or(0));
  const auto* stats = json->find("stats");
  if (stats != nullptr) figures.reserved_peak = number_of(*stats, "reserved_bytes.all.peak");
  figures.capacity = number_of(*json, "device_total_bytes");
  figures.outside = number_of(*json, "outside_allocator_bytes");
  const auto used = number_of(*json, "device_used_bytes");
  if (!figures.outside && used && stats != nullptr) {
    const auto now = number_of(*stats, "reserved_bytes.all.current");
    if (now && *now <= *used) figures.outside = *used - *now;
  }
  return figures;
}

std::uint64_t Rank::used() const noexcept {
  auto used = held();
  if (refusal) used = std::max(used, refusal->live + refusal->size);
  return used + outside.value_or(0);
}

Rank rank_of(const inspect::Recording& recording, Sites& sites, const Figures& figures,
             std::optional<std::uint64_t> capacity) {
  using What = inspect::Lifetime::What;
  const auto& trace = recording.trace();
  const inspect::Lifetimes lifetimes(trace);
  Rank rank;
  rank.read = true;
  rank.events = trace.size();
  SiteNumbers numbers(trace, sites);
  std::uint64_t live = 0, count = 0, reserved = 0, reserved_most = 0;
  bool backing = false;
  const auto change = [&](AllocId id, bool begins) {
    const auto& each = lifetimes[id];
    auto& sum = each.what == What::backing ? reserved : live;
    if (each.what != What::backing && each.what != What::device) return;
    sum = begins ? sum + each.size : sum - std::min(sum, each.size);
    if (each.what == What::backing) {
      backing = true;
      reserved_most = std::max(reserved_most, reserved);
    } else {
      count = begins ? count + 1 : count - 1;
      rank.frees += begins ? 0 : 1;
    }
  };
  lifetimes.walk(
      [&](std::uint32_t event, AllocId id) {
        change(id, true);
        const auto& each = lifetimes[id];
        if (each.what == What::device && !each.preexisting)
          rank.requests.push_back({event, numbers.of(each.site), each.size});
      },
      [&](std::uint32_t, AllocId id) { change(id, false); },
      [&](std::uint32_t event) {
        if (live > rank.peak_live) {
          rank.peak_live = live;
          rank.peak_count = count;
          rank.peak_event = event;
        }
        if (!inspect::is_refused(trace[event])) return;
        ++rank.refused;
        if (!rank.refusal) {
          rank.refusal = Refusal{event, numbers.of(trace[event].site), trace[event].size, live};
        }
      });
  for (const auto& each : lifetimes.all()) {
    if (each.what != What::device || rank.peak_live == 0 || !each.live_at(rank.peak_event))
      continue;
    auto& held = rank.at_peak[{numbers.of(each.site), each.size}];
    ++held.count;
    held.bytes += each.size;
  }
  if (backing) rank.reserved = reserved_most;
  // What the run counted also holds where the recording began late.
  if (figures.reserved_peak && *figures.reserved_peak >= rank.reserved.value_or(0))
    rank.reserved = figures.reserved_peak;
  rank.limit = capacity ? capacity : figures.capacity;
  if (!rank.limit && trace.least_capacity() != 0) rank.limit = trace.least_capacity();
  rank.outside = figures.outside;
  if (!rank.outside && rank.refusal) {
    const auto report = inspect::find_ooms(recording, lifetimes, rank.limit);
    for (const auto& oom : report.all) {
      if (!oom.capacity || !oom.device_free || !oom.reserved) continue;
      const auto inside = *oom.device_free + *oom.reserved;
      if (inside > *oom.capacity) continue;
      rank.outside = *oom.capacity - inside;
      break;
    }
  }
  return rank;
}

}  // namespace emm::fleet
