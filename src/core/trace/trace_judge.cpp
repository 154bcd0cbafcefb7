#include <algorithm>
#include <utility>
#include <vector>

#include "trace/trace_building.hpp"

namespace emm::trace {

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

/// What each allocation and each place has come to, up to the event that is looked at. A place is a
/// context in a process.
///
/// The rules of each event are inlined into judge(). As calls they cost 1.7 % of the instructions
/// of a whole replay.
class Trace::Judge {
 public:
  explicit Judge(Trace& trace)
      : trace_(trace),
        allocations_(trace.ids_.size()),
        resets_(trace.contexts_.size() * trace.processes_.size()),
        live_there_(resets_.size()),
        deferred_(trace.contexts_.size()),
        exported_(trace.building_->handles.size() + 1) {}

  /// Judges event `i`, and gives it what it takes over from earlier ones: the context of its
  /// memory, and whether its free comes after a reset.
  [[gnu::always_inline]] Status take(std::size_t i) {
    auto& event = trace_.at(i);
    if (names_earlier_memory(event.op) && event.has(event_flag::follows)) {
      event.context = context_of_memory(event);
      event.flags ^= event_flag::follows;
    }
    if (event.op == Op::get_ipc_handle) exported_[detail(event).handle] = event.context;
    switch (event.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
      case Op::mempin:
      case Op::open_ipc_handle:
        return begin(event, i);
      case Op::free:
      case Op::close_ipc_handle:
        return end(event);
      case Op::get_ipc_handle:
      case Op::record_stream:
      case Op::mem_map:
      case Op::mem_unmap:
        return use(event, event.id);
      case Op::use:
        for (const auto id : detail(event).uses) {
          if (auto good = use(event, id); !good) return good;
        }
        return {};
      case Op::reset:
      case Op::context_destroy:
        reset(event, i);
        return {};
      case Op::defer_cleanup:
        deferred_[index(event.context)] += worked(event) ? 1 : 0;
        return {};
      case Op::end_defer_cleanup:
        if (!worked(event)) return {};
        if (deferred_[index(event.context)] == 0)
          return trace_.fault(event.line, trace_.not_deferred_error(event));
        --deferred_[index(event.context)];
        return {};
      case Op::flush:
        return trace_.add_up(event, detail(event).bytes, asked_);
      default:
        return {};
    }
  }

 private:
  // The state of an allocation: its event, counted from 1 (0: there was none), and what became of
  // it.
  static constexpr std::uint32_t kEnded = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kFailed = std::uint32_t{1} << 30;  ///< It never counted as live.
  static constexpr std::uint32_t kMaker = kFailed - 1;              ///< The bits of the event.

  const Detail& detail(const Event& event) const { return trace_.detail(event); }
  const Event& maker(std::uint32_t allocation) const {
    return std::as_const(trace_)[(allocation & kMaker) - 1];
  }
  std::size_t place_of(const Event& event) const {
    return index(event.context) * trace_.processes_.size() + detail(event).process;
  }
  bool is_ended_by_reset(std::uint32_t allocation) const {
    return any_reset_ && resets_[place_of(maker(allocation))] > (allocation & kMaker);
  }
  Status unmade(const Event& event, AllocId id) const {
    const auto name = trace_.name(id);
    return trace_.fault(event.line, trace_.unmade_id_error(event, name), name);
  }
  Status ended(const Event& event, AllocId id) const {
    const auto name = trace_.name(id);
    return trace_.fault(event.line, trace_.ended_id_error(event, name), name);
  }

  /// The context of an operation that names none: that of the memory it names.
  ContextId context_of_memory(const Event& event) const {
    const auto& said = detail(event);
    if (event.op == Op::open_ipc_handle) return exported_[said.handle];
    if (event.op == Op::use && said.uses.empty()) return {};
    const auto of = event.op == Op::use ? said.uses.front() : event.id;
    const auto allocation = allocations_[index(of)];
    return (allocation & kMaker) == 0 ? ContextId{} : maker(allocation).context;
  }

  /// An id begins once.
  [[gnu::always_inline]] Status begin(const Event& event, std::size_t i) {
    auto& allocation = allocations_[index(event.id)];
    if (allocation != 0) {
      const auto name = trace_.name(event.id);
      return trace_.fault(event.line, trace_.duplicate_id_error(event, name), name);
    }
    const bool counts = !event.has(event_flag::backing) && worked(event);
    allocation = static_cast<std::uint32_t>(i + 1) | (counts ? 0 : kFailed);
    if (counts) {
      ++live_there_[place_of(event)];
      trace_.peak_live_ = std::max(trace_.peak_live_, ++live_);
    }
    return worked(event) ? trace_.add_up(event, event.size, asked_) : Status();
  }

  /// An id ends once, after it began; a reset may have ended it before.
  [[gnu::always_inline]] Status end(Event& event) {
    auto& allocation = allocations_[index(event.id)];
    if (allocation == 0) return unmade(event, event.id);
    const auto& made = maker(allocation);
    // The recorded manager reused a request's memory here, which the request's own free ended.
    if (event.has(event_flag::backing) && !made.has(event_flag::backing)) return {};
    if ((allocation & kEnded) != 0) return ended(event, event.id);
    if (event.op == Op::close_ipc_handle && made.op != Op::open_ipc_handle) {
      return trace_.fault(event.line,
                          trace_.not_opened_error(event, trace_.name(event.id), made.op));
    }
    if (is_ended_by_reset(allocation)) {
      event.flags |= event_flag::late;
    } else if ((allocation & kFailed) == 0) {
      --live_there_[place_of(made)];
      --live_;
    }
    allocation |= kEnded;
    return {};
  }

  /// What is used began before; where the use worked, it has not ended either.
  Status use(const Event& event, AllocId id) const {
    const auto allocation = allocations_[index(id)];
    if (allocation == 0) return unmade(event, id);
    if (!worked(event)) return {};
    if ((allocation & kEnded) != 0 || is_ended_by_reset(allocation)) return ended(event, id);
    return {};
  }

  void reset(const Event& event, std::size_t i) {
    if (event.has(event_flag::backing) || !worked(event)) return;
    any_reset_ = true;
    const auto there = place_of(event);
    resets_[there] = static_cast<std::uint32_t>(i + 1);
    live_ -= live_there_[there];
    live_there_[there] = 0;
  }

  Trace& trace_;
  std::vector<std::uint32_t> allocations_;  // by id
  std::vector<std::uint32_t> resets_;       // by place: event + 1 of the last reset there
  std::vector<std::uint64_t> live_there_;   // by place: how many allocations are live
  std::vector<std::uint64_t> deferred_;     // by context: guards of defer_cleanup that are open
  std::vector<ContextId> exported_;         // by handle: where its memory is
  std::uint64_t live_ = 0;
  std::uint64_t asked_ = 0;  // bytes, as add_up() counts them
  bool any_reset_ = false;   // most traces have none, and need not look for one
};

/// Checks, in the order of events, the rules that an engine relies on.
Status Trace::judge() {
  Judge judge(*this);
  for (std::size_t i = 0; i < size(); ++i) {
    if (auto good = judge.take(i); !good) return good;
  }
  return {};
}

}  // namespace emm::trace
