#include "inspect/oom.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "inspect/memory_walk.hpp"
#include "inspect/oom_finder.hpp"
#include "trace/header.hpp"

namespace emm::inspect {
namespace {

using trace::Op;
using trace::Outcome;
using MemoryKind = trace::Lifetime::MemoryKind;

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;  // of device memory, on an H200

std::uint64_t pages(std::uint64_t size, std::uint64_t page) {
  const auto up = size % page == 0 ? 0 : page - size % page;
  return size > ~up ? size : size + up;
}

/// Returns what the device is asked for if no free block serves. PyTorch's allocator asks for 2 MiB
/// if the size is at most 1 MiB, and for 20 MiB if it is below 10 MiB.
std::uint64_t asked(const trace::Header& header, std::uint64_t size, std::uint64_t page) {
  const bool is_torch = header.framework == "torch" || header.framework.starts_with("torch ");
  constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
  if (is_torch && size <= kMebi) return pages(2 * kMebi, page);
  if (is_torch && size < 10 * kMebi) return pages(20 * kMebi, page);
  return pages(size, page);
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) { return a > ~b ? ~std::uint64_t{0} : a + b; }

const trace::DeviceInfo* info_of(const trace::Trace& trace, std::uint32_t device) {
  for (const auto& info : trace.header().devices) {
    if (info.id == device) return &info;
  }
  return nullptr;
}

void judge(Oom& oom) {
  const auto needed = sum(oom.live, oom.request);
  if (oom.device_free && *oom.device_free >= oom.request_pages) {
    oom.cause = Cause::limit;
    if (oom.reserved) oom.enough = sum(*oom.reserved, oom.request_pages);
    return;
  }
  if (oom.capacity && needed > *oom.capacity) {
    oom.cause = Cause::need;
    oom.enough = needed;
    return;
  }
  if (!oom.reserved) return;
  if (!oom.device_free && oom.capacity && sum(*oom.reserved, oom.request_pages) <= *oom.capacity) {
    const auto at_start = std::min(oom.free_at_start.value_or(*oom.capacity), *oom.capacity);
    const bool others = sum(*oom.reserved, oom.request_pages) > at_start;
    oom.cause = others ? Cause::others : Cause::limit;
    oom.excess = *oom.capacity - at_start;
    oom.enough = others ? sum(*oom.reserved, oom.request_pages) - at_start
                        : sum(*oom.reserved, oom.request_pages);
    return;
  }
  const auto room =
      oom.device_free ? std::optional(sum(*oom.reserved, *oom.device_free)) : oom.capacity;
  if (!room) return;
  if (needed > *room) {         // only if device_free is known
    if (!oom.capacity) return;  // a small device and a shared large one look the same
    oom.cause = Cause::others;
    oom.excess = *oom.capacity - std::min(*oom.capacity, *room);
    oom.enough = needed - std::min(needed, *room);
    return;
  }
  oom.cause = Cause::waste;
  oom.excess = *oom.reserved - std::min(*oom.reserved, oom.live);
  oom.enough = sum(*oom.reserved, oom.request_pages);
  // Others hold part of the device beside the manager.
  if (oom.capacity && oom.device_free)
    oom.enough = sum(*oom.capacity, oom.request_pages - *oom.device_free);
}

}  // namespace

std::string_view name(Cause cause) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"need", "waste", "limit", "others", "not_known"};
  return kNames[static_cast<std::size_t>(cause)];
}

void OomFinder::change(const Walk& walk, const LiveMemory& memory, bool begins) {
  const auto device = walk.device(memory);
  auto& account = accounts_[device];
  const auto step = [&](std::uint64_t& bytes, std::uint64_t by) {
    bytes = begins ? bytes + by : bytes - by;
  };
  if (memory.is_device()) {
    step(account.live, memory.size);
    step(account.live_count, 1);
    auto& peak = report_.devices[device];
    if (begins && walk.has_begun()) {
      peak.live = std::max(peak.live, account.live);
      peak.needed = std::max(peak.needed, account.live);
    }
  } else if (memory.what == MemoryKind::backing) {
    step(account.reserved, memory.size);
    step(account.segments, 1);
    account.any_backing = true;
    account.reserved_most = std::max(account.reserved_most, account.reserved);
  }
}

void OomFinder::recording_begins(const Walk&, std::uint32_t) {
  for (const auto& [device, account] : accounts_) {
    if (account.live != 0) report_.devices[device] = {.live = account.live, .needed = account.live};
  }
}

void OomFinder::passed(const Walk& walk, std::uint32_t event) {
  const auto& each = walk.event();
  const bool asks = asks_for_device_memory(each.op);
  if (each.has(trace::event_flag::backing) || (!asks && each.op != Op::get_memory_info)) return;
  const auto device = walk.trace().contexts()[index(each.context)].device;
  if (each.op == Op::get_memory_info && each.detail != 0)
    accounts_[device].told_total = walk.trace().detail(each).total;
  if (asks && each.recorded() == Outcome::oom) add(walk, event, device);
}

void OomFinder::add(const Walk& walk, std::uint32_t event, std::uint32_t device) {
  const auto& trace = walk.trace();
  const auto& each = walk.event();
  const auto& account = accounts_[device];
  Oom oom;
  oom.event = event;
  oom.line = each.line;
  oom.device = device;
  oom.time_ns = each.time_ns;
  oom.id = each.id;
  oom.site = each.site;
  oom.stream = each.stream;
  oom.thread = each.thread;
  oom.request = each.size;
  const auto* info = info_of(trace, device);
  oom.request_pages = asked(trace.header(), each.size,
                            info != nullptr && info->granularity != 0 ? info->granularity : kPage);
  oom.live = account.live;
  oom.live_count = account.live_count;
  oom.capacity = capacity_;
  if (!oom.capacity && info != nullptr && info->capacity != 0) oom.capacity = info->capacity;
  if (info != nullptr && info->free_at_start != 0) oom.free_at_start = info->free_at_start;
  if (!oom.capacity && account.told_total != 0) oom.capacity = account.told_total;
  oom.device_free = walk.device_free();
  // If the segments are smaller than what lives in them, the trace lacks some of them, so what was
  // held is unknown.
  if (account.any_backing && account.reserved >= account.live) {
    oom.reserved = account.reserved;
    oom.reserved_before = account.reserved_most;
    oom.segments = account.segments;
  }
  if (report_.all.size() < kSpacesMax) oom.space = walk.space(event, device);
  if (oom.space) oom.pending = oom.space->pending;
  judge(oom);
  auto& peak = report_.devices[device];
  peak.needed = std::max(peak.needed, sum(oom.live, oom.request));
  report_.all.push_back(std::move(oom));
}

OomReport find_ooms(const Recording& recording, const trace::Lifetimes& lifetimes,
                    std::optional<std::uint64_t> capacity) {
  OomFinder finder(capacity);
  MemoryWalk(lifetimes, &recording).pass({&finder});
  return finder.report();
}

}  // namespace emm::inspect
