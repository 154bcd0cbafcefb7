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

void write_blocks(JsonWriter& json, const std::vector<MemoryMap::Block>& blocks) {
  json.key("blocks").begin_array();
  for (const auto& block : blocks) {
    json.begin_object();
    json.member("address", block.address);
    json.member("size", block.size);
    json.member("requested_size", block.requested_size);
    json.member("state", name(block.state));
    if (block.stitched_block) json.member("composite", *block.stitched_block);
    json.end_object();
  }
  json.end_array();
}

void write_segment(JsonWriter& json, std::uint32_t device, const MemoryMap::Segment& segment) {
  std::uint64_t allocated = 0;
  std::uint64_t active = 0;
  std::uint64_t requested = 0;
  for (const auto& block : segment.blocks) {
    if (block.state == State::active_allocated) allocated += block.size;
    if (block.state != State::inactive) active += block.size;
    requested += block.requested_size;
  }
  json.begin_object();
  json.member("device", device);
  json.member("address", segment.address);
  json.member("total_size", segment.size);
  json.member("allocated_size", allocated);
  json.member("active_size", active);
  json.member("requested_size", requested);
  json.member("stream", segment.stream.value);
  json.key("pieces").begin_array();
  for (const auto& piece : segment.pieces) {
    json.begin_object();
    json.member("address", piece.address);
    json.member("size", piece.size);
    json.member("handle", piece.handle);
    json.member("mapped", piece.mapped);
    json.end_object();
  }
  json.end_array();
  write_blocks(json, segment.blocks);
  json.end_object();
}

void write_mapping(JsonWriter& json, const MemoryMap::AliasMapping& mapping) {
  json.begin_object();
  json.member("address", mapping.address);
  json.member("size", mapping.size);
  json.key("pieces").begin_array();
  for (const auto piece : mapping.pieces) json.value(piece);
  json.end_array();
  json.end_object();
}

void write_stitched_block(JsonWriter& json, const MemoryMap::StitchedBlock& stitched_block) {
  json.begin_object();
  json.member("address", stitched_block.address);
  json.member("size", stitched_block.size);
  json.member("requested_size", stitched_block.requested_size);
  json.member("stream", stitched_block.stream.value);
  json.key("parts").begin_array();
  for (const auto& part : stitched_block.parts) {
    json.begin_object();
    json.member("address", part.address);
    json.member("size", part.size);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

template <class All, class Write>
void write_all(JsonWriter& json, std::string_view name, const All& all, Write write) {
  json.key(name).begin_array();
  for (const auto& one : all) write(one);
  json.end_array();
}

}  // namespace

void MemoryMaps::add(const log::ContextStatistics& statistics, std::uint32_t device,
                     std::optional<MemoryMap> map) {
  context_maps_.push_back({statistics, device, std::move(map)});
}

std::string MemoryMaps::to_json(const log::Summary& summary) const {
  std::string out;
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("schema", "emmctl.memory-map/1");
  json.member("trace", summary.trace);
  json.member("manager", summary.manager);
  json.member("device", summary.device);
  json.member("stopped_at", summary.stopped_at);
  json.key("contexts").begin_array();
  for (const auto& entry : context_maps_) {
    const auto& map = entry.map;
    json.begin_object();
    json.member("context", entry.statistics.context);
    json.key("statistics").begin_object();
    log::statistics_to_json(json, entry.statistics);
    json.end_object();
    if (map) {
      write_all(json, "segments", map->segments,
                [&](const auto& one) { write_segment(json, entry.device, one); });
      write_all(json, "mappings", map->alias_mappings,
                [&](const auto& one) { write_mapping(json, one); });
      write_all(json, "composites", map->stitched_blocks,
                [&](const auto& one) { write_stitched_block(json, one); });
    } else {
      json.key("segments").null();
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  out.push_back('\n');
  return out;
}

namespace {

using format::Svg;

// Of the picture, in SVG units.
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
