#include "inspect/places.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "inspect/columns.hpp"
#include "trace/call_site.hpp"

namespace emm::inspect {
namespace {

constexpr std::size_t kFrameWidth = 76;

/// The end of a path says more than its beginning.
std::string shortened(std::string_view given, std::size_t width) {
  auto frame = text::printable(given, std::string::npos);
  if (frame.size() <= width) return frame;
  const auto place = std::min(frame.find(' '), frame.size());
  if (frame.size() - place + 20 > width) return std::string(text::head(frame, width - 3)) + "...";  // the name is what is long
  return "..." + std::string(text::tail(frame, width - 3));
}

std::vector<std::string_view> views_of(const std::vector<std::string>& frames) { return {frames.begin(), frames.end()}; }

/// "train.py:13 step, in adam.py:178 step", whole or shortened.
std::string name_of(std::string_view frame, std::string_view called, std::size_t width) {
  if (called.empty()) return shortened(frame, width);
  const auto slash = called.substr(0, called.find(".py:")).rfind('/');
  const auto half = width == std::string::npos ? width : width / 2;
  return shortened(text::format("{}, in {}", shortened(frame, half), slash == called.npos ? called : called.substr(slash + 1)),
                   width);
}

template <class Groups, class Named>
std::vector<std::vector<std::string>> rows_of(const Groups& groups, std::size_t count, const Named& named) {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t left = 0, left_bytes = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i >= count) {
      left += groups[i].count;
      left_bytes += groups[i].bytes;
      continue;
    }
    named(groups[i], rows);
  }
  if (groups.size() > count) {
    rows.push_back({units::bytes(left_bytes), text::grouped(left), text::format("... and {} more", groups.size() - count)});
  }
  return rows;
}

}  // namespace

std::string bytes_in_full(std::uint64_t bytes) {
  if (bytes < 1024) return text::format("{} bytes", bytes);
  return text::format("{} ({} bytes)", units::bytes(bytes), text::grouped(bytes));
}

std::string counted(std::uint64_t count, std::string_view what) {
  return text::format("{} {}{}", text::grouped(count), what, count == 1 ? "" : "s");
}

std::string place_of(const trace::Trace& trace, std::uint32_t event) {
  auto out = text::format("after event {}", text::grouped(event));
  if (event >= trace.size()) return out;
  std::vector<std::string> more;
  if (trace[event].line != 0) more.push_back(text::format("line {}", text::grouped(trace[event].line)));
  if (trace[event].time_ns != 0) more.push_back(units::ns(static_cast<double>(trace[event].time_ns)));
  if (!more.empty()) out += text::format(" ({})", text::join(more));
  return out;
}

std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site, const Shown& shown) {
  auto frames = trace::CallSites(shown.all_frames).shown(trace.site_frames(site));
  if (!shown.all_frames && frames.size() > shown.frames) frames.resize(shown.frames);
  return frames;
}

std::vector<std::string_view> telling_part(std::span<const std::string_view> frames, std::size_t count) {
  trace::CallSites sites;
  std::vector<std::string_view> part;
  if (const auto called = sites.called(frames); !called.empty()) part.push_back(called);
  for (const auto frame : sites.shown(frames)) {
    if (part.size() < count) part.push_back(frame);
  }
  return part;
}

std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width, bool all_frames) {
  const auto frames = trace.site_frames(site);
  if (frames.empty()) return "(no call site)";
  const auto views = views_of(frames);
  trace::CallSites sites(all_frames);
  return name_of(sites.shown(views).front(), sites.called(views), width);
}

std::vector<ShownSite> shown_sites(const trace::Trace& trace, const BySite& sites, const Shown& shown) {
  trace::CallSites call_sites(shown.all_frames);
  std::vector<ShownSite> out;
  std::unordered_map<std::string, std::size_t> known;
  for (const auto& group : sites) {
    ShownSite site{.bytes = group.bytes, .count = group.count, .sites = {group.key}, .name = "(no call site)", .frames = {}};
    const auto frames = trace.site_frames(group.key);
    const auto views = views_of(frames);
    const auto telling = call_sites.shown(views);
    const auto count = shown.all_frames ? telling.size() : std::min(telling.size(), shown.frames);
    if (!telling.empty()) site.name = name_of(telling.front(), call_sites.called(views), std::string::npos);
    auto key = site.name;
    for (std::size_t i = 1; i < count; ++i) {
      site.frames.emplace_back(telling[i]);
      key.append("\n").append(telling[i]);
    }
    const auto [place, added] = known.try_emplace(std::move(key), out.size());
    if (added) {
      out.push_back(std::move(site));
      continue;
    }
    auto& same = out[place->second];
    same.bytes += site.bytes;
    same.count += site.count;
    same.sites.push_back(group.key);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

void site_to_json(format::JsonWriter& json, const trace::Trace& trace, SiteId site) {
  const auto frames = trace.site_frames(site);
  json.key("call_site");
  frames.empty() ? json.null() : json.value(trace::CallSites().shown(frames).front());
  json.key("frames").begin_array();
  for (const auto& frame : frames) json.value(frame);
  json.end_array();
}

std::string sites_table(const trace::Trace& trace, const BySite& sites, const Shown& shown) {
  return columns("rrl", rows_of(shown_sites(trace, sites, shown), shown.top, [&](const ShownSite& site, auto& rows) {
    rows.push_back({units::bytes(site.bytes), text::grouped(site.count), shortened(site.name, kFrameWidth)});
    for (const auto& frame : site.frames) rows.push_back({"", "", "  " + shortened(frame, kFrameWidth - 2)});
  }));
}

std::string sizes_table(const BySize& sizes, std::size_t count) {
  return columns("rrl", rows_of(sizes, count, [](const auto& group, auto& rows) {
    rows.push_back({units::bytes(group.bytes), text::grouped(group.count), text::format("of {} bytes", text::grouped(group.key))});
  }));
}

}  // namespace emm::inspect
