#include "fleet/rank.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "format/file_bytes.hpp"
#include "format/json_value.hpp"
#include "inspect/oom.hpp"
#include "trace/lifetimes.hpp"

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

namespace {

/// Returns the devices on which the program asked for memory, ascending.
std::vector<std::uint32_t> devices_of(const trace::Lifetimes& lifetimes) {
  std::set<std::uint32_t> devices;
  const auto& trace = lifetimes.trace();
  if (trace.device_count() < 2) return trace.devices();
  for (const auto& each : lifetimes.all()) {
    if (each.what == trace::Lifetime::MemoryKind::device) devices.insert(lifetimes.device(each));
  }
  return {devices.begin(), devices.end()};
}

/// Makes the rank of the events on `device`, or of all events.
Rank rank_of(const inspect::Recording& recording, const trace::Lifetimes& lifetimes, Sites& sites,
             std::optional<std::uint32_t> device) {
  using MemoryKind = trace::Lifetime::MemoryKind;
  const auto& trace = recording.trace();
  Rank rank;
  rank.read = true;
  rank.events = trace.size();
  SiteNumbers numbers(trace, sites);
  std::uint64_t live = 0, count = 0, reserved = 0, reserved_most = 0;
  bool backing = false;
  const auto counts = [&](const trace::Lifetime& each) {
    return (each.what == MemoryKind::backing || each.what == MemoryKind::device) &&
           (!device || lifetimes.device(each) == *device);
  };
  const auto change = [&](const trace::Lifetime& each, bool begins) {
    auto& sum = each.what == MemoryKind::backing ? reserved : live;
    sum = begins ? sum + each.size : sum - std::min(sum, each.size);
    if (each.what == MemoryKind::backing) {
      backing = true;
      reserved_most = std::max(reserved_most, reserved);
    } else {
      count = begins ? count + 1 : count - 1;
      rank.frees += begins ? 0 : 1;
    }
  };
  std::uint64_t changes = 0, changed = 0;
  for (const auto& each : lifetimes.all()) {
    if (each.what != MemoryKind::device || !counts(each)) continue;
    changes += (each.preexisting ? 0 : 1) + (each.death == trace::kNever ? 0 : 1);
  }
  std::size_t part = 0;
  std::uint64_t taken = 0;
  const auto step = [&](std::uint32_t event, const trace::Lifetime& each) {
    if (each.what != MemoryKind::device) return;
    const auto now =
        std::min(Rank::kParts - 1, static_cast<std::size_t>(changed++ * Rank::kParts / changes));
    while (part < now) rank.begins[++part] = event;
    rank.course[part] = std::max(rank.course[part], live);
  };
  lifetimes.walk(
      [&](std::uint32_t event, AllocId id) {
        const auto& each = lifetimes[id];
        if (!counts(each)) return;
        change(each, true);
        if (!each.preexisting) step(event, each);
        if (each.what == MemoryKind::backing) {
          taken += each.preexisting ? 0 : each.size;
        } else if (!each.preexisting) {
          const auto site = numbers.of(each.site);
          // A manager takes device memory for a request just before it serves it.
          if (taken > 0) {
            auto& grown = rank.grown[{site, each.size}];
            ++grown.count;
            grown.bytes += taken;
            taken = 0;
          }
          rank.requests.push_back({event, site, each.size});
        }
      },
      [&](std::uint32_t event, AllocId id) {
        if (!counts(lifetimes[id])) return;
        change(lifetimes[id], false);
        step(event, lifetimes[id]);
      },
      [&](std::uint32_t event) {
        if (event == trace.first_moment()) rank.course[0] = std::max(rank.course[0], live);
        if (event >= trace.first_moment() && live > rank.peak_live) {
          rank.peak_live = live;
          rank.peak_count = count;
          rank.peak_event = event;
        }
        const auto& each = trace[event];
        if (!trace::is_refused(each)) return;
        if (device && trace.contexts()[index(each.context)].device != *device) return;
        ++rank.refused;
        taken = 0;
        if (!rank.refusal) rank.refusal = Refusal{event, numbers.of(each.site), each.size, live};
      });
  for (const auto& each : lifetimes.all()) {
    if (each.what != MemoryKind::device || !counts(each) || rank.peak_live == 0 ||
        !each.live_at(rank.peak_event))
      continue;
    auto& held = rank.at_peak[{numbers.of(each.site), each.size}];
    ++held.count;
    held.bytes += each.size;
  }
  if (backing) rank.reserved = reserved_most;
  return rank;
}

}  // namespace

std::vector<Rank> ranks_of(const inspect::Recording& recording, const RankFile& file, Sites& sites,
                           const Figures& figures, std::optional<std::uint64_t> capacity) {
  const auto& trace = recording.trace();
  const trace::Lifetimes lifetimes(trace);
  const auto devices = devices_of(lifetimes);
  std::vector<Rank> ranks;
  if (devices.size() > 1) {
    for (const auto device : devices) {
      auto& rank = ranks.emplace_back(rank_of(recording, lifetimes, sites, device));
      rank.file = file;
      rank.device = device;
      rank.limit = capacity;
      if (!rank.limit && trace.capacity(device) != 0) rank.limit = trace.capacity(device);
    }
    return ranks;
  }
  auto& rank = ranks.emplace_back(rank_of(recording, lifetimes, sites, std::nullopt));
  rank.file = file;
  // What the run itself counted is right even if the recording began late.
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
  return ranks;
}

}  // namespace emm::fleet
