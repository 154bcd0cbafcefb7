#include "inspect/profile_text.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/sparkline.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {
namespace {

using text::grouped;
using units::bytes;

using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kProfileWidth = 80;  // columns of prose

/// Makes words from a file printable on a terminal.
std::string shown_as(std::string_view words) { return text::printable(words, std::string::npos); }

std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width) {
  if (whole == 0 || part == 0) return "";
  const auto filled = static_cast<std::size_t>(std::llround(
      static_cast<double>(part) / static_cast<double>(whole) * static_cast<double>(width)));
  return std::string(std::max<std::size_t>(filled, 1), '#');
}

/// Writes "1.50 MiB more" or "300 B less".
std::string change(std::int64_t by) {
  if (by == 0) return "0 B more";
  const auto size = by > 0 ? static_cast<std::uint64_t>(by) : 0 - static_cast<std::uint64_t>(by);
  return text::format("{} {}", bytes(size), by > 0 ? "more" : "less");
}

std::string heading(const trace::Trace& trace, const Profile& profile) {
  const auto& header = trace.header();
  std::vector<std::string> about{counted(profile.events, "event")};
  if (!header.framework.empty()) about.back() += " of " + header.framework;
  if (profile.has_times) about.push_back(units::ns(static_cast<double>(profile.span_ns)));
  if (trace.device_count() > 1) {
    about.push_back(counted(trace.device_count(), "device"));
  } else if (trace.devices().front() != 0) {
    about.push_back(text::format("device {}", trace.devices().front()));
  }
  if (header.has_complete) about.emplace_back(header.complete ? "complete" : "not complete");
  std::vector<std::string> operations;
  for (std::size_t op = 0; op < trace::kOpCount; ++op) {
    if (profile.by_op[op] == 0) continue;
    auto words =
        text::format("{} {}", trace::name(static_cast<trace::Op>(op)), grouped(profile.by_op[op]));
    if (profile.backing_by_op[op] != 0)
      words += text::format(" ({} of the manager)", grouped(profile.backing_by_op[op]));
    operations.push_back(words);
  }
  auto out = format::wrapped(
      text::format("{}: {}", shown_as(trace.source()), shown_as(text::join(about))), kProfileWidth);
  const auto curve = trace::curve_of(header);
  if (curve == trace::Curve::none)
    return out + format::wrapped(text::join(operations), kProfileWidth);
  // The operations are what an importer made of sums, and say nothing of the program.
  return out +
         format::wrapped(curve == trace::Curve::blocks
                             ? "It tells sizes and not which block was freed: the curve and the "
                               "peak, and neither lifetimes nor where memory lay"
                             : "It tells totals and no allocation: the curve and the peak, and "
                               "neither sizes, counts, lifetimes nor where memory lay",
                         kProfileWidth);
}

