#include "inspect/gap.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "inspect/profile.hpp"

namespace emm::inspect {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

constexpr std::int64_t signed_of(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

struct Range {
  std::uint64_t address = 0, size = 0;
  AllocId id{};
};
void sort_by_address(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.address < b.address; });
}

/// Returns the bytes of each segment that no block takes, in the order of the segments. Both
/// arguments are sorted by address.
std::vector<std::uint64_t> free_of(const std::vector<Range>& segments,
                                   const std::vector<Range>& blocks) {
  std::vector<std::uint64_t> free;
  for (const auto& segment : segments) free.push_back(segment.size);
  std::size_t first = 0;
  for (const auto& block : blocks) {
    while (first < segments.size() &&
           segments[first].address + segments[first].size <= block.address)
      ++first;
    const auto end = block.address + block.size;
    for (auto at = first; at < segments.size() && segments[at].address < end; ++at) {
      const auto& segment = segments[at];
      const auto taken =
          std::min(end, segment.address + segment.size) - std::max(block.address, segment.address);
      free[at] -= std::min(free[at], taken);
    }
  }
  return free;
}

/// Adds up the bytes of each device, cause and call site.
class PartSums {
 public:
  void add(Beyond cause, std::uint32_t device, SiteId site, std::uint64_t bytes,
           std::uint64_t blocks) {
    if (bytes == 0) return;
    auto& part = parts_[{device, cause, static_cast<std::uint32_t>(index(site))}];
    part.cause = cause;
    part.device = device;
    part.site = site;
    part.bytes += bytes;
    part.blocks += blocks;
  }
  /// Makes the parts of a cause sum to `bytes`. Missing bytes become a part without a site. If the
  /// parts exceed `bytes`, one part without a site replaces them.
  void sum_to(Beyond cause, std::uint32_t device, std::uint64_t bytes) {
    const auto first = parts_.lower_bound({device, cause, 0});
    auto last = first;
    std::uint64_t sum = 0, blocks = 0;
    for (; last != parts_.end() && last->second.cause == cause && last->second.device == device;
         ++last) {
      sum += last->second.bytes;
      blocks += last->second.blocks;
    }
    if (sum <= bytes) return add(cause, device, SiteId{}, bytes - sum, 0);
    parts_.erase(first, last);
    add(cause, device, SiteId{}, bytes, blocks);
  }
  std::vector<Gap::Part> greatest_first() const {
    std::vector<Gap::Part> out;
    for (const auto& [key, part] : parts_) out.push_back(part);
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return out;
  }

 private:
  std::map<std::tuple<std::uint32_t, Beyond, std::uint32_t>, Gap::Part> parts_;
};

}  // namespace

std::string_view name(Beyond cause) noexcept {
  constexpr std::array<std::string_view, kBeyondCauses> kNames{
      "rounding",
      "unsplit remainder",
      "waiting for an event",
      "free in a private pool",
      "free in the small pool",
      "free in the large pool",
      "free",
  };
  return kNames[static_cast<std::size_t>(cause)];
}

GapWalk::GapWalk(const Recording& recording, const trace::Lifetimes& lifetimes,
                 const KnownBlocks& known)
    : recording_(recording),
      lifetimes_(lifetimes),
      known_(known),
      sums_(std::max<std::size_t>(lifetimes.trace().devices().size(), 1)) {
  for (std::uint32_t i = 0; i < lifetimes.all().size(); ++i) {
    const auto& each = lifetimes[static_cast<AllocId>(i)];
    if (each.what == MemoryKind::device && each.death != trace::kNever && each.gone != each.death &&
        each.gone != trace::kNever) {
      later_.emplace_back(each.gone, static_cast<AllocId>(i));
    }
  }
  std::sort(later_.begin(), later_.end());
}

KnownBlocks::KnownBlock GapWalk::block(AllocId id) const {
  const auto& memory = lifetimes_[id];
  if (index(id) < known_.blocks.size() && known_.blocks[index(id)].bytes >= memory.size) {
    auto known = known_.blocks[index(id)];
    known.rounded = std::clamp(known.rounded, memory.size, known.bytes);
    return known;
  }
  const auto granted = std::max(recording_.granted(id), memory.size);
  return {.bytes = granted, .rounded = granted};
}

Beyond GapWalk::store(AllocId id) const {
  return index(id) < known_.stores.size() ? known_.stores[index(id)] : Beyond::free;
}

std::size_t GapWalk::place(AllocId id) const {
  const auto& devices = lifetimes_.trace().devices();
  if (devices.size() < 2) return 0;
  const auto found = std::find(devices.begin(), devices.end(), lifetimes_.device(lifetimes_[id]));
  return found == devices.end() ? 0 : static_cast<std::size_t>(found - devices.begin());
}

void GapWalk::add_inside(AllocId id, std::int64_t sign) {
  const auto held = block(id);
  of(id, Beyond::rounding) += sign * signed_of(held.rounded - lifetimes_[id].size);
  of(id, Beyond::unsplit_remainder) += sign * signed_of(held.bytes - held.rounded);
}

void GapWalk::begin(AllocId id) {
  const auto& memory = lifetimes_[id];
  if (memory.what == MemoryKind::backing) {
    of(id, store(id)) += signed_of(memory.size);
  } else if (memory.what == MemoryKind::device) {
    of(id, store(id)) -= signed_of(block(id).bytes);
    add_inside(id, 1);
  }
}

