#include "inspect/address_space.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emm::inspect {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

bool by_address(const PlacedMemory& a, const PlacedMemory& b) {
  return a.address != b.address ? a.address < b.address : a.id < b.id;
}

std::vector<Region> regions_of(const std::vector<PlacedMemory>& segments) {
  std::vector<Region> regions;
  bool was_mapped = false;
  for (const auto& segment : segments) {
    const auto end = regions.empty() ? 0 : regions.back().address + regions.back().size;
    if (segment.address < end) continue;  // recorded twice
    // Pieces that are mapped side by side are one region, because a block may reach over several.
    const bool goes_on = segment.mapped && was_mapped && segment.address == end;
    was_mapped = segment.mapped;
    if (goes_on) {
      regions.back().size += segment.size;
      continue;
    }
    regions.push_back({.address = segment.address, .size = segment.size, .blocks = {}});
  }
  return regions;
}

std::vector<Region> runs_of(const std::vector<PlacedMemory>& blocks) {
  std::vector<Region> regions;
  for (const auto& block : blocks) {
    const auto end = regions.empty() ? 0 : regions.back().address + regions.back().size;
    if (regions.empty() || block.address >= end + AddressSpace::kGapMax) {
      regions.push_back({.address = block.address, .size = block.size, .blocks = {}});
    } else {
      regions.back().size = std::max(end, block.address + block.size) - regions.back().address;
    }
  }
  return regions;
}

void fill(AddressSpace& space, const std::vector<PlacedMemory>& blocks) {
  auto region = space.regions.begin();
  for (auto block : blocks) {
    while (region != space.regions.end() && region->address + region->size <= block.address)
      ++region;
    if (region == space.regions.end() || block.address < region->address) {
      ++space.elsewhere;
      space.elsewhere_bytes += block.size;
      continue;
    }
    // If blocks overlap, the earlier one is cut, because the later one is known to begin there.
    auto& there = region->blocks;
    if (!there.empty() && there.back().address + there.back().size > block.address) {
      there.back().size = block.address - there.back().address;
      if (there.back().size == 0) there.pop_back();
    }
    const auto room = region->address + region->size - block.address;
    if (block.size > room) {
      space.elsewhere_bytes += block.size - room;
      block.size = room;
    }
    there.push_back(block);
  }
  for (auto& each : space.regions) {
    auto at = each.address;
    const auto gap_to = [&](std::uint64_t to) {
      each.free += to - at;
      each.largest_free = std::max(each.largest_free, to - at);
    };
    for (const auto& block : each.blocks) {
      gap_to(block.address);
      (block.pending ? each.pending : each.used) += block.size;
      at = block.address + block.size;
    }
    gap_to(each.address + each.size);
    space.size += each.size;
    space.used += each.used;
    space.pending += each.pending;
    space.free += each.free;
    space.largest_free = std::max(space.largest_free, each.largest_free);
  }
}

}  // namespace

bool AddressSpaceParts::add(const PlacedMemory& memory, MemoryKind what, std::uint64_t live_bytes) {
  if (memory.address == 0 || memory.size == 0 || memory.address > ~memory.size) {
    if (what == MemoryKind::device && !memory.pending) {
      ++elsewhere;
      elsewhere_bytes += live_bytes;
    }
    return false;
  }
  (what == MemoryKind::device ? blocks : segments).push_back(memory);
  return true;
}

std::optional<AddressSpace> AddressSpaceParts::joined(std::uint32_t event) {
  if (blocks.empty() && segments.empty()) return std::nullopt;
  AddressSpace space;
  space.event = event;
  space.elsewhere = elsewhere;
  space.elsewhere_bytes = elsewhere_bytes;
  std::sort(blocks.begin(), blocks.end(), by_address);
  std::sort(segments.begin(), segments.end(), by_address);
  space.segments = !segments.empty();
  space.regions = space.segments ? regions_of(segments) : runs_of(blocks);
  fill(space, blocks);
  return space;
}

std::optional<AddressSpace> address_space_after(const Recording& recording,
                                                const trace::Lifetimes& lifetimes,
                                                std::uint32_t event,
                                                std::optional<std::uint32_t> device) {
  AddressSpaceParts parts;
  event = std::max(event, static_cast<std::uint32_t>(recording.trace().first_moment()));
  const auto asked = std::exchange(event, recording.with_what_stays(event));
  for (std::uint32_t i = 0; i < lifetimes.all().size(); ++i) {
    const auto id = static_cast<AllocId>(i);
    const auto& lifetime = lifetimes[id];
    const bool there = lifetime.birth <= event && event < lifetime.gone;
    if (!there || (lifetime.what != MemoryKind::device && lifetime.what != MemoryKind::backing))
      continue;
    if (device && lifetimes.device(lifetime) != *device) continue;
    parts.add({.address = recording.address(id),
               .size = std::max(recording.granted(id), lifetime.size),
               .id = id,
               .pending = event >= lifetime.death,
               .mapped = recording.is_mapped(id)},
              lifetime.what, lifetime.size);
  }
  return parts.joined(asked);
}

std::vector<std::size_t> largest(const AddressSpace& space, std::size_t count) {
  std::vector<std::size_t> places(space.regions.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  if (places.size() <= count) return places;
  std::stable_sort(places.begin(), places.end(),
                   [&](auto a, auto b) { return space.regions[a].size > space.regions[b].size; });
  places.resize(count);
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace emm::inspect
