#include "cli/memory_maps.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/json_writer.hpp"
#include "format/svg.hpp"
#include "log/writer.hpp"

namespace emm::cli {
namespace {

using format::JsonWriter;
using State = MemoryMap::State;

void write_segment(JsonWriter& json, std::uint32_t device, const MemoryMap::Segment& segment) {
  std::uint64_t allocated = 0;
  std::uint64_t active = 0;
  std::uint64_t requested = 0;
  for (const auto& block : segment.blocks) {
    if (block.state == State::active_allocated) allocated += block.size;
    if (block.state != State::inactive) active += block.size;
    requested += block.requested_size;
  }
  json.member("device", device).member("address", segment.address);
  json.member("total_size", segment.size).member("allocated_size", allocated);
  json.member("active_size", active).member("requested_size", requested);
  json.member("stream", segment.stream.value).member("pieces", segment.pieces);
  json.objects("blocks", segment.blocks, [&](const MemoryMap::Block& block) {
    json.member("address", block.address).member("size", block.size);
    json.member("requested_size", block.requested_size).member("state", block.state);
    if (block.stitched_block) json.member("composite", *block.stitched_block);
  });
}

}  // namespace

void MemoryMaps::add(const log::ContextStatistics& statistics, std::uint32_t device,
                     std::optional<MemoryMap> map) {
  context_maps_.push_back({statistics, device, std::move(map)});
}

std::string MemoryMaps::to_json(const log::Summary& summary) const {
  format::JsonAnswer json("emmctl.memory-map/1", 2);
  json.member("trace", summary.trace).member("manager", summary.manager);
  json.member("device", summary.device).member("stopped_at", summary.stopped_at);
  json.objects("contexts", context_maps_, [&](const auto& entry) {
    json.member("context", entry.statistics.context).member("statistics", entry.statistics);
    if (!entry.map) {
      json.key("segments").null();
      return;
    }
    json.objects("segments", entry.map->segments, [&](const MemoryMap::Segment& segment) {
      write_segment(json, entry.device, segment);
    });
    json.member("mappings", entry.map->alias_mappings);
    json.objects("composites", entry.map->stitched_blocks, [&](const auto& block) {
      json.member("address", block.address).member("size", block.size);
      json.member("requested_size", block.requested_size);
      json.member("stream", block.stream.value).member("parts", block.parts);
    });
  });
  return json.finish();
}

namespace {

using format::Svg;

// The picture is drawn in these SVG units.
constexpr double kMapWidth = 1100, kMapLeft = 230, kMapRight = 24, kMapLine = 20;
constexpr std::size_t kMapSegments = 400;  // lines: a browser still shows them at once
constexpr std::string_view kHanded = "#4e79a7", kWaiting = "#f28e2b", kFree = "#e8e8e8",
                           kEdge = "#999999";

std::string_view colour_of(State state) {
  return state == State::active_allocated       ? kHanded
         : state == State::active_awaiting_free ? kWaiting
                                                : kFree;
}

void draw_segment(Svg& svg, const MemoryMap::Segment& segment, double y, double scale) {
  const auto width = std::max(1.0, scale * static_cast<double>(segment.size));
  svg.text({kMapLeft - 8, y + 12},
           text::format("{}  {}", text::hex(segment.address), units::bytes(segment.size)),
           {.anchor = Svg::Anchor::end, .size = 11});
  svg.rectangle({kMapLeft - 1, y - 1}, width + 2, kMapLine - 4, kEdge);
  svg.rectangle({kMapLeft, y}, width, kMapLine - 6, kFree);
  for (std::size_t b = 0; b < segment.blocks.size();) {
    const auto& first = segment.blocks[b];
    auto end = first.address + first.size;
    auto last = b + 1;
    // Merges neighbours of one state that are too narrow to tell apart.
    for (; last < segment.blocks.size() && segment.blocks[last].state == first.state &&
           segment.blocks[last].address == end &&
           scale * static_cast<double>(segment.blocks[last].size) < 0.7;
         ++last)
      end += segment.blocks[last].size;
    const auto left = kMapLeft + scale * static_cast<double>(first.address - segment.address);
    const auto shown = scale * static_cast<double>(end - first.address);
    svg.rectangle({left, y}, std::max(0.4, shown - 0.3), kMapLine - 6, colour_of(first.state),
                  text::format("{} at {}: {}", units::bytes(end - first.address),
                               text::hex(first.address), name(first.state)));
    b = last;
  }
}

}  // namespace

std::string MemoryMaps::to_svg(const log::Summary& summary) const {
  std::vector<const MemoryMap::Segment*> segments;
  std::uint64_t size = 0, handed = 0, waiting = 0, widest = 1, largest_free = 0;
  for (const auto& entry : context_maps_) {
    if (!entry.map) continue;
    for (const auto& segment : entry.map->segments) {
      segments.push_back(&segment);
      size += segment.size;
      widest = std::max(widest, segment.size);
      for (const auto& block : segment.blocks) {
        if (block.state == State::active_allocated) handed += block.size;
        if (block.state == State::active_awaiting_free) waiting += block.size;
        if (block.state == State::inactive) largest_free = std::max(largest_free, block.size);
      }
    }
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto* a, const auto* b) { return a->size > b->size; });
  const auto shown = std::min(segments.size(), kMapSegments);
  const auto title = text::format("{} on {}: {} in {} segment{}", summary.trace, summary.manager,
                                  units::bytes(size), text::grouped(segments.size()),
                                  segments.size() == 1 ? "" : "s");
  Svg svg(kMapWidth, 100 + kMapLine * static_cast<double>(shown + 1), title);
  svg.text({12, 26}, title, {.size = 16, .bold = true});
  const auto free = size - std::min(size, handed + waiting);
  const std::pair<std::string_view, std::string> legend[] = {
      {kHanded, text::format("handed out {}", units::bytes(handed))},
      {kWaiting, text::format("waits for a stream {}", units::bytes(waiting))},
      {kFree, text::format("free {}, the largest piece {}", units::bytes(free),
                           units::bytes(largest_free))}};
  double x = 12;
  for (const auto& [colour, words] : legend) {
    svg.rectangle({x - 1, 43}, 16, 15, kEdge);
    svg.rectangle({x, 44}, 14, 13, colour);
    svg.text({x + 22, 55}, words, {});
    x += 260;
  }
  const auto scale = (kMapWidth - kMapLeft - kMapRight) / static_cast<double>(widest);
  double y = 76;
  for (std::size_t i = 0; i < shown; ++i, y += kMapLine) draw_segment(svg, *segments[i], y, scale);
  if (segments.size() > shown) {
    svg.text({kMapLeft, y + 12},
             text::format("... and {} smaller ones", text::grouped(segments.size() - shown)),
             {.size = 11});
  }
  return svg.finish();
}

}  // namespace emm::cli
