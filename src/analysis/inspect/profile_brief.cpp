#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/profile_text.hpp"

namespace emm::inspect {
namespace {

using text::grouped;
using units::short_bytes;

/// Names the call site with most bytes, as the end of a sentence: ", most from train.py:13 step".
std::string most_from(const trace::Trace& trace, const BySite& sites) {
  constexpr std::size_t kNameWidth = 48;  // columns of a call site in a sentence
  const auto all = shown_sites(trace, sites, {.frames = 1}).all;
  if (all.empty()) return {};
  const auto most = all.front();
  if (trace.site_frames(most.site).empty()) return {};
  return text::format(", {}from {}", all.size() > 1 ? "most " : "",
                      site_name(trace, most.site, kNameWidth));
}

std::string peak_words(const trace::Trace& trace, const Profile& profile) {
  const auto name = format::file_name(trace.source());
  if (profile.events == 0) return text::format("{} has no events.", name);
  if (profile.allocs + profile.failed + profile.live.count == 0) {
    return profile.host.bytes == 0
               ? text::format("{} allocates no device memory.", name)
               : text::format("{} allocates no device memory, and {} of host memory at most.", name,
                              short_bytes(profile.host.bytes));
  }
  const bool counts = trace::curve_of(trace.header()) != trace::Curve::totals;
  const auto what = text::format(
      "{}{}", short_bytes(profile.live.bytes),
      counts ? text::format(" in {}", counted(profile.live.count, "allocation")) : std::string());
  if (trace.is_state())
    return text::format("{} is a state without history: {} are live in it.", name, what);
  auto words = text::format("{} has {} live at its peak, after event {}", name, what,
                            grouped(profile.live.event));
  if (profile.live_by_device.size() > 1)
    words += text::format(", on {} devices together", profile.live_by_device.size());
  return words + '.';
}

std::string backing_words(const trace::Trace& trace, const Profile& profile) {
  if (!profile.backing || profile.backing->reserved.bytes == 0) return {};
  const auto reserved = profile.backing->reserved.bytes;
  auto words =
      text::format(trace.is_state() ? "Its manager holds {}" : "Its manager reserved {} at most",
                   short_bytes(reserved));
  if (profile.live.bytes == 0) return words + '.';
  return words + text::format(": {} times {}.",
                              text::fixed(static_cast<double>(reserved) /
                                              static_cast<double>(profile.live.bytes),
                                          2),
                              trace.is_state() ? "what is live" : "the live peak");
}

/// Says what is wrong, the worst alone.
std::string finding_words(const trace::Trace& trace, const Profile& profile, const Growth& growth) {
  if (profile.failed != 0)
    return text::format("{} failed for want of memory.", counted(profile.failed, "request"));
  if (trace.is_state() || trace::curve_of(trace.header()) != trace::Curve::none) return {};
  if (growth.grows()) {
    const auto steps = growth.iterations.size() - 1 - growth.base;
    const bool tenths = growth.source == Growth::Source::floors;
    return text::format("It grows by {} in each {}, on average{}.",
                        short_bytes(static_cast<std::uint64_t>(growth.bytes) / steps),
                        tenths ? "tenth of the trace" : "iteration",
                        most_from(trace, growth.by_site));
  }
  if (profile.leaked.count != 0) {
    return text::format(
        "{} of {} still live at the end{}.", counted(profile.leaked.count, "allocation"),
        short_bytes(profile.leaked.bytes) + (profile.leaked.count == 1 ? " is" : " in all are"),
        most_from(trace, profile.leaked.by_site));
  }
  if (profile.allocs == 0) return {};
  const bool is_kept = trace::is_of_requests(trace.header()) && profile.backing &&
                       profile.backing->reserved_at_end != 0;
  return is_kept ? text::format("All that it asks for is freed; its manager holds {} at the end.",
                                short_bytes(profile.backing->reserved_at_end))
                 : std::string("All that it allocates is freed.");
}

}  // namespace

format::Brief brief(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const Shown& shown) {
  format::Brief out;
  out.answer = {peak_words(trace, profile), backing_words(trace, profile),
                finding_words(trace, profile, growth)};
  out.sides = "rrl";
  const auto& held = profile.at_peak;
  const std::string live = trace.is_state() ? "live" : "live at peak";
  const auto rows = std::min(shown.top, format::Brief::kRows);
  std::uint64_t left_bytes = 0, left = 0;
  std::size_t others = 0;
  const auto add = [&](std::uint64_t bytes, std::uint64_t count, const auto& name) {
    if (out.rows.size() <= rows) {
      out.rows.push_back({short_bytes(bytes), grouped(count), name()});
      return;
    }
    left_bytes += bytes;
    left += count;
    ++others;
  };
  if (sited(held.by_site)) {
    constexpr std::size_t kNameWidth = 52;  // columns of a call site in the table
    out.rows.push_back({live, "count", "call site"});
    for (const auto& site : shown_sites(trace, held.by_site, {.frames = 1}).all)
      add(site.bytes, site.count, [&] { return site_name(trace, site.site, kNameWidth); });
  } else if (!held.by_size.empty()) {
    out.rows.push_back({live, "count", "of size"});
    for (const auto& size : held.by_size)
      add(size.bytes, size.count, [&] { return short_bytes(size.key); });
  }
  if (others != 0)
    out.rows.push_back({short_bytes(left_bytes), grouped(left), text::format("{} others", others)});
  out.more = "sizes, lifetimes, threads, streams, growth and what the manager held";
  return out;
}

}  // namespace emm::inspect
