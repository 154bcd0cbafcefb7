#include "inspect/oom_text.hpp"

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/json_writer.hpp"
#include "inspect/columns.hpp"
#include "inspect/growth.hpp"
#include "inspect/places.hpp"
#include "inspect/survey.hpp"

namespace emm::inspect {
namespace {

constexpr std::size_t kWidth = 100;

using text::format;

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return text::fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

std::string happened(const trace::Trace& trace, const Oom& oom) {
  auto out = format("A request of {} failed at event {}", bytes_in_full(oom.request), text::grouped(oom.event));
  if (oom.line != 0) out += format(", line {}", text::grouped(oom.line));
  if (oom.time_ns != 0) out += format(", {} into the trace", units::ns(static_cast<double>(oom.time_ns)));
  if (trace.device_count() > 1) out += format(", on device {}", oom.device);
  return out + '.';
}

/// How the manager's memory was used.
std::string in_the_manager(const Oom& oom) {
  const auto beyond = *oom.reserved - std::min(*oom.reserved, oom.live);
  auto out = format("The manager held {} in {}, {} beyond what was live", bytes_in_full(*oom.reserved),
                    counted(oom.segments, "segment"), bytes_in_full(beyond));
  if (oom.pending != 0) out += format(", {} of it freed by the program and kept for another stream", units::bytes(oom.pending));
  if (oom.space && oom.space->segments) {
    const auto largest = oom.space->largest_free;
    out += format("; the largest free block in its segments was {}", bytes_in_full(largest));
    out += largest < oom.request ? ", too small for the request"
                                 : ", large enough, so it was not to be had for this stream or size";
  }
  return out + '.';
}

std::string of_need(const Oom& oom) {
  auto out = format("This is the program's own need: {} were live in {}, and with the request {}",
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"), bytes_in_full(oom.live + oom.request));
  if (oom.capacity) {
    return out + format(", {} more than the device's {}. No manager could have served it.",
                        units::bytes(oom.live + oom.request - *oom.capacity), bytes_in_full(*oom.capacity));
  }
  return out + format(", more than the {} that the manager held and the {} that the device had free.",
                      units::bytes(oom.reserved.value_or(0)), units::bytes(oom.device_free.value_or(0)));
}

std::string of_waste(const Oom& oom) {
  auto out = format("This is the manager's waste: {} were live in {}, and with the request {}",
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"), bytes_in_full(oom.live + oom.request));
  if (oom.capacity) out += format(", which is {} of the device's {}", percent(oom.live + oom.request, *oom.capacity), bytes_in_full(*oom.capacity));
  if (oom.device_free) out += format("; the device had {} free", bytes_in_full(*oom.device_free));
  return out + ". " + in_the_manager(oom);
}

std::string of_limit(const Oom& oom) {
  const auto left = oom.device_free ? *oom.device_free : *oom.capacity - *oom.reserved;
  auto out = format("This is a limit set elsewhere: the device {} {} free, {} times the request. {} were live in {}.",
                    oom.device_free ? "still had" : "should still have had", bytes_in_full(left),
                    text::fixed(static_cast<double>(left) / static_cast<double>(std::max<std::uint64_t>(oom.request, 1)), 1),
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"));
  if (!oom.reserved) return out + " Look for a memory fraction, a limiting adaptor or a quota.";
  out += ' ' + in_the_manager(oom);
  // It served reserved_before, and refused what would have come now.
  const auto refused = *oom.reserved + oom.request_pages;
  const auto device = oom.capacity ? *oom.capacity : *oom.reserved + left;
  out += format(" So the limit is at least {} and below {}", bytes_in_full(oom.reserved_before), bytes_in_full(refused));
  out += format(", {} to {} of {}: as a memory fraction, a limiting adaptor or a quota sets it.",
                percent(oom.reserved_before, device), percent(refused, device),
                oom.capacity ? "the device" : "what the manager held and the device had free");
  return out;
}

std::string of_others(const Oom& oom) {
  return format("Others on the device are the cause: {} were live in {}, and with the request {}, which fits into "
                "the device's {}; but {} of it were neither free nor held by this manager: another process, another library "
                "or the driver had them. ",
                bytes_in_full(oom.live), counted(oom.live_count, "allocation"), bytes_in_full(oom.live + oom.request),
                bytes_in_full(*oom.capacity), bytes_in_full(oom.excess)) +
         in_the_manager(oom);
}

std::string of_not_known(const Oom& oom) {
  auto out = format("Why, this trace does not say: {} were live in {}, with the request {}",
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"), bytes_in_full(oom.live + oom.request));
  if (!oom.capacity) {
    return out + ", and how much the device has is not recorded. --capacity SIZE says it.";
  }
  out += format(", which is {} of the device's {}: it was not the program's own need.", percent(oom.live + oom.request, *oom.capacity),
                bytes_in_full(*oom.capacity));
  return out + " What the manager held is not recorded, so its waste and a limit set elsewhere look the same; a replay with the "
               "manager and this capacity tells them apart.";
}

std::string enough(const OomReport& report, const Oom& oom) {
  switch (oom.cause) {
    case Cause::need: {
      auto out = format("Enough would have been: a device of at least {} at this event", bytes_in_full(oom.enough));
      if (report.peak_needed > oom.enough) out += format(", and {} for the whole trace", bytes_in_full(report.peak_needed));
      return out + ", with a manager that wastes nothing.";
    }
    case Cause::waste: {
      auto out = format("Enough would have been: for this manager as it was, {} ({} more); with a manager that wastes nothing, {}",
                        bytes_in_full(oom.enough), units::bytes(oom.capacity ? oom.enough - *oom.capacity : oom.request_pages),
                        bytes_in_full(oom.live + oom.request));
      if (report.peak_needed > oom.live + oom.request) out += format(", and {} for the whole trace", bytes_in_full(report.peak_needed));
      return out + '.';
    }
    case Cause::limit:
      return oom.enough == 0 ? format("Enough would have been: a limit that leaves room for {} more.", bytes_in_full(oom.request_pages))
                             : format("Enough would have been: a limit of {}: what was held, and the request in whole pages.", bytes_in_full(oom.enough));
    case Cause::others: return format("Enough would have been: {} less held by others.", bytes_in_full(oom.enough));
    case Cause::not_known: break;
  }
  return format("Enough would have been at least {}.", bytes_in_full(oom.live + oom.request));
}

std::string why(const Oom& oom) {
  switch (oom.cause) {
    case Cause::need: return of_need(oom);
    case Cause::waste: return of_waste(oom);
    case Cause::limit: return of_limit(oom);
    case Cause::others: return of_others(oom);
    case Cause::not_known: break;
  }
  return of_not_known(oom);
}

/// Where what is live only ever grew, until then.
std::string of_growth(const trace::Trace& trace, const Growth& growth, const Oom& oom, bool all_frames) {
  if (!growth.grows()) return "";
  const auto& base = growth.iterations[growth.base];
  const auto& last = growth.iterations.back();
  if (base.last >= oom.event || last.live_at_end_bytes > oom.live) return "";
  const auto by = static_cast<std::uint64_t>(growth.bytes);
  const auto steps = growth.iterations.size() - 1 - growth.base;
  auto out = growth.source == Growth::Source::floors
                 ? format("What stays live only ever grew, tenth by tenth of the trace: from {} to {}", bytes_in_full(base.live_at_end_bytes),
                          bytes_in_full(last.live_at_end_bytes))
                 : format("What stays live grew by {} in each of {}, from {} to {}, and never went down", units::bytes(by / steps),
                          counted(steps, "iteration"), bytes_in_full(base.live_at_end_bytes), bytes_in_full(last.live_at_end_bytes));
  out += ", as a leak does";
  if (!growth.by_site.empty() && index(growth.by_site.front().key) != 0) {
    const auto most = shown_sites(trace, growth.by_site, {.frames = 1, .all_frames = all_frames}).front();
    out += format("; {} of it from {}", units::bytes(most.bytes), site_name(trace, most.sites.front(), kWidth, all_frames));
  } else if (!growth.by_size.empty()) {
    const auto& most = growth.by_size.front();
    out += format("; {} of it are {} of {}", units::bytes(most.bytes), counted(most.count, "allocation"), bytes_in_full(most.key));
  }
  return out + ". ";
}

void write(format::JsonWriter& json, std::string_view name, const std::optional<std::uint64_t>& value) {
  json.key(name);
  value ? json.value(*value) : json.null();
}

void write(format::JsonWriter& json, const trace::Trace& trace, const BySite& sites, std::size_t top) {
  json.key("live_by_site").begin_array();
  for (std::size_t i = 0; i < sites.size() && i < top; ++i) {
    json.begin_object().member("bytes", sites[i].bytes).member("count", sites[i].count);
    site_to_json(json, trace, sites[i].key);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string to_text(const Recording& recording, const Lives& lives, const OomReport& report, std::size_t which,
                    const Shown& shown) {
  const auto& trace = recording.trace();
  const auto& oom = report.all[which];
  auto out = wrapped(happened(trace, oom) + ' ' + why(oom) + ' ' + of_growth(trace, growth(lives), oom, shown.all_frames) + enough(report, oom), kWidth);
  if (index(oom.site) != 0) {
    out += "\nThe request came from\n";
    for (const auto& frame : telling_frames(trace, oom.site, shown)) out += format("  {}\n", text::printable(frame, std::string::npos));
  }
  const auto holding = held_after(lives, oom.event, oom.device);
  if (holding.count > 0) {
    const bool sited = holding.by_site.size() > 1 || index(holding.by_site.front().key) != 0;
    out += sited ? "\nLive then, by call site\n" + sites_table(trace, holding.by_site, shown)
                 : "\nLive then, by size (the trace has no call sites)\n" + sizes_table(holding.by_size, shown.top);
  }
  if (report.all.size() > 1) {
    std::vector<std::vector<std::string>> rows{{"event", "request", "live", "cause"}};
    constexpr std::size_t kListed = 20;
    for (std::size_t i = 0; i < report.all.size() && i < kListed; ++i) {
      const auto& each = report.all[i];
      rows.push_back({text::grouped(each.event), units::bytes(each.request), units::bytes(each.live),
                      each.cause == Cause::not_known ? "not known" : std::string(name(each.cause))});
    }
    out += format("\n{} requests failed; --event N explains another of them\n", text::grouped(report.all.size())) + columns("rrrl", rows);
    if (report.all.size() > kListed) out += format("  ... and {} more\n", text::grouped(report.all.size() - kListed));
  }
  return out;
}

std::string to_json(const Recording& recording, const Lives& lives, const OomReport& report, std::size_t top) {
  const auto& trace = recording.trace();
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("schema", "emmctl.explain/1").member("trace", trace.source());
  json.member("peak_live_bytes", report.peak_live).member("peak_needed_bytes", report.peak_needed);
  json.key("failures").begin_array();
  constexpr std::size_t kListed = 100;
  const auto grown = growth(lives);
  for (std::size_t i = 0; i < report.all.size() && i < kListed; ++i) {
    const auto& oom = report.all[i];
    json.begin_object().member("event", oom.event).member("line", oom.line).member("time_ns", oom.time_ns);
    json.member("device", oom.device).member("id", trace.name(oom.id)).member("size", oom.request);
    json.member("stream", trace.streams()[index(oom.stream)]).member("cause", name(oom.cause));
    json.member("live_bytes", oom.live).member("live_count", oom.live_count);
    write(json, "capacity_bytes", oom.capacity);
    write(json, "device_free_bytes", oom.device_free);
    write(json, "reserved_bytes", oom.reserved);
    json.member("segments", oom.segments).member("pending_bytes", oom.pending);
    json.key("largest_free_bytes");
    oom.space && oom.space->segments ? json.value(oom.space->largest_free) : json.null();
    json.member("excess_bytes", oom.excess).member("enough_bytes", oom.enough);
    json.key("words").value(why(oom) + ' ' + of_growth(trace, grown, oom, false) + enough(report, oom));
    write(json, trace, held_after(lives, oom.event, oom.device).by_site, top);
    json.end_object();
  }
  json.end_array().member("failure_count", std::uint64_t{report.all.size()}).end_object();
  return out + '\n';
}

}  // namespace emm::inspect