std::string summary(const trace::Trace& trace, const Profile& profile, const Shown& shown) {
  Rows rows;
  const bool counts = trace::curve_of(trace.header()) != trace::Curve::totals;
  const auto in = [&](std::uint64_t size, std::uint64_t count) {
    if (!counts) return bytes_in_full(size) + ',';
    return text::format("{} in {},", bytes_in_full(size), counted(count, "allocation"));
  };
  const auto peak = [&](std::string name, const Peak& at) {
    rows.push_back({std::move(name), in(at.bytes, at.count)});
    rows.push_back({"", place_of(trace, at.event)});
  };
  if (profile.allocs + profile.failed + profile.host.count == 0)
    return "\nNo device memory is allocated\n";
  const auto served = profile.allocs == 0 ? std::string("none")
                                          : text::format("{} of {} in all", grouped(profile.allocs),
                                                         bytes(profile.bytes));
  if (counts) {
    rows.push_back({"allocations",
                    served + (profile.failed == 0
                                  ? ""
                                  : text::format("; {} more failed", grouped(profile.failed)))});
  }
  if (profile.live.count > 0) {
    peak("peak live", profile.live);
    rows.push_back({"over events", format::sparkline(profile.live_over_events, shown.blocks)});
  }
  if (profile.live_by_device.size() > 1) {
    for (const auto& [device, at] : profile.live_by_device)
      peak(text::format("  device {}", device), at);
  }
  if (profile.active.bytes > profile.live.bytes) {
    peak("peak active", profile.active);
    rows.push_back({"", "live, or freed and not free yet for other streams"});
  }
  if (profile.pending_at_end != 0) {
    rows.push_back({"never completed", text::format("{}, {}: freed, and not free at the end",
                                                    counted(profile.pending_at_end, "free"),
                                                    bytes_in_full(profile.pending_bytes_at_end))});
  }
  if (profile.host.bytes > 0) peak("peak of host", profile.host);
  if (!counts) {
    rows.push_back({"live at the end", bytes_in_full(profile.live_at_end_bytes)});
    return "\nDevice memory, as requested\n" + format::columns("ll", rows);
  }
  rows.push_back(
      {"never freed", profile.leaked.count == 0
                          ? std::string("none")
                          : text::format("{}, {}", counted(profile.leaked.count, "allocation"),
                                         bytes_in_full(profile.leaked.bytes))});
  if (profile.preexisting_at_end.count != 0) {
    rows.push_back({"kept", text::format("{} from before the recording, {}",
                                         counted(profile.preexisting_at_end.count, "allocation"),
                                         bytes_in_full(profile.preexisting_at_end.bytes))});
  }
  return "\nDevice memory, as requested\n" + format::columns("ll", rows);
}

std::string percentile_rows(const Profile& profile) {
  if (profile.allocs == 0 || profile.sizes.count == 0) return "";
  Rows rows{{"", "least", "median", "90 %", "99 %", "most"}};
  const auto add = [&](std::string name, const Percentiles& percentiles, const auto& shown) {
    if (percentiles.count == 0) return;
    rows.push_back({std::move(name), shown(percentiles.min), shown(percentiles.p50),
                    shown(percentiles.p90), shown(percentiles.p99), shown(percentiles.max)});
  };
  add("size", profile.sizes, [](std::uint64_t v) { return bytes(v); });
  add("lifetime in events", profile.lifetime_events, [](std::uint64_t v) { return grouped(v); });
  if (profile.has_times)
    add("lifetime in time", profile.lifetime_ns,
        [](std::uint64_t v) { return units::ns(static_cast<double>(v)); });
  return '\n' + format::columns("lrrrrr", rows);
}

std::string categories(const Profile& profile, const Shown& shown) {
  if (profile.categories.empty()) return "";
  Rows rows{{"category", "at peak", "", "own peak", "at end", "over events"}};
  for (const auto& each : profile.categories) {
    const auto share = profile.live.bytes == 0 ? 0.0
                                               : 100.0 * static_cast<double>(each.at_peak) /
                                                     static_cast<double>(profile.live.bytes);
    rows.push_back({std::string(shown_as(each.name)), bytes(each.at_peak),
                    text::format("{} %", text::fixed(share, 1)), bytes(each.peak),
                    bytes(each.at_end), format::sparkline(each.over_events, shown.blocks)});
  }
  return "\nBy category\n" + format::columns("lrrrrl", rows);
}

std::string size_classes(const Profile& profile) {
  if (profile.size_classes.empty()) return "";
  std::uint64_t most = 0;
  for (const auto& each : profile.size_classes) most = std::max(most, each.at_peak_bytes);
  Rows rows{{"size from", "allocations", "bytes", "at peak", "bytes", ""}};
  for (const auto& each : profile.size_classes) {
    rows.push_back({bytes(each.from), grouped(each.count), bytes(each.bytes),
                    grouped(each.at_peak_count), bytes(each.at_peak_bytes),
                    bar(each.at_peak_bytes, most, 20)});
  }
  return "\nSizes by power of two\n" + format::columns("rrrrrl", rows);
}

