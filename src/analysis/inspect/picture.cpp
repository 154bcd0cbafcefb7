#include "inspect/picture.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"
#include "format/svg.hpp"
#include "inspect/oom.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {
namespace {

using format::Point;
using format::Svg;
using Anchor = Svg::Anchor;

// The picture is drawn in these SVG units.
constexpr double kPictureWidth = 1100, kLeft = 84, kRight = 24, kTop = 62, kPlotHeight = 380;
constexpr double kPlotWidth = kPictureWidth - kLeft - kRight, kBottom = kTop + kPlotHeight;
constexpr double kLegendLine = 18, kRegionLine = 20, kBelow = 76;
constexpr std::size_t kColumns = 492;  // each two pixels wide
// Colours that a reader tells apart, and lines and marks that still leave room between them.
constexpr std::size_t kGroups = 8, kRegions = 40, kIterationsMax = 100, kFailuresMost = 200;
constexpr std::size_t kNameMost = 1000, kLineMost = 140, kTitleMost = 100;  // characters
constexpr std::string_view kOther = "#c9c5c1", kReserved = "#222222", kGrid = "#e4e4e4",
                           kMark = "#d62728", kQuiet = "#666666", kFree = "#eeeeee",
                           kPending = "#ffffff", kOutline = "#999999";
// Tableau's ten colours but for red and grey, which kMark and kOther have.
constexpr std::array<std::string_view, kGroups> kColours{
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7"};

/// The areas of the plot, and the area of each allocation. The last one is for all others.
class Areas {
 public:
  Areas(const trace::Trace& trace, const trace::Lifetimes& lifetimes, const HeldMemory& at_peak,
        bool all_frames) {
    sited_ = at_peak.by_site.size() > 1 ||
             (!at_peak.by_site.empty() && index(at_peak.by_site[0].key) != 0);
    if (sited_) {
      const auto sites =
          shown_sites(trace, at_peak.by_site, {.frames = 1, .all_frames = all_frames});
      for (std::size_t i = 0; i < sites.all.size() && i < kGroups; ++i) {
        names_.push_back(text::format("{}: {} at the peak",
                                      site_name(trace, sites.all[i].site, kNameMost, all_frames),
                                      units::bytes(sites.all[i].bytes)));
      }
      for (std::size_t i = 0; i < sites.places.size(); ++i) {
        if (sites.places[i] < kGroups)
          numbers_.emplace(index(at_peak.by_site[i].key), sites.places[i]);
      }
    } else {
      std::map<std::uint64_t, std::uint64_t> bands;  // bands in use, with their bytes at the peak
      for (const auto& lifetime : lifetimes.all()) {
        if (lifetime.what == trace::Lifetime::MemoryKind::device)
          bands.try_emplace(band_of(lifetime.size));
      }
      for (const auto& group : at_peak.by_size) bands[band_of(group.key)] += group.bytes;
      for (const auto& [band, bytes] : bands) {
        const auto limit = band == kAbove ? text::format("above {}", band_name(kBands.back()))
                                          : text::format("up to {}", band_name(band));
        numbers_.emplace(band, names_.size());
        names_.push_back(text::format("{}: {} at the peak", limit, units::bytes(bytes)));
      }
    }
    others_ = names_.size();
    names_.emplace_back(sited_ ? "all other call sites" : "all other sizes");
    for (const auto& lifetime : lifetimes.all())
      shown_ +=
          lifetime.what == trace::Lifetime::MemoryKind::device && of(lifetime) == others_ ? 1 : 0;
    shown_ = others_ + (shown_ > 0 ? 1 : 0);
  }
  /// The areas of categories. Bytes may go from one to another, so that no allocation is in an
  /// area.
  Areas(const Categories& categories, const Profile& profile) {
    std::uint64_t told = 0;
    for (const auto& use : profile.categories) {
      told += use.at_peak;
      if (names_.size() == kGroups) continue;
      const auto number = std::find(categories.names().begin(), categories.names().end(), use.name);
      numbers_.emplace(number - categories.names().begin(), names_.size());
      names_.push_back(text::format("{}: {} at the peak", text::printable(use.name, kNameMost),
                                    units::bytes(use.at_peak)));
    }
    others_ = names_.size();
    names_.emplace_back("all other categories, or none");
    const auto is_all = profile.categories.size() <= kGroups && told == profile.live.bytes;
    shown_ = others_ + (is_all ? 0 : 1);
    categories_ = &categories;
  }
  /// Null if the areas are of allocations.
  const Categories* categories() const noexcept { return categories_; }
  std::size_t of_category(std::uint8_t category) const {
    const auto found = numbers_.find(category);
    return found == numbers_.end() ? others_ : found->second;
  }
  std::size_t of(const trace::Lifetime& lifetime) const {
    const auto found = numbers_.find(sited_ ? index(lifetime.site) : band_of(lifetime.size));
    return found == numbers_.end() ? others_ : found->second;
  }
  std::size_t count() const noexcept {
    return shown_;
  }  ///< Without the others if nothing is in them.
  std::size_t others() const noexcept { return others_; }
  const std::string& name(std::size_t area) const { return names_[area]; }
  std::string_view colour(std::size_t area) const {
    return area == others_ ? kOther : kColours[area];
  }

 private:
  // The band of sizes above the last one.
  static constexpr std::uint64_t kAbove = ~std::uint64_t{0};
  static constexpr std::array<std::uint64_t, 6> kBands{4_KiB,  64_KiB,  1_MiB,
                                                       16_MiB, 128_MiB, 1_GiB};

  static std::uint64_t band_of(std::uint64_t size) noexcept {
    for (const auto band : kBands) {
      if (size <= band) return band;
    }
    return kAbove;
  }
  static std::string band_name(std::uint64_t band) {
    auto out = units::bytes(band);
    out.erase(out.find(".00"), 3);
    return out;
  }

  bool sited_ = false;
  const Categories* categories_ = nullptr;
  std::size_t shown_ = 0, others_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> numbers_;
  std::vector<std::string> names_;
};

/// A column of the plot. It shows the event in it after which most is live.
struct Column {
  std::uint32_t event = 0;
  std::uint64_t live = 0, reserved = 0;  // reserved: the most at any event of it
  std::vector<std::uint64_t> by_area;
};

std::vector<Column> columns_of(const trace::Lifetimes& lifetimes, const Areas& areas) {
  const auto events = lifetimes.trace().size();
  std::vector<Column> out(std::min(kColumns, std::max<std::size_t>(events, 1)));
  const auto column_of = [&](std::uint32_t event) -> Column& {
    return out[static_cast<std::size_t>(std::uint64_t{event} * out.size() / events)];
  };
  // What existed before the recording exists at one moment, which the events before its last stand
  // for.
  const auto first_moment = lifetimes.trace().first_moment();
  const auto first_column = events == 0 ? 0 : first_moment * out.size() / events;
  std::uint64_t live = 0, reserved = 0;
  std::vector<bool> met(out.size());
  const auto change = [&](AllocId id, bool begins) {
    const auto& lifetime = lifetimes[id];
    auto* sum = lifetime.what == trace::Lifetime::MemoryKind::device    ? &live
                : lifetime.what == trace::Lifetime::MemoryKind::backing ? &reserved
                                                                        : nullptr;
    if (sum != nullptr) *sum = begins ? *sum + lifetime.size : *sum - lifetime.size;
  };
  lifetimes.walk_moments([&](std::uint32_t, AllocId id) { change(id, true); },
                         [&](std::uint32_t, AllocId id) { change(id, false); },
                         [&](std::uint32_t event) {
                           auto& column = column_of(event);
                           const auto at = static_cast<std::size_t>(&column - out.data());
                           if (!met[at] || live > column.live) {
                             column.event = event;
                             column.live = live;
                             met[at] = true;
                           }
                           column.reserved = std::max(column.reserved, reserved);
                         });
  std::fill_n(out.begin(), first_column, out.empty() ? Column() : out[first_column]);
  std::vector<std::uint64_t> by_area(areas.count());
  if (areas.categories() != nullptr) {
    std::vector<std::uint64_t> now(areas.count() + 1);
    const auto& changes = areas.categories()->steps();
    std::size_t next = 0;
    for (auto& column : out) {
      for (; next < changes.size() && changes[next].event <= column.event; ++next) {
        auto& sum = now[areas.of_category(changes[next].category)];
        const auto bytes = changes[next].bytes;
        sum = changes[next].begins ? sum + bytes : sum - std::min(sum, bytes);
      }
      std::uint64_t others = column.live;
      column.by_area.assign(now.begin(), now.end() - 1);
      for (std::size_t i = 0; i < areas.others(); ++i) others -= std::min(others, now[i]);
      if (areas.others() < column.by_area.size()) column.by_area[areas.others()] = others;
    }
    return out;
  }
  const auto change_area = [&](AllocId id, bool begins) {
    const auto& lifetime = lifetimes[id];
    if (lifetime.what != trace::Lifetime::MemoryKind::device) return;
    auto& sum = by_area[areas.of(lifetime)];
    sum = begins ? sum + lifetime.size : sum - lifetime.size;
  };
  lifetimes.walk_moments([&](std::uint32_t, AllocId id) { change_area(id, true); },
                         [&](std::uint32_t, AllocId id) { change_area(id, false); },
                         [&](std::uint32_t event) {
                           if (auto& column = column_of(event); column.event == event)
                             column.by_area = by_area;
                         });
  // The columns before the first moment show that moment.
  for (std::size_t i = 0; i < first_column; ++i) out[i].by_area = out[first_column].by_area;
  return out;
}

struct Plot {
  std::uint64_t events, top;  // at the right and the upper end
  double x(double event) const {
    return kLeft + kPlotWidth * event / static_cast<double>(std::max<std::uint64_t>(events, 1));
  }
  double y(std::uint64_t bytes) const {
    return kBottom - kPlotHeight * static_cast<double>(bytes) /
                         static_cast<double>(std::max<std::uint64_t>(top, 1));
  }
};

/// Returns a line of steps, one for each column, from left to right.
template <class Height>
std::vector<Point> steps(const std::vector<Column>& columns, const Height& height) {
  std::vector<Point> out;
  const auto width = kPlotWidth / static_cast<double>(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto y = height(columns[i]);
    const auto left = kLeft + width * static_cast<double>(i);
    if (!out.empty() && out.back().y == y) {
      out.back().x = left + width;
      continue;
    }
    out.push_back({left, y});
    out.push_back({left + width, y});
  }
  return out;
}

/// Draws the axes. Each tick of `ticks` is a power of two or a multiple of one: "64 MiB".
void draw_axes(Svg& svg, const Plot& plot, const std::vector<std::uint64_t>& ticks,
               const trace::Trace& trace, bool has_times) {
  for (const auto bytes : ticks) {
    svg.line({kLeft, plot.y(bytes)}, {kPictureWidth - kRight, plot.y(bytes)}, kGrid);
    svg.text({kLeft - 8, plot.y(bytes) + 4}, units::round_bytes(bytes), {.anchor = Anchor::end});
  }
  for (const auto event : format::decimal_ticks(plot.events)) {
    const auto x = plot.x(static_cast<double>(event));
    svg.line({x, kBottom}, {x, kBottom + 5}, kReserved);
    svg.text({x, kBottom + 19}, text::grouped(event), {.anchor = Anchor::middle});
    if (has_times && event < trace.size()) {
      svg.text({x, kBottom + 33}, units::ns(static_cast<double>(trace[event].time_ns)),
               {.anchor = Anchor::middle, .size = 11, .fill = kQuiet});
    }
  }
  svg.text({kLeft + kPlotWidth / 2, kBottom + 49}, has_times ? "event, and its time" : "event",
           {.anchor = Anchor::middle});
}

std::string refused_at(const trace::Trace& trace, std::uint32_t event) {
  return text::format("event {}: {} were refused", text::grouped(event),
                      units::bytes(trace[event].size));
}

/// Draws the limits of the program, and where it was refused memory.
void draw_limits(Svg& svg, const Plot& plot, const trace::Lifetimes& lifetimes,
                 const std::vector<PictureLimit>& limits) {
  for (const auto& limit : limits) {
    const auto y = plot.y(limit.bytes);
    if (limit.bytes == 0 || limit.bytes > plot.top) continue;
    svg.line({kLeft, y}, {kPictureWidth - kRight, y}, kMark, 1.5, "8 4");
    svg.text({kPictureWidth - kRight, y - 6},
             text::format("{} {}", limit.words, units::bytes(limit.bytes)),
             {.anchor = Anchor::end, .fill = kMark, .bold = true});
  }
  const auto& trace = lifetimes.trace();
  std::size_t drawn = 0;
  for (std::uint32_t event = 0; event < trace.size() && drawn < kFailuresMost; ++event) {
    if (!trace::is_refused(trace[event])) continue;
    const auto x = plot.x(event + 0.5);
    svg.line({x, kTop}, {x, kBottom}, kMark, 1);
    svg.polygon({{x - 6, kTop - 10}, {x + 6, kTop - 10}, {x, kTop}}, kMark,
                refused_at(trace, event));
    // The first has its words beside the title's line; the others show them under the mouse.
    if (drawn == 0) {
      const bool right = x < kLeft + kPlotWidth / 2;
      svg.text({right ? x + 10 : x - 10, kTop - 2}, refused_at(trace, event),
               {.anchor = right ? Anchor::start : Anchor::end, .fill = kMark, .bold = true});
    }
    ++drawn;
  }
}

void draw_peak(Svg& svg, const Plot& plot, const Profile& profile) {
  const auto x = plot.x(profile.live.event + 0.5), y = plot.y(profile.live.bytes);
  svg.line({x, y}, {x, kBottom}, kMark, 1, "4 3");
  svg.circle({x, y}, 4, kMark);
  const bool right = x < kLeft + kPlotWidth / 2;
  svg.text({right ? x + 8 : x - 8, y - 7},
           text::format("peak live {} after event {}", units::bytes(profile.live.bytes),
                        text::grouped(profile.live.event)),
           {.anchor = right ? Anchor::start : Anchor::end, .fill = kMark, .bold = true});
}

/// Breaks a long name into several lines.
std::vector<std::string> lines_of(std::string_view name) {
  std::vector<std::string> out;
  while (!name.empty()) {
    auto length = name.size();
    if (length > kLineMost) {
      length = name.rfind(' ', kLineMost);
      if (length == name.npos || length == 0) length = text::head(name, kLineMost).size();
    }
    out.emplace_back(name.substr(0, length));
    name.remove_prefix(length);
    if (name.starts_with(' ')) name.remove_prefix(1);
  }
  return out;
}

struct LegendRow {
  std::vector<std::string> lines;
  std::string_view colour;
  enum class Kind : std::uint8_t { area, line, outlined } kind = Kind::area;
};

std::vector<LegendRow> legend_of(const Areas& areas, bool reserved,
                                 const std::optional<AddressSpace>& map) {
  using Kind = LegendRow::Kind;
  std::vector<LegendRow> out;
  if (reserved) out.push_back({{"reserved by the recorded manager"}, kReserved, Kind::line});
  for (std::size_t area = 0; area < areas.count(); ++area)
    out.push_back({lines_of(areas.name(area)), areas.colour(area), Kind::area});
  if (map) out.push_back({{"in the map: free"}, kFree, Kind::outlined});
  if (map && map->pending != 0) {
    out.push_back({{"in the map: freed, and kept for another stream"}, kPending, Kind::outlined});
  }
  return out;
}

double draw_legend(Svg& svg, const std::vector<LegendRow>& rows) {
  auto y = kBottom + kBelow;
  for (const auto& row : rows) {
    if (row.kind == LegendRow::Kind::line) {
      svg.line({kLeft, y - 4}, {kLeft + 14, y - 4}, row.colour, 2);
    } else {
      const bool outlined = row.kind == LegendRow::Kind::outlined;
      if (outlined) svg.rectangle({kLeft - 1, y - 12}, 16, 15, kOutline);
      svg.rectangle({kLeft, y - 11}, 14, 13, row.colour);
    }
    for (const auto& line : row.lines) {
      svg.text({kLeft + 22, y}, line, {});
      y += kLegendLine;
    }
  }
  return y;
}

void draw_map(Svg& svg, const trace::Lifetimes& lifetimes, const Areas& areas,
              const AddressSpace& map, double top) {
  constexpr double kBar = kLeft + 176, kBarWidth = kPictureWidth - kRight - kBar;
  svg.text(
      {kLeft, top},
      text::format("{} after event {}: {} in {}, {} used, {} free, largest free {}",
                   map.segments ? "Segments" : "Address space", text::grouped(map.event),
                   units::bytes(map.size),
                   counted(map.regions.size(), map.segments ? "segment" : "region"),
                   units::bytes(map.used), units::bytes(map.free), units::bytes(map.largest_free)),
      {.size = 14, .bold = true});
  std::uint64_t widest = 1;
  for (const auto& region : map.regions) widest = std::max(widest, region.size);
  auto y = top + 12;
  for (const auto place : largest(map, kRegions)) {
    const auto& region = map.regions[place];
    const auto scale = kBarWidth / static_cast<double>(widest);
    svg.text({kBar - 8, y + 12},
             text::format("{}  {}", text::hex(region.address), units::bytes(region.size)),
             {.anchor = Anchor::end, .size = 11});
    const auto shown = std::max(1.0, scale * static_cast<double>(region.size));
    svg.rectangle({kBar - 1, y - 1}, shown + 2, kRegionLine - 3, kOutline);
    svg.rectangle({kBar, y}, shown, kRegionLine - 5, kFree,
                  text::format("free {}", units::bytes(region.free)));
    for (std::size_t b = 0; b < region.blocks.size();) {
      // Neighbours of one colour that are too near to be told apart are drawn as one.
      const auto colour = [&](const PlacedMemory& block) {
        return block.pending ? kPending : areas.colour(areas.of(lifetimes[block.id]));
      };
      const auto& first = region.blocks[b];
      auto end = first.address + first.size;
      std::uint64_t bytes = first.size;
      auto last = b + 1;
      for (; last < region.blocks.size() && colour(region.blocks[last]) == colour(first) &&
             scale * static_cast<double>(region.blocks[last].address - end) < 0.5;
           ++last) {
        end = region.blocks[last].address + region.blocks[last].size;
        bytes += region.blocks[last].size;
      }
      svg.rectangle({kBar + scale * static_cast<double>(first.address - region.address), y + 1},
                    std::max(0.5, scale * static_cast<double>(end - first.address) - 0.3),
                    kRegionLine - 7, colour(first),
                    text::format("{} of {}", units::bytes(bytes), counted(last - b, "allocation")));
      b = last;
    }
    y += kRegionLine;
  }
  if (map.regions.size() > kRegions) {
    svg.text({kBar, y + 12},
             text::format("... and {} smaller ones", text::grouped(map.regions.size() - kRegions)),
             {.size = 11});
  }
}

}  // namespace

std::vector<PictureLimit> limits_of(const Recording& recording, const trace::Lifetimes& lifetimes,
                                    std::uint64_t capacity) {
  const auto& trace = recording.trace();
  std::vector<PictureLimit> out;
  if (capacity == 0 && trace.device_count() == 1) capacity = trace.least_capacity();
  if (capacity != 0) out.push_back({capacity, "capacity"});
  std::uint64_t found = 0;
  for (const auto& each : find_ooms(recording, lifetimes).all) {
    if (each.cause == Cause::limit) found = std::max(found, each.reserved_before);
  }
  if (found != 0 && trace.device_count() == 1) out.push_back({found, "a limit of at least"});
  return out;
}

std::string picture(const Recording& recording, const trace::Lifetimes& lifetimes,
                    const Profile& profile, const Growth& growth,
                    const std::optional<AddressSpace>& map, bool all_frames,
                    const std::vector<PictureLimit>& limits) {
  const auto& trace = recording.trace();
  // A map shows where allocations lie, so that its areas are of these. A category's bytes are of no
  // device.
  const auto by_category = !profile.categories.empty() && !map && trace.device_count() == 1;
  const auto areas = by_category ? Areas(recording.categories(), profile)
                                 : Areas(trace, lifetimes, profile.at_peak, all_frames);
  const auto columns = columns_of(lifetimes, areas);
  const bool reserved = profile.backing.has_value();
  const auto legend_rows = legend_of(areas, reserved, map);
  double legend = 0;
  for (const auto& row : legend_rows) legend += kLegendLine * static_cast<double>(row.lines.size());
  const auto map_height =
      map ? 50 + kRegionLine * static_cast<double>(std::min(map->regions.size(), kRegions + 1)) : 0;
  const auto title = text::format("{}: device memory as requested", trace.source());
  Svg svg(kPictureWidth, kBottom + kBelow + legend + map_height + 10, title);
  // The end of a long path tells files apart. A browser shows the whole title.
  const auto shown_title =
      title.size() <= kTitleMost ? title : "..." + std::string(text::tail(title, kTitleMost));
  svg.text({kLeft, 26}, shown_title, {.size = 16, .bold = true});
  svg.text({kLeft, 45},
           text::format("{}, {} of {} in all, {} never freed", counted(profile.events, "event"),
                        counted(profile.allocs, "allocation"), units::bytes(profile.bytes),
                        text::grouped(profile.leaked.count)),
           {.fill = "#666666"});
  auto most = std::max(profile.live.bytes, reserved ? profile.backing->reserved.bytes : 0);
  // A limit far above all else would press the curves flat.
  constexpr std::uint64_t kFarAbove = 3;
  auto highest = most;
  for (const auto& limit : limits) {
    if (limit.bytes / kFarAbove <= most) highest = std::max(highest, limit.bytes);
  }
  most = highest;
  const auto ticks = format::binary_ticks(most);
  const Plot plot{.events = profile.events, .top = ticks.back()};
  draw_axes(svg, plot, ticks, trace, profile.has_times);
  // Each polygon covers its area and those below it, so they are painted from the top one down.
  for (std::size_t area = areas.count(); area-- > 0;) {
    auto outline = steps(columns, [&](const Column& column) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i <= area && i < column.by_area.size(); ++i) sum += column.by_area[i];
      return plot.y(sum);
    });
    outline.push_back({kPictureWidth - kRight, kBottom});
    outline.push_back({kLeft, kBottom});
    svg.polygon(outline, areas.colour(area), areas.name(area));
  }
  if (growth.source != Growth::Source::floors && growth.iterations.size() <= kIterationsMax) {
    for (const auto& iteration : growth.iterations) {
      svg.line({plot.x(iteration.first), kBottom - 8}, {plot.x(iteration.first), kBottom},
               "#000000");
    }
  }
  if (reserved)
    svg.polyline(steps(columns, [&](const Column& column) { return plot.y(column.reserved); }),
                 kReserved, 1.5);
  svg.line({kLeft, kBottom}, {kPictureWidth - kRight, kBottom}, kReserved);
  svg.line({kLeft, kTop}, {kLeft, kBottom}, kReserved);
  draw_limits(svg, plot, lifetimes, limits);
  if (profile.live.bytes > 0) draw_peak(svg, plot, profile);
  const auto below = draw_legend(svg, legend_rows);
  if (map) draw_map(svg, lifetimes, areas, *map, below + 20);
  return svg.finish();
}

}  // namespace emm::inspect
