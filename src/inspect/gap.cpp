#include "inspect/gap.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/columns.hpp"
#include "inspect/profile.hpp"

namespace emm::inspect {
namespace {

using What = Lifetime::What;

constexpr std::int64_t signed_of(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

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

GapWalk::GapWalk(const Recording& recording, const Lifetimes& lifetimes, const KnownBlocks& known)
    : recording_(recording), lifetimes_(lifetimes), known_(known) {
  for (std::uint32_t i = 0; i < lifetimes.all().size(); ++i) {
    const auto& each = lifetimes[static_cast<AllocId>(i)];
    if (each.what == What::device && each.death != kNever && each.gone != each.death &&
        each.gone != kNever) {
      later_.emplace_back(each.gone, static_cast<AllocId>(i));
    }
  }
  std::sort(later_.begin(), later_.end());
}

KnownBlocks::Block GapWalk::block(AllocId id) const {
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

void GapWalk::add_inside(AllocId id, std::int64_t sign) {
  const auto held = block(id);
  of(Beyond::rounding) += sign * signed_of(held.rounded - lifetimes_[id].size);
  of(Beyond::unsplit_remainder) += sign * signed_of(held.bytes - held.rounded);
}

void GapWalk::begin(AllocId id) {
  const auto& memory = lifetimes_[id];
  if (memory.what == What::backing) {
    of(store(id)) += signed_of(memory.size);
  } else if (memory.what == What::device) {
    of(store(id)) -= signed_of(block(id).bytes);
    add_inside(id, 1);
  }
}

void GapWalk::end(AllocId id) {
  const auto& memory = lifetimes_[id];
  if (memory.what == What::backing) {
    of(store(id)) -= signed_of(memory.size);
  } else if (memory.what == What::device) {
    add_inside(id, -1);
    of(Beyond::waiting) += signed_of(block(id).bytes);
    if (memory.gone == memory.death) give_back(id);
  }
}

void GapWalk::give_back(AllocId id) {
  const auto bytes = signed_of(block(id).bytes);
  of(Beyond::waiting) -= bytes;
  of(store(id)) += bytes;
}

std::optional<Gap> gap_after(const Recording& recording, const Lifetimes& lifetimes,
                             const KnownBlocks& known, std::uint32_t event) {
  const auto& all = lifetimes.all();
  const bool held = std::any_of(all.begin(), all.end(),
                                [](const auto& each) { return each.what == What::backing; });
  if (!held) return std::nullopt;
  GapWalk walk(recording, lifetimes, known);
  BeyondBytes sums{};
  const auto is_negative = [&] {
    return std::any_of(sums.begin(), sums.end(), [](auto bytes) { return bytes < 0; });
  };
  const auto asked = event;
  walk.walk([&](std::uint32_t at, const BeyondBytes& bytes) {
    // What stays of a segment that ended in part has no row of its own: it comes with that end.
    const bool goes_on = at > asked && at == event + 1 && is_negative() && !recording.has_row(at);
    if (at != asked && !goes_on) return;
    event = at;
    sums = bytes;
  });
  if (is_negative()) return std::nullopt;
  Gap gap;
  gap.event = event;
  std::array<std::uint64_t, kBeyondCauses> blocks{};
  std::map<std::pair<Beyond, std::uint32_t>, Gap::Part> by_site;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<AllocId>(i);
    const auto& memory = all[i];
    if (memory.birth > event || memory.gone <= event) continue;
    if (memory.what == What::backing) gap.reserved += memory.size;
    if (memory.what != What::device) continue;
    const auto held_block = walk.block(id);
    if (memory.death <= event) {
      ++blocks[static_cast<std::size_t>(Beyond::waiting)];
      continue;
    }
    gap.live += memory.size;
    const auto add = [&](Beyond cause, std::uint64_t bytes) {
      if (bytes == 0) return;
      auto& part = by_site[{cause, static_cast<std::uint32_t>(index(memory.site))}];
      part.cause = cause;
      part.bytes += bytes;
      part.site = memory.site;
      ++part.blocks;
    };
    add(Beyond::rounding, held_block.rounded - memory.size);
    add(Beyond::unsplit_remainder, held_block.bytes - held_block.rounded);
  }
  for (const auto& [key, part] : by_site) gap.parts.push_back(part);
  for (std::size_t i = static_cast<std::size_t>(Beyond::waiting); i < kBeyondCauses; ++i) {
    if (sums[i] != 0)
      gap.parts.push_back({.cause = static_cast<Beyond>(i),
                           .bytes = static_cast<std::uint64_t>(sums[i]),
                           .blocks = blocks[i],
                           .site = {}});
  }
  std::stable_sort(gap.parts.begin(), gap.parts.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return gap;
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
    auto words = std::string(name(part.cause));
    if (index(part.site) != 0) words += ": " + site_name(trace, part.site, 40, shown.all_frames);
    rows.push_back({units::bytes(part.bytes),
                    part.blocks == 0 ? std::string() : text::grouped(part.blocks), words});
  }
  if (rest != 0) rows.push_back({units::bytes(rest), "", "other parts"});
  return rows.empty() ? out : out + columns("rrl", rows);
}

void to_json(format::JsonWriter& json, const trace::Trace& trace, const Gap& gap) {
  json.begin_object().member("event", gap.event).member("reserved_bytes", gap.reserved);
  json.member("live_bytes", gap.live).key("parts").begin_array();
  for (const auto& part : gap.parts) {
    json.begin_object().member("cause", name(part.cause)).member("bytes", part.bytes);
    json.key("site");
    if (index(part.site) != 0) {
      json.value(site_name(trace, part.site, 200));
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace emm::inspect
