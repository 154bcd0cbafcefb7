#include "inspect/report_parts.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "format/columns.hpp"
#include "trace/call_site.hpp"

namespace emm::inspect {
namespace {

constexpr std::size_t kFrameWidth = 76;  // columns: a line of 80, indented

/// Shortens a frame at its beginning, because the end of a path says more.
std::string shortened(std::string_view given, std::size_t width) {
  auto frame = text::printable(given, std::string::npos);
  if (frame.size() <= width) return frame;
  const auto place = std::min(frame.find(' '), frame.size());
  if (frame.size() - place + 20 > width)
    return std::string(text::head(frame, width - 3)) + "...";  // the name is what is long
  return "..." + std::string(text::tail(frame, width - 3));
}

std::vector<std::string_view> views_of(const std::vector<std::string>& frames) {
  return {frames.begin(), frames.end()};
}

/// Writes "train.py:13 step, in adam.py:178 step", whole or shortened.
std::string name_of(std::string_view frame, std::string_view called, std::size_t width) {
  if (called.empty()) return shortened(frame, width);
  const auto slash = called.substr(0, called.find(".py:")).rfind('/');
  const auto half = width == std::string::npos ? width : width / 2;
  return shortened(text::format("{}, in {}", shortened(frame, half),
                                slash == called.npos ? called : called.substr(slash + 1)),
                   width);
}

/// Hashes a series of texts to 128 bits, by two functions.
struct TextHash {
  std::uint64_t first = 0x243f6a8885a308d3, second = 0x13198a2e03707344;

  void add(std::string_view text) noexcept {
    first = (first ^ std::hash<std::string_view>()(text)) * 0x9e3779b97f4a7c15;
    first ^= first >> 32;
    for (const char c : text) second = (second ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    second = (second ^ text.size()) * 0x100000001b3;
  }
  bool operator==(const TextHash&) const = default;
  struct Word {
    std::size_t operator()(const TextHash& hash) const noexcept {
      return static_cast<std::size_t>(hash.first);
    }
  };
};

template <class Groups, class Named>
std::vector<std::vector<std::string>> rows_of(const Groups& groups, std::size_t count,
                                              const Named& named) {
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
    rows.push_back({units::bytes(left_bytes), text::grouped(left),
                    text::format("... and {} more", groups.size() - count)});
  }
  return rows;
}

}  // namespace

std::string bytes_in_full(std::uint64_t bytes) {
  if (bytes < 1024) return text::format("{} bytes", bytes);
  if (units::writes_exact_bytes()) return text::format("{} bytes", text::grouped(bytes));
  return text::format("{} ({} bytes)", units::bytes(bytes), text::grouped(bytes));
}

std::string size_beside(std::uint64_t bytes, std::uint64_t other) {
  const auto words = units::short_bytes(bytes);
  if (bytes == other || words != units::short_bytes(other)) return words;
  return bytes > other ? text::format("{} more than {}", units::short_bytes(bytes - other), words)
                       : text::format("{} less than {}", units::short_bytes(other - bytes), words);
}

std::string time_or_dash(const std::optional<std::uint64_t>& ns) {
  return ns ? units::ns(static_cast<double>(*ns)) : "-";
}

std::string need_beside(std::uint64_t bytes, std::uint64_t other) {
  const bool is_told_apart = units::short_bytes(bytes) != units::short_bytes(other) &&
                             units::enough_bytes(bytes) != units::short_bytes(other);
  return bytes != other && is_told_apart ? units::enough_bytes(bytes) : size_beside(bytes, other);
}

std::string place_of(const trace::Trace& trace, std::uint32_t event) {
  auto out = text::format("after event {}", text::grouped(event));
  if (event >= trace.size()) return out;
  std::vector<std::string> more;
  const auto place = trace.place(event);
  if (place.line != 0) more.push_back(text::format("line {}", text::grouped(place.line)));
  if (place.time_ns != 0) more.push_back(units::ns(static_cast<double>(place.time_ns)));
  if (!more.empty()) out += text::format(" ({})", text::join(more));
  return out;
}

std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site,
                                        const Shown& shown) {
  auto frames = trace::CallSites(shown.all_frames).shown(trace.site_frames(site));
  if (!shown.all_frames && frames.size() > shown.frames) frames.resize(shown.frames);
  return frames;
}