std::string holding(std::string_view what, const trace::Trace& trace, const HeldMemory& held,
                    const Shown& shown) {
  if (held.count == 0) return "";
  std::string out;
  if (sited(held.by_site))
    out += text::format("\n{}, by call site\n", what) + sites_table(trace, held.by_site, shown);
  if (held.by_size.empty()) return out;
  return out + text::format("\n{}, by size\n", what) + sizes_table(held.by_size, shown.top);
}

std::string shares(std::string_view what, const std::vector<Share>& all,
                   const std::vector<std::string>& names, std::size_t top) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].allocs + all[i].frees > 0) order.push_back(i);
  }
  if (order.size() < 2) return "";
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return all[a].bytes > all[b].bytes; });
  Rows rows{{std::string(what), "allocations", "bytes", "peak live", "frees", "of others'"}};
  for (std::size_t i = 0; i < order.size() && i < top; ++i) {
    const auto& each = all[order[i]];
    rows.push_back({names[order[i]].empty() ? text::format("{}", order[i]) : names[order[i]],
                    grouped(each.allocs), bytes(each.bytes), bytes(each.peak_live_bytes),
                    grouped(each.frees), grouped(each.frees_of_others)});
  }
  auto out = text::format("\nBy {}\n", what) + format::columns("lrrrrr", rows);
  if (order.size() > top) out += text::format("  ... and {} more\n", order.size() - top);
  return out;
}

/// Writes "segment_map 187, segment_unmap 217", without those that are 0.
std::string counts_of(const Actions& actions, std::initializer_list<Action> which) {
  std::vector<std::string> words;
  for (const auto action : which) {
    const auto at = static_cast<std::size_t>(action);
    if (actions[at] != 0)
      words.push_back(text::format("{} {}", kActionNames[at], grouped(actions[at])));
  }
  return text::join(words);
}

std::string backing(const trace::Trace& trace, const Profile& profile) {
  if (!profile.backing) return "";
  const auto& held = *profile.backing;
  Rows rows{{"peak reserved", text::format("{} in {},", bytes_in_full(held.reserved.bytes),
                                           counted(held.reserved.count, "segment"))},
            {"", place_of(trace, held.reserved.event)},
            {"live then", bytes_in_full(held.live_at_reserved)}};
  if (profile.live.bytes > 0) {
    const auto most = std::max(held.reserved.bytes, profile.live.bytes);
    rows.push_back(
        {"beyond the need",
         text::format("{}, {} % of the peak live", bytes_in_full(most - profile.live.bytes),
                      text::fixed(100.0 * static_cast<double>(most - profile.live.bytes) /
                                      static_cast<double>(profile.live.bytes),
                                  1))});
  }
  rows.push_back({"at peak live", bytes_in_full(held.reserved_at_live)});
  const auto before = held.segments_before == 0
                          ? std::string()
                          : text::format("{} there before, ", grouped(held.segments_before));
  rows.push_back(
      {"segments", text::format("{}{} made, {} released", before, grouped(held.segments_made),
                                grouped(held.segments_given_back))});
  const auto requests = counts_of(profile.actions, {Action::alloc, Action::free_requested,
                                                    Action::free_completed, Action::oom});
  const auto of_segments = counts_of(profile.actions, {Action::segment_alloc, Action::segment_free,
                                                       Action::segment_map, Action::segment_unmap});
  if (!requests.empty()) rows.push_back({"recorded rows", requests});
  if (!of_segments.empty()) rows.push_back({requests.empty() ? "recorded rows" : "", of_segments});
  if (held.pending_peak != 0)
    rows.push_back({"kept for streams", text::format("{} at most, freed and not free yet",
                                                     bytes_in_full(held.pending_peak))});
  if (held.flushes != 0)
    rows.push_back(
        {"flushes", text::format("{}, of {}", grouped(held.flushes), bytes(held.flushed_bytes))});
  return "\nWhat the recorded manager held\n" + format::columns("ll", rows);
}