void GapWalk::end(AllocId id) {
  const auto& memory = lifetimes_[id];
  if (memory.what == MemoryKind::backing) {
    of(id, store(id)) -= signed_of(memory.size);
  } else if (memory.what == MemoryKind::device) {
    add_inside(id, -1);
    of(id, Beyond::waiting) += signed_of(block(id).bytes);
    if (memory.gone == memory.death) end_wait(id);
  }
}

void GapWalk::end_wait(AllocId id) {
  const auto bytes = signed_of(block(id).bytes);
  of(id, Beyond::waiting) -= bytes;
  of(id, store(id)) += bytes;
}

std::optional<Gap> gap_after(const Recording& recording, const trace::Lifetimes& lifetimes,
                             const KnownBlocks& known, std::uint32_t event) {
  const auto& all = lifetimes.all();
  const bool held = std::any_of(all.begin(), all.end(),
                                [](const auto& each) { return each.what == MemoryKind::backing; });
  if (!held) return std::nullopt;
  GapWalk walk(recording, lifetimes, known);
  BeyondByDevice sums;
  const auto is_negative = [&] {
    return std::any_of(sums.begin(), sums.end(), [](const BeyondBytes& causes) {
      return std::any_of(causes.begin(), causes.end(), [](auto bytes) { return bytes < 0; });
    });
  };
  Gap gap;
  event = std::max(event, static_cast<std::uint32_t>(lifetimes.trace().first_moment()));
  gap.event = event;
  event = recording.with_what_stays(event);
  walk.walk([&](std::uint32_t at, const BeyondByDevice& bytes) {
    if (at == event) sums = bytes;
  });
  // Blocks lie outside of every recorded segment: the recording lacks segments, and no sum is
  // right.
  if (is_negative()) return std::nullopt;
  PartSums parts;
  std::vector<std::vector<Range>> segments(sums.size()), blocks(sums.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<AllocId>(i);
    const auto& memory = all[i];
    if (memory.birth > event || memory.gone <= event) continue;
    if (memory.what != MemoryKind::backing && memory.what != MemoryKind::device) continue;
    const auto address = recording.address(id);
    const auto device = lifetimes.device(memory);
    if (memory.what == MemoryKind::backing) {
      gap.reserved += memory.size;
      if (address != 0) segments[walk.place(id)].push_back({address, memory.size, id});
      continue;
    }
    const auto held_block = walk.block(id);
    if (address != 0) blocks[walk.place(id)].push_back({address, held_block.bytes, id});
    if (memory.death <= event) {
      parts.add(Beyond::waiting, device, memory.site, held_block.bytes, 1);
      continue;
    }
    gap.live += memory.size;
    parts.add(Beyond::rounding, device, memory.site, held_block.rounded - memory.size, 1);
    parts.add(Beyond::unsplit_remainder, device, memory.site, held_block.bytes - held_block.rounded,
              1);
  }
  const auto& devices = lifetimes.trace().devices();
  for (std::size_t place = 0; place < sums.size(); ++place) {
    const auto device = place < devices.size() ? devices[place] : 0;
    sort_by_address(segments[place]);
    sort_by_address(blocks[place]);
    const auto free = free_of(segments[place], blocks[place]);
    // Free bytes belong to the site that made the manager take their segment.
    for (std::size_t i = 0; i < free.size(); ++i) {
      const auto id = segments[place][i].id;
      parts.add(walk.store(id), device, lifetimes[id].site, free[i], 0);
    }
    // What no site accounts for is added, so that the parts sum to the walk's figures to the byte.
    for (auto cause = static_cast<std::size_t>(Beyond::free_private); cause < kBeyondCauses;
         ++cause) {
      parts.sum_to(static_cast<Beyond>(cause), device,
                   static_cast<std::uint64_t>(sums[place][cause]));
    }
  }
  gap.parts = parts.greatest_first();
  return gap;
}

std::string words_of(const trace::Trace& trace, const Gap::Part& part, std::size_t width,
                     bool all_frames) {
  auto words = std::string(name(part.cause));
  if (index(part.site) != 0) {
    words += part.cause >= Beyond::free_private ? ", taken for " : ": ";
    words += site_name(trace, part.site, width, all_frames);
  }
  if (trace.devices().size() > 1) words += text::format(", device {}", part.device);
  return words;
}

std::string to_text(const Recording& recording, const Gap& gap, const Shown& shown) {
  const auto& trace = recording.trace();
  auto out =
      text::format("\nReserved beyond what was live {}\n  {} of {}\n", place_of(trace, gap.event),
                   bytes_in_full(gap.reserved - gap.live), bytes_in_full(gap.reserved));
  std::vector<std::vector<std::string>> rows;
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < gap.parts.size(); ++i) {
    const auto& part = gap.parts[i];
    if (i >= shown.top) {
      rest += part.bytes;
      continue;
    }
    rows.push_back(
        {units::bytes(part.bytes), part.blocks == 0 ? std::string() : text::grouped(part.blocks),
         words_of(trace, part, part.cause >= Beyond::free_private ? 30 : 40, shown.all_frames)});
  }
  if (rest != 0) rows.push_back({units::bytes(rest), "", "other parts"});
  return rows.empty() ? out : out + format::columns("rrl", rows);
}

void write_members(format::JsonWriter& json, const trace::Trace& trace, const Gap& gap) {
  json.member("event", gap.event).member("reserved_bytes", gap.reserved);
  json.member("live_bytes", gap.live).objects("parts", gap.parts, [&](const Gap::Part& part) {
    json.member("cause", part.cause).member("bytes", part.bytes).member("device", part.device);
    json.member_or_null("site", index(part.site) != 0, site_name(trace, part.site, 200));
  });
}

}  // namespace emm::inspect
