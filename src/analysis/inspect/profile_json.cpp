#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "inspect/profile_text.hpp"

namespace emm::inspect {

EMM_MEMBERS_OF(Percentiles, count, min, p50, p90, p99, max)
EMM_MEMBERS_OF(SizeClass, from, count, bytes, at_peak_count, at_peak_bytes)
EMM_MEMBERS_OF(Share, events, allocs, bytes, frees, frees_of_others, peak_live_bytes)

namespace {

using Json = emm::format::JsonWriter;

void write(Json& json, std::string_view name, const trace::Trace& trace, const Peak& peak) {
  const bool known = peak.event < trace.size();
  const auto place = known ? trace.place(peak.event) : trace::Trace::Place();
  json.object(name, [&] {
    json.member("bytes", peak.bytes).member("count", peak.count).member("event", peak.event);
    json.member("line", place.line).member("time_ns", place.time_ns);
  });
}

void write(Json& json, const trace::Trace& trace, const BySite& sites, const BySize& sizes,
           std::size_t top) {
  sites_to_json(json, "by_site", trace, sites, top);
  json.objects("by_size", first_of(sizes, top), [&](const auto& each) {
    json.member("size", each.key).member("count", each.count).member("bytes", each.bytes);
  });
}

void write(Json& json, std::string_view name, const trace::Trace& trace, const HeldMemory& held,
           std::size_t top) {
  json.object(name, [&] {
    json.member("count", held.count).member("bytes", held.bytes);
    json.member("sites", held.by_site.size()).member("sizes", held.by_size.size());
    write(json, trace, held.by_site, held.by_size, top);
  });
}

void write(Json& json, std::string_view name, const std::vector<Share>& shares,
           const std::vector<std::string>& names) {
  json.key(name).begin_array();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].events != 0)
      json.begin_object().member("name", names[i]).members(shares[i]).end_object();
  }
  json.end_array();
}

void write(Json& json, const trace::Trace& trace, const Growth& growth, std::size_t top) {
  if (growth.source == Growth::Source::none) {
    json.key("growth").null();
    return;
  }
  constexpr std::array<std::string_view, 4> kSources{"none", "marks", "steps", "floors"};
  json.key("growth").begin_object();
  json.member("by", kSources[static_cast<std::size_t>(growth.source)]);
  json.member("name", growth.name).member("base", growth.base);
  json.member("bytes", growth.bytes).member("steady", growth.steady);
  json.objects("iterations", growth.iterations, [&](const Iteration& each) {
    json.member("name", each.name).member("first", each.first).member("last", each.last);
    json.member("peak_live_bytes", each.peak_bytes);
    json.member("live_at_end_bytes", each.live_at_end_bytes);
    json.member("live_at_end", each.live_at_end);
  });
  write(json, trace, growth.by_site, growth.by_size, top);
  json.end_object();
}

void write(Json& json, const trace::Trace& trace, const AddressSpace& map) {
  json.member("event", map.event).member("segments", map.segments).member("bytes", map.size);
  json.member("used_bytes", map.used).member("pending_bytes", map.pending);
  json.member("free_bytes", map.free).member("largest_free_bytes", map.largest_free);
  json.member("elsewhere", map.elsewhere).member("elsewhere_bytes", map.elsewhere_bytes);
  json.objects("regions", map.regions, [&](const auto& region) {
    json.member("address", text::hex(region.address)).member("bytes", region.size);
    json.member("used_bytes", region.used).member("pending_bytes", region.pending);
    json.member("free_bytes", region.free).member("largest_free_bytes", region.largest_free);
    json.objects("blocks", region.blocks, [&](const auto& block) {
      json.member("address", text::hex(block.address)).member("bytes", block.size);
      json.member("id", map.names.empty() ? trace.name(block.id) : map.names[index(block.id)]);
      json.member("pending", block.pending);
    });
  });
}

}  // namespace

std::string to_json(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const std::optional<AddressSpace>& map,
                    const std::optional<std::vector<MemoryNeed>>& needs,
                    const std::optional<Gap>& gap, const Shown& shown) {
  format::JsonAnswer json("emmctl.inspect/2");
  json.member("trace", trace.source()).member("events", profile.events);
  json.object("operations", [&] {
    for (std::size_t op = 0; op < trace::kOpCount; ++op) {
      if (profile.by_op[op] != 0)
        json.member(trace::name(static_cast<trace::Op>(op)), profile.by_op[op]);
    }
  });
  json.member("allocs", profile.allocs).member("bytes", profile.bytes);
  json.member("failed", profile.failed);
  json.member_or_null("span_ns", profile.has_times, profile.span_ns);
  json.object("actions", [&] {
    for (std::size_t action = 0; action < profile.actions.size(); ++action)
      json.member(kActionNames[action], profile.actions[action]);
  });
  json.member("size", profile.sizes).member("lifetime_events", profile.lifetime_events);
  json.member("lifetime_ns", profile.lifetime_ns).member("size_classes", profile.size_classes);
  json.objects("categories", profile.categories, [&](const CategoryUse& each) {
    json.member("name", each.name).member("at_peak_bytes", each.at_peak);
    json.member("peak_live_bytes", each.peak).member("peak_event", each.peak_event);
    json.member("live_at_end_bytes", each.at_end).member("live_over_events", each.over_events);
  });
  const auto curve = trace::curve_of(trace.header());
  json.member_or_null("tells_only", curve != trace::Curve::none,
                      curve == trace::Curve::blocks ? "blocks" : "totals");
  write(json, "threads", profile.threads, trace.threads());
  write(json, "streams", profile.streams, trace.streams());
  write(json, "peak_live", trace, profile.live);
  json.object("peak_live_by_device", [&] {
    for (const auto& [device, peak] : profile.live_by_device)
      write(json, text::format("{}", device), trace, peak);
  });
  write(json, "peak_active", trace, profile.active);
  json.member("active_at_end_bytes", profile.live_at_end_bytes + profile.pending_bytes_at_end);
  json.member("pending_at_end", profile.pending_at_end);
  json.member("pending_at_end_bytes", profile.pending_bytes_at_end);
  write(json, "peak_host", trace, profile.host);
  write(json, "at_peak", trace, profile.at_peak, shown.top);
  write(json, "leaked", trace, profile.leaked, shown.top);
  write(json, "preexisting_at_end", trace, profile.preexisting_at_end, shown.top);
  json.object("backing", profile.backing, [&](const Backing& held) {
    write(json, "peak_reserved", trace, held.reserved);
    json.member("live_at_peak_reserved_bytes", held.live_at_reserved);
    json.member("reserved_at_peak_live_bytes", held.reserved_at_live);
    json.member("reserved_at_end_bytes", held.reserved_at_end);
    json.member("peak_pending_bytes", held.pending_peak);
    json.member("segments_before", held.segments_before);
    json.member("segments_made", held.segments_made);
    json.member("segments_given_back", held.segments_given_back).member("flushes", held.flushes);
    json.member("flushed_bytes", held.flushed_bytes);
  });
  write(json, trace, growth, shown.top);
  json.object("map", map, [&](const AddressSpace& space) { write(json, trace, space); });
  json.member("limit", needs);
  json.object("gap", gap, [&](const Gap& of) { write_members(json, trace, of); });
  return json.finish();
}

}  // namespace emm::inspect