/// Answers whether the names of the iterations tell them apart.
bool all_named(const Growth& growth) {
  return growth.source == Growth::Source::marks &&
         growth.iterations.front().name != growth.iterations.back().name;
}

std::string growth_heading(const Growth& growth) {
  const auto count = grouped(growth.iterations.size());
  switch (growth.source) {
    case Growth::Source::none:
      break;
    case Growth::Source::marks:
      return text::format("\nGrowth between iterations: {} by marks \"{}\"\n", count,
                          shown_as(growth.name));
    case Growth::Source::steps:
      return text::format(
          "\nGrowth between iterations: {} by sizes that repeat; there are no marks\n", count);
    case Growth::Source::floors:
      return "\nGrowth: no marks are alike and no series of sizes repeats;\n"
             "the least live in each tenth of the trace\n";
  }
  return "";
}

std::string growth_text(const trace::Trace& trace, const Growth& growth, const Shown& shown) {
  if (growth.source == Growth::Source::none) {
    return "\nGrowth between iterations: nothing to compare; no marks are alike, and no\nseries of "
           "sizes repeats\n";
  }
  const auto& all = growth.iterations;
  const bool by_floors = growth.source == Growth::Source::floors;
  if (by_floors && std::all_of(all.begin(), all.end(),
                               [](const Iteration& each) { return each.live_at_end == 0; })) {
    return "\nGrowth between iterations: no marks are alike, and no series of sizes repeats;\n"
           "nothing stays live\n";
  }
  auto out = growth_heading(growth);
  Rows rows{{by_floors ? "tenth" : "iteration", by_floors ? "least at" : "events", "peak live",
             by_floors ? "least live" : "live at end", "allocations"}};
  // Iterations at the beginning and at the end; those between are left out.
  constexpr std::size_t kEnds = 4;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!by_floors && all.size() > 2 * kEnds + 1 && i == kEnds) {
      rows.push_back({"...", "", "", "", ""});
      i = all.size() - kEnds;
    }
    rows.push_back(
        {all_named(growth) ? all[i].name : text::format("{}", i + 1),
         by_floors ? grouped(all[i].last)
                   : text::format("{} to {}", grouped(all[i].first), grouped(all[i].last)),
         bytes(all[i].peak_bytes), bytes(all[i].live_at_end_bytes), grouped(all[i].live_at_end)});
  }
  out += format::columns("lrrrr", rows);
  const auto steps = all.size() - 1 - growth.base;
  out += by_floors ? text::format("  In the last, {} than in the second", change(growth.bytes))
                   : text::format("  At the end of the last, {} than at the end of {}, {} before",
                                  change(growth.bytes),
                                  all_named(growth) ? shown_as(all[growth.base].name)
                                                    : text::format("iteration {}", growth.base + 1),
                                  counted(steps, "iteration"));
  if (growth.steady) {
    out += text::format("\n  It never went down: {} in each, on average",
                        change(growth.bytes / static_cast<std::int64_t>(steps)));
  } else if (growth.bytes > 0) {
    out += text::format("\n  It fell in between: not every {} adds to it",
                        by_floors ? "tenth" : "iteration");
  }
  out += '\n';
  if (growth.bytes > 0) {
    out += "  What was allocated since and is still live\n";
    out += sited(growth.by_site) ? sites_table(trace, growth.by_site, shown)
                                 : sizes_table(growth.by_size, shown.top);
  }
  return out;
}

