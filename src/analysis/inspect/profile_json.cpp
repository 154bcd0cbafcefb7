#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "inspect/profile_text.hpp"

namespace emm::inspect {
namespace {

using Json = emm::format::JsonWriter;

void write(Json& json, std::string_view name, const Percentiles& percentiles) {
  json.key(name)
      .begin_object()
      .member("count", percentiles.count)
      .member("min", percentiles.min)
      .member("p50", percentiles.p50);
  json.member("p90", percentiles.p90)
      .member("p99", percentiles.p99)
      .member("max", percentiles.max)
      .end_object();
}

void write(Json& json, std::string_view name, const trace::Trace& trace, const Peak& peak) {
  json.key(name)
      .begin_object()
      .member("bytes", peak.bytes)
      .member("count", peak.count)
      .member("event", peak.event);
  const bool known = peak.event < trace.size();
  const auto place = known ? trace.place(peak.event) : trace::Trace::Place();
  json.member("line", place.line).member("time_ns", place.time_ns).end_object();
}

void write(Json& json, const trace::Trace& trace, const BySite& sites, const BySize& sizes,
           std::size_t top) {
  json.key("by_site").begin_array();
  for (std::size_t i = 0; i < sites.size() && i < top; ++i) {
    json.begin_object().member("bytes", sites[i].bytes).member("count", sites[i].count);
    site_to_json(json, trace, sites[i].key);
    json.end_object();
  }
  json.end_array().key("by_size").begin_array();
  for (std::size_t i = 0; i < sizes.size() && i < top; ++i) {
    json.begin_object()
        .member("size", sizes[i].key)
        .member("count", sizes[i].count)
        .member("bytes", sizes[i].bytes)
        .end_object();
  }
  json.end_array();
}

void write(Json& json, std::string_view name, const trace::Trace& trace, const HeldMemory& held,
           std::size_t top) {
  json.key(name).begin_object().member("count", held.count).member("bytes", held.bytes);
  json.member("sites", std::uint64_t{held.by_site.size()})
      .member("sizes", std::uint64_t{held.by_size.size()});
  write(json, trace, held.by_site, held.by_size, top);
  json.end_object();
}

void write(Json& json, std::string_view name, const std::vector<Share>& shares,
           const std::vector<std::string>& names) {
  json.key(name).begin_array();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto& each = shares[i];
    if (each.events == 0) continue;
    json.begin_object()
        .member("name", names[i])
        .member("events", each.events)
        .member("allocs", each.allocs);
    json.member("bytes", each.bytes)
        .member("frees", each.frees)
        .member("frees_of_others", each.frees_of_others);
    json.member("peak_live_bytes", each.peak_live_bytes).end_object();
  }
  json.end_array();
}

void write(Json& json, const trace::Trace& trace, const Growth& growth, std::size_t top) {
  json.key("growth");
  if (growth.source == Growth::Source::none) {
    json.null();
    return;
  }
  constexpr std::array<std::string_view, 4> kSources{"none", "marks", "steps", "floors"};
  json.begin_object()
      .member("by", kSources[static_cast<std::size_t>(growth.source)])
      .member("name", growth.name);
  json.member("base", std::uint64_t{growth.base})
      .member("bytes", growth.bytes)
      .member("steady", growth.steady);
  json.key("iterations").begin_array();
  for (const auto& each : growth.iterations) {
    json.begin_object()
        .member("name", each.name)
        .member("first", each.first)
        .member("last", each.last);
    json.member("peak_live_bytes", each.peak_bytes)
        .member("live_at_end_bytes", each.live_at_end_bytes);
    json.member("live_at_end", each.live_at_end).end_object();
  }
  json.end_array();
  write(json, trace, growth.by_site, growth.by_size, top);
  json.end_object();
}

void write(Json& json, const trace::Trace& trace, const AddressSpace& map) {
  json.begin_object()
      .member("event", map.event)
      .member("segments", map.segments)
      .member("bytes", map.size);
  json.member("used_bytes", map.used)
      .member("pending_bytes", map.pending)
      .member("free_bytes", map.free);
  json.member("largest_free_bytes", map.largest_free).member("elsewhere", map.elsewhere);
  json.member("elsewhere_bytes", map.elsewhere_bytes).key("regions").begin_array();
  for (const auto& region : map.regions) {
    json.begin_object().member("address", text::hex(region.address)).member("bytes", region.size);
    json.member("used_bytes", region.used)
        .member("pending_bytes", region.pending)
        .member("free_bytes", region.free);
    json.member("largest_free_bytes", region.largest_free).key("blocks").begin_array();
    for (const auto& block : region.blocks) {
      json.begin_object().member("address", text::hex(block.address)).member("bytes", block.size);
      json.member("id", map.names.empty() ? trace.name(block.id) : map.names[index(block.id)]);
      json.member("pending", block.pending).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string to_json(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const std::optional<AddressSpace>& map,
                    const std::optional<std::vector<MemoryNeed>>& needs,
                    const std::optional<Gap>& gap, const Shown& shown) {
  std::string out;
  Json json(out);
  json.begin_object()
      .member("schema", "emmctl.inspect/2")
      .member("trace", trace.source())
      .member("events", profile.events);
  json.key("operations").begin_object();
  for (std::size_t op = 0; op < trace::kOpCount; ++op) {
    if (profile.by_op[op] != 0)
      json.member(trace::name(static_cast<trace::Op>(op)), profile.by_op[op]);
  }
  json.end_object()
      .member("allocs", profile.allocs)
      .member("bytes", profile.bytes)
      .member("failed", profile.failed);
  json.member("span_ns", profile.has_times ? std::optional(profile.span_ns) : std::nullopt);
  json.key("actions").begin_object();
  for (std::size_t action = 0; action < profile.actions.size(); ++action)
    json.member(kActionNames[action], profile.actions[action]);
  json.end_object();
  write(json, "size", profile.sizes);
  write(json, "lifetime_events", profile.lifetime_events);
  write(json, "lifetime_ns", profile.lifetime_ns);
  json.key("size_classes").begin_array();
  for (const auto& each : profile.size_classes) {
    json.begin_object()
        .member("from", each.from)
        .member("count", each.count)
        .member("bytes", each.bytes);
    json.member("at_peak_count", each.at_peak_count)
        .member("at_peak_bytes", each.at_peak_bytes)
        .end_object();
  }
  json.end_array();
  json.key("categories").begin_array();
  for (const auto& each : profile.categories) {
    json.begin_object()
        .member("name", each.name)
        .member("at_peak_bytes", each.at_peak)
        .member("peak_live_bytes", each.peak);
    json.member("peak_event", std::uint64_t{each.peak_event})
        .member("live_at_end_bytes", each.at_end);
    json.key("live_over_events").begin_array();
    for (const auto most : each.over_events) json.value(most);
    json.end_array().end_object();
  }
  json.end_array();
  constexpr std::array<std::string_view, 3> kCurves{"", "blocks", "totals"};
  const auto curve = trace::curve_of(trace.header());
  json.member("tells_only", curve == trace::Curve::none ? std::optional<std::string_view>()
                                                        : kCurves[static_cast<std::size_t>(curve)]);
  write(json, "threads", profile.threads, trace.threads());
  write(json, "streams", profile.streams, trace.streams());
  write(json, "peak_live", trace, profile.live);
  json.key("peak_live_by_device").begin_object();
  for (const auto& [device, peak] : profile.live_by_device)
    write(json, text::format("{}", device), trace, peak);
  json.end_object();
  write(json, "peak_active", trace, profile.active);
  json.member("active_at_end_bytes", profile.live_at_end_bytes + profile.pending_bytes_at_end);
  json.member("pending_at_end", profile.pending_at_end)
      .member("pending_at_end_bytes", profile.pending_bytes_at_end);
  write(json, "peak_host", trace, profile.host);
  write(json, "at_peak", trace, profile.at_peak, shown.top);
  write(json, "leaked", trace, profile.leaked, shown.top);
  write(json, "preexisting_at_end", trace, profile.preexisting_at_end, shown.top);
  json.key("backing");
  if (profile.backing) {
    const auto& held = *profile.backing;
    json.begin_object();
    write(json, "peak_reserved", trace, held.reserved);
    json.member("live_at_peak_reserved_bytes", held.live_at_reserved)
        .member("reserved_at_peak_live_bytes", held.reserved_at_live);
    json.member("reserved_at_end_bytes", held.reserved_at_end);
    json.member("peak_pending_bytes", held.pending_peak)
        .member("segments_before", held.segments_before);
    json.member("segments_made", held.segments_made);
    json.member("segments_given_back", held.segments_given_back).member("flushes", held.flushes);
    json.member("flushed_bytes", held.flushed_bytes).end_object();
  } else {
    json.null();
  }
  write(json, trace, growth, shown.top);
  json.key("map");
  map ? write(json, trace, *map) : static_cast<void>(json.null());
  json.key("limit");
  needs ? to_json(json, *needs) : static_cast<void>(json.null());
  json.key("gap");
  gap ? to_json(json, trace, *gap) : static_cast<void>(json.null());
  json.end_object();
  return out + '\n';
}

}  // namespace emm::inspect