std::vector<std::string_view> telling_part(std::span<const std::string_view> frames,
                                           std::size_t count) {
  const auto site = trace::CallSites().of(frames);
  std::vector<std::string_view> part;
  if (!site.called.empty()) part.push_back(site.called);
  for (const auto frame : site.frames) {
    if (part.size() < count) part.push_back(frame);
  }
  return part;
}

bool sited(const BySite& sites) {
  return sites.size() > 1 || (!sites.empty() && index(sites.front().key) != 0);
}

std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width, bool all_frames) {
  const auto frames = trace.site_frames(site);
  if (frames.empty()) return "(no call site)";
  const auto views = views_of(frames);
  const auto shown = trace::CallSites(all_frames).of(views);
  return name_of(shown.frames.front(), shown.called, width);
}

ShownSites shown_sites(const trace::Trace& trace, const BySite& sites, const Shown& shown) {
  trace::CallSites call_sites(shown.all_frames);
  ShownSites out;
  out.places.reserve(sites.size());
  // There may be millions of different sites, so only a hash of 128 bits is kept of each.
  std::unordered_map<TextHash, std::uint32_t, TextHash::Word> known;
  for (const auto& group : sites) {
    const auto frames = trace.site_frames(group.key);
    const auto views = views_of(frames);
    const auto site = call_sites.of(views);
    const auto count = shown.all_frames
                           ? site.frames.size()
                           : std::min(site.frames.size(), std::max<std::size_t>(shown.frames, 1));
    TextHash hash;
    hash.add(site.called);
    for (std::size_t i = 0; i < count; ++i) hash.add(site.frames[i]);
    const auto [place, added] = known.try_emplace(hash, static_cast<std::uint32_t>(out.all.size()));
    out.places.push_back(place->second);
    if (added) out.all.push_back({.bytes = 0, .count = 0, .site = group.key});
    auto& same = out.all[place->second];
    same.bytes += group.bytes;
    same.count += group.count;
  }
  std::vector<std::uint32_t> order(out.all.size()), at(out.all.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return out.all[a].bytes > out.all[b].bytes; });
  auto sorted = out.all;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    sorted[i] = out.all[order[i]];
    at[order[i]] = i;
  }
  out.all = std::move(sorted);
  for (auto& place : out.places) place = at[place];
  return out;
}

void sites_to_json(format::JsonWriter& json, std::string_view name, const trace::Trace& trace,
                   const BySite& sites, std::size_t most) {
  json.objects(name, first_of(sites, most), [&](const auto& each) {
    const auto frames = trace.site_frames(each.key);
    json.member("bytes", each.bytes).member("count", each.count).key("call_site");
    frames.empty() ? json.null() : json.value(trace::CallSites().shown(frames).front());
    json.member("frames", frames);
  });
}

std::string sites_table(const trace::Trace& trace, const BySite& sites, const Shown& shown) {
  return format::columns(
      "rrl", rows_of(shown_sites(trace, sites, shown).all, shown.top,
                     [&](const ShownSite& site, auto& rows) {
                       rows.push_back({units::bytes(site.bytes), text::grouped(site.count),
                                       site_name(trace, site.site, kFrameWidth, shown.all_frames)});
                       const auto frames = telling_frames(trace, site.site, shown);
                       for (std::size_t i = 1; i < frames.size(); ++i)
                         rows.push_back({"", "", "  " + shortened(frames[i], kFrameWidth - 2)});
                     }));
}

std::string sizes_table(const BySize& sizes, std::size_t count) {
  return format::columns("rrl", rows_of(sizes, count, [](const auto& group, auto& rows) {
                           rows.push_back({units::bytes(group.bytes), text::grouped(group.count),
                                           text::format("of {} bytes", text::grouped(group.key))});
                         }));
}

}  // namespace emm::inspect