/// Returns the character for a part of a region.
char part(const Region& region, std::uint64_t from, std::uint64_t to, std::size_t& block) {
  std::uint64_t used = 0, pending = 0;
  const auto& blocks = region.blocks;
  while (block < blocks.size() && blocks[block].address + blocks[block].size <= from) ++block;
  for (auto i = block; i < blocks.size() && blocks[i].address < to; ++i) {
    const auto bytes_in =
        std::min(to, blocks[i].address + blocks[i].size) - std::max(from, blocks[i].address);
    (blocks[i].pending ? pending : used) += bytes_in;
  }
  if (used + pending == 0) return '.';
  if (pending > used) return '~';
  return (used + pending) * 100 >= (to - from) * 99 ? '#' : '+';
}

}  // namespace

std::string to_text(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const Shown& shown) {
  auto out = heading(trace, profile);
  if (profile.events == 0) return out;
  out += summary(trace, profile, shown) + categories(profile, shown);
  out += percentile_rows(profile) + size_classes(profile);
  out += holding("Live at the peak", trace, profile.at_peak, shown);
  out += holding("Never freed", trace, profile.leaked, shown);
  out += shares("thread", profile.threads, trace.threads(), shown.top);
  out += shares("stream", profile.streams, trace.streams(), shown.top);
  out += backing(trace, profile);
  return out + growth_text(trace, growth, shown);
}

std::string to_text(const trace::Trace& trace, std::uint32_t event, const HeldMemory& held,
                    const Shown& shown) {
  return format::wrapped(text::format("{} after event {}: {} are live in {}",
                                      shown_as(trace.source()), grouped(event),
                                      bytes_in_full(held.bytes), counted(held.count, "allocation")),
                         kProfileWidth) +
         holding("Live then", trace, held, shown);
}

/// Says what the regions that are not shown hold.
static std::string rest_of(const AddressSpace& map, std::size_t limit) {
  auto used = map.used + map.pending, free = map.free;
  for (const auto place : largest(map, limit)) {
    used -= map.regions[place].used + map.regions[place].pending;
    free -= map.regions[place].free;
  }
  return text::format("  ... and {} smaller ones, with {} used and {} free\n",
                      grouped(map.regions.size() - limit), bytes(used), bytes(free));
}

std::string to_text(const trace::Trace&, const AddressSpace& map, const Shown& shown) {
  constexpr std::size_t kBar = 28;  // columns
  auto out = text::format("\nAddress space after event {}: {} in {}\n", grouped(map.event),
                          bytes(map.size),
                          counted(map.regions.size(), map.segments ? "segment" : "region"));
  out += text::format("  {} used, {} kept for streams, {} free, largest free {}\n", bytes(map.used),
                      bytes(map.pending), bytes(map.free), bytes(map.largest_free));
  if (!map.segments)
    out += "  No segments are recorded: a region is memory with no gap of 2 MiB or more\n";
  if (map.elsewhere > 0) {
    out += text::format(
        "  {} of {} are live and not shown: no address is recorded, or none of a segment\n",
        counted(map.elsewhere, "allocation"), bytes(map.elsewhere_bytes));
  }
  Rows rows{{"address", "size", "used", "largest free", "#used +partly ~kept .free"}};
  const auto limit = std::max<std::size_t>(4 * shown.top, 1);
  for (const auto place : largest(map, limit)) {
    const auto& region = map.regions[place];
    std::string shape;
    std::size_t block = 0;
    for (std::size_t c = 0; c < kBar; ++c) {
      const auto at = [&](std::size_t column) {
        return region.address + static_cast<std::uint64_t>(static_cast<double>(region.size) *
                                                           static_cast<double>(column) / kBar);
      };
      if (at(c) == at(c + 1)) break;
      shape += part(region, at(c), at(c + 1), block);
    }
    const auto used = 100.0 * static_cast<double>(region.used + region.pending) /
                      static_cast<double>(region.size);
    rows.push_back({text::hex(region.address), bytes(region.size), text::fixed(used, 0) + " %",
                    bytes(region.largest_free), shape});
  }
  out += format::columns("lrrrl", rows);
  if (map.regions.size() > limit) out += rest_of(map, limit);
  return out;
}

}  // namespace emm::inspect
