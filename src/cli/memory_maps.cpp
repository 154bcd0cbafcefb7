#include "cli/memory_maps.hpp"

#include <utility>

#include "format/json_writer.hpp"
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

void MemoryMaps::add(const log::Statistics& statistics, std::uint32_t device,
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

}  // namespace emm::cli
