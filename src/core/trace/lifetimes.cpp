#include "trace/lifetimes.hpp"

#include <algorithm>
#include <map>

#include "base/byte_sum.hpp"

namespace emm::trace {
Lifetime::MemoryKind what_of(const Event& event) noexcept {
  if (!worked(event)) return Lifetime::MemoryKind::nothing;
  if (event.has(event_flag::backing)) return Lifetime::MemoryKind::backing;
  switch (event.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
      return Lifetime::MemoryKind::device;
    case Op::memhostalloc:
    case Op::mempin:
      return Lifetime::MemoryKind::host;
    default:
      return Lifetime::MemoryKind::import;
  }
}

bool is_refused(const Event& event) noexcept {
  const bool asks = asks_for_device_memory(event.op);
  const bool may_work = event.expected() == Outcome::none || event.expected() == Outcome::ok;
  return asks && event.recorded() == Outcome::oom && may_work && !event.has(event_flag::backing);
}

std::uint64_t Lifetimes::peak_of(Lifetime::MemoryKind what) const {
  std::uint64_t held = 0, most = 0;
  const auto size_of = [&](AllocId id) {
    const auto& each = lifetimes_[index(id)];
    return each.what == what ? each.size : 0;
  };
  walk_moments([&](std::uint32_t, AllocId id) { held += size_of(id); },
               [&](std::uint32_t, AllocId id) { held -= size_of(id); },
               [&](std::uint32_t) { most = std::max(most, held); });
  return most;
}

Status Lifetimes::can_be_summed() const {
  ByteSum sum;
  for (std::uint32_t event = 0; event < trace_.size(); ++event) {
    const auto& each = trace_[event];
    if (each.op == Op::flush) {
      sum.add(trace_.detail(each).bytes);
    } else if (gives_memory_an_id(each.op)) {
      const auto& made = lifetimes_[index(each.id)];
      sum.add(made.birth == kNever ? 0 : made.size);
    }
    if (sum.exceeds()) {
      return fail(Errc::parse_error,
                  "{}:{}: 2^64 bytes or more were asked for up to here: expected sizes that a "
                  "device could have",
                  trace_.source(), each.line);
    }
  }
  return {};
}

bool Lifetimes::makes_or_ends(Op op) noexcept {
  return gives_memory_an_id(op) || op == Op::free || op == Op::close_ipc_handle;
}

Lifetimes::Lifetimes(const Trace& trace) : trace_(trace), lifetimes_(trace.alloc_count()) {
  // What is live in each context of each process is tracked only if some event ends all of it.
  bool any_reset = false;
  for (std::size_t i = 0; i < trace.size() && !any_reset; ++i) {
    any_reset = trace[i].op == Op::reset || trace[i].op == Op::context_destroy;
  }
  std::map<std::pair<ContextId, std::uint32_t>, std::vector<AllocId>> born_there;
  const auto first_moment = static_cast<std::uint32_t>(trace.first_moment());
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    const bool backing = event.has(event_flag::backing);
    if (event.op == Op::free || event.op == Op::close_ipc_handle) {
      auto& lifetime = lifetimes_[index(event.id)];
      if (backing && lifetime.what != Lifetime::MemoryKind::backing) {
        lifetime.gone = worked(event) ? i : kNever;
      } else if (lifetime.death == kNever && lifetime.what != Lifetime::MemoryKind::nothing) {
        lifetime.death = lifetime.gone = i;
      }
    } else if (gives_memory_an_id(event.op)) {
      auto& lifetime = lifetimes_[index(event.id)];
      lifetime = {.size = event.size,
                  .birth = i,
                  .site = event.site,
                  .thread = event.thread,
                  .stream = event.stream,
                  .context = event.context,
                  .what = what_of(event),
                  .preexisting = event.has(event_flag::preexisting)};
      if (lifetime.what == Lifetime::MemoryKind::nothing) lifetime.birth = kNever;
      // The recording may name old memory only when the program frees it.
      if (lifetime.preexisting && lifetime.birth != kNever && lifetime.birth > first_moment) {
        lifetime.birth = first_moment;
        named_late_.push_back(event.id);
      }
      if (any_reset && lifetime.what != Lifetime::MemoryKind::nothing && !backing) {
        born_there[{event.context, trace.detail(event).process}].push_back(event.id);
      }
    } else if ((event.op == Op::reset || event.op == Op::context_destroy) && !backing &&
               worked(event)) {
      auto& born = born_there[{event.context, trace.detail(event).process}];
      for (const auto id : born) {
        auto& lifetime = lifetimes_[index(id)];
        if (lifetime.death != kNever) continue;
        lifetime.death = lifetime.gone = i;
        by_reset_.emplace_back(i, id);
      }
      born.clear();
    }
  }
}

}  // namespace emm::trace
