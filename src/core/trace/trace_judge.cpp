#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "trace/trace_building.hpp"

namespace emm::trace {
namespace {

// The state of an allocation: its event, counted from 1, and what became of it.
constexpr std::uint32_t kEnded = std::uint32_t{1} << 31;
constexpr std::uint32_t kFailed = std::uint32_t{1} << 30;
constexpr std::uint32_t kMaker = kFailed - 1;

}  // namespace

/// Keeps the sum of all that was asked for within 64 bits, so that no later sum of a part of it can
/// overflow. After a fault the sum begins anew, so that one excess is one fault.
Status Trace::add_up(const Event& event, std::uint64_t bytes, std::uint64_t& asked) const {
  if (!__builtin_add_overflow(asked, bytes, &asked)) return {};
  asked = 0;
  return fault(event.line, fail(Errc::parse_error,
                                "{}:{}: 2^64 bytes or more were asked for up to here: expected "
                                "sizes that a device could have",
                                source_, event.line));
}

/// Checks, in the order of events, the rules that an engine relies on.
Status Trace::judge() {
  std::vector<std::uint32_t> allocations(ids_.size());
  const auto places = contexts_.size() * processes_.size();
  std::vector<std::uint32_t> resets(places);  // event + 1 of the last reset there
  std::vector<std::uint64_t> live_there(places);
  std::vector<std::uint64_t> deferred(contexts_.size());
  std::uint64_t live = 0, asked = 0;
  const auto place_of = [&](const Event& event) {
    return index(event.context) * processes_.size() + detail(event).process;
  };
  const auto unmade = [&](const Event& event, AllocId id) {
    return fault(event.line, unmade_id_error(event, name(id)), name(id));
  };
  const auto ended = [&](const Event& event, AllocId id) {
    return fault(event.line, ended_id_error(event, name(id)), name(id));
  };
  const auto ended_by_reset = [&](std::uint32_t maker) {
    const auto& made = (*this)[(maker & kMaker) - 1];
    return resets[place_of(made)] > (maker & kMaker);
  };
  std::vector<ContextId> exported(building_->handles.size() + 1);  // by handle
  /// The context of an operation that names none: that of the memory it names.
  const auto context_of_memory = [&](const Event& event) {
    const auto& said = detail(event);
    if (event.op == Op::open_ipc_handle) return exported[said.handle];
    const auto of = event.op == Op::use && !said.uses.empty() ? said.uses.front() : event.id;
    const auto maker =
        event.op == Op::use && said.uses.empty() ? 0 : allocations[index(of)] & kMaker;
    return maker == 0 ? ContextId{} : (*this)[maker - 1].context;
  };
  bool any_reset = false;

  const auto use = [&](const Event& event, AllocId id) -> Status {
    const auto maker = allocations[index(id)];
    if (maker == 0) return unmade(event, id);
    if (!worked(event)) return {};
    if ((maker & kEnded) != 0 || (any_reset && ended_by_reset(maker))) return ended(event, id);
    return {};
  };

  for (std::size_t i = 0; i < size(); ++i) {
    auto& event = at(i);
    if (names_earlier_memory(event.op) && event.has(event_flag::follows)) {
      event.context = context_of_memory(event);
      event.flags ^= event_flag::follows;
    }
    if (event.op == Op::get_ipc_handle) exported[detail(event).handle] = event.context;
    const bool backing = event.has(event_flag::backing);
    Status good;
    switch (event.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
      case Op::mempin:
      case Op::open_ipc_handle: {
        auto& allocation = allocations[index(event.id)];
        if (allocation != 0) {
          good = fault(event.line, duplicate_id_error(event, name(event.id)), name(event.id));
          break;
        }
        const bool counts = !backing && worked(event);
        allocation = static_cast<std::uint32_t>(i + 1) | (counts ? 0 : kFailed);
        if (counts) {
          ++live_there[place_of(event)];
          peak_live_ = std::max(peak_live_, ++live);
        }
        if (worked(event)) good = add_up(event, event.size, asked);
        break;
      }
      case Op::free:
      case Op::close_ipc_handle: {
        auto& allocation = allocations[index(event.id)];
        if (allocation == 0) {
          good = unmade(event, event.id);
          break;
        }
        // The recorded manager reused a request's memory here, which the request's own free ended.
        if (backing && !(*this)[(allocation & kMaker) - 1].has(event_flag::backing)) break;
        if ((allocation & kEnded) != 0) {
          good = ended(event, event.id);
          break;
        }
        const auto& made = (*this)[(allocation & kMaker) - 1];
        if (event.op == Op::close_ipc_handle && made.op != Op::open_ipc_handle) {
          good = fault(event.line, not_opened_error(event, name(event.id), made.op));
          break;
        }
        if (any_reset && ended_by_reset(allocation)) {
          event.flags |= event_flag::late;
        } else if ((allocation & kFailed) == 0) {
          --live_there[place_of(made)];
          --live;
        }
        allocation |= kEnded;
        break;
      }
      case Op::get_ipc_handle:
      case Op::record_stream:
      case Op::mem_map:
      case Op::mem_unmap:
        good = use(event, event.id);
        break;
      case Op::use:
        for (const auto id : detail(event).uses) {
          if (good) good = use(event, id);
        }
        break;
      case Op::reset:
      case Op::context_destroy: {
        if (backing || !worked(event)) break;
        any_reset = true;
        const auto there = place_of(event);
        resets[there] = static_cast<std::uint32_t>(i + 1);
        live -= live_there[there];
        live_there[there] = 0;
        break;
      }
      case Op::defer_cleanup:
        deferred[index(event.context)] += worked(event) ? 1 : 0;
        break;
      case Op::end_defer_cleanup:
        if (!worked(event)) break;
        if (deferred[index(event.context)] == 0) {
          good = fault(event.line, not_deferred_error(event));
          break;
        }
        --deferred[index(event.context)];
        break;
      case Op::flush:
        good = add_up(event, detail(event).bytes, asked);
        break;
      default:
        break;
    }
    if (!good) return good;
  }
  return {};
}

}  // namespace emm::trace
