#include "trace/trace_window.hpp"

#include <algorithm>
#include <utility>

#include "base/text_format.hpp"
#include "trace/operation.hpp"
#include "trace/trace_building.hpp"

namespace emm::trace {
namespace {

// Contexts of one process, as places count them: as many as a ContextId can name.
constexpr std::size_t kContexts = 256;

std::size_t place_of(ContextId context, std::uint32_t process) noexcept {
  return index(context) + kContexts * process;
}

template <class T>
T& at_least(std::vector<T>& row, std::size_t index) {
  if (row.size() <= index) row.resize(index + 1);
  return row[index];
}

}  // namespace

std::size_t Trace::Window::Slot::place() const noexcept { return place_of(context, process); }

void Trace::Window::begin_again() {
  if (!second_pass) first_slots = slots.size();
  second_pass = true;
  slots.resize(slots_most());
  if (!texts.empty()) texts.resize(slots.size());
  count = 0;
  ids.clear();
  slots_used = 1;
  ended.clear();
  for (auto* numbers : {&resets, &live_there, &deferred}) numbers->clear();
  exported.clear();
  passing.clear();
  passing_next = 0;
  only_context.reset();
  all_alike = true;
  live = asked = 0;
  any_reset = false;
  start.reset();
  last_time = 0;
}

std::uint32_t Trace::Window::look_up(const Id& id, Found& how) const {
  const auto slot = ids.find(id);
  if (slot != LiveIds::kNone) {
    how = Found::live;
    return slot;
  }
  how = ids.was_used(id) ? Found::over : Found::unmade;
  return 0;
}

std::uint32_t Trace::Window::make(const Id& id) {
  if (ids.was_used(id)) {
    found = Found::again;
    return 0;
  }
  found = Found::live;
  const auto slot = take_slot();
  auto& made = slots[slot];
  made.number = id.number;
  made.is_text = !id.is_number();
  if (made.is_text) {
    if (texts.size() <= slot) texts.resize(slots.size());
    texts[slot] = id.text;
  }
  ids.add(id, slot);
  return slot;
}

std::uint32_t Trace::Window::pass(Detail&& detail) {
  if (passing.empty()) passing.resize(second_pass ? events + 2 : 2);
  passing_next = (passing_next + 1) % static_cast<std::uint32_t>(passing.size());
  passing[passing_next] = std::move(detail);
  return kPassing + passing_next;
}

void Trace::Window::end(const Id& id, std::uint32_t slot) {
  ids.remove(id);
  note_ended(slot);
}

void Trace::keep_window(std::size_t events) { window_ = std::make_unique<Window>(events); }

bool Trace::needs_memory() const noexcept { return window_ != nullptr && window_->needs_memory; }

std::size_t Trace::window_events() const noexcept { return window_->events; }

void Trace::begin_again() {
  window_->begin_again();
  in_beginning_ = true;
  auto& made = *building_;
  made.any_seq = false;
  made.last_seq.reset();
  events_.keep_blocks(total_ + 2 * window_->events);
}

void Trace::release_before(std::size_t index) { events_.release_before(index); }

std::optional<Trace::Made> Trace::made(AllocId id) const {
  if (window_ == nullptr) return std::nullopt;
  const auto& slot = window_->slots[index(id)];
  return Made{.event = slot.made_at, .line = slot.line, .site = slot.site};
}

const Event& Trace::last_event() const noexcept { return window_->last; }

Trace::Place Trace::place(std::size_t index) const noexcept {
  if (window_ != nullptr) {
    const auto known = window_->places.find(index);
    return known == window_->places.end() ? Place{} : known->second;
  }
  return {.line = events_[index].line, .time_ns = events_[index].time_ns};
}

void Trace::note_place(std::size_t index, const Place& place) { window_->places[index] = place; }

const Detail& Trace::passing_detail(std::uint32_t detail) const noexcept {
  return window_->passing[detail - kPassing];
}

bool Trace::became_another() const noexcept { return window_->is_full || events_.size() > total_; }

bool Trace::in_window(std::size_t index) const noexcept {
  return window_->second_pass && index < total_;  // nobody asks for released events
}

AllocId Trace::place_id(const Operation& operation) {
  auto& window = *window_;
  return static_cast<AllocId>(gives_memory_an_id(operation.op)
                                  ? window.make(operation.id)
                                  : window.look_up(operation.id, window.found));
}

AllocId Trace::place_use(const Id& id) {
  return static_cast<AllocId>(window_->look_up(id, window_->uses_found.emplace_back()));
}

Status Trace::require_whole_trace(const Operation& operation, std::string_view why) {
  window_->needs_memory = true;
  // The caller reads the whole trace instead and drops this message.
  return Error{.code = Errc::not_supported,
               .message = text::format("{}:{}: {}", source_, operation.line, why)};
}

std::string Trace::slot_name(std::uint32_t number) const {
  const auto& slot = window_->slots[number];
  return slot.is_text ? window_->texts[number] : text::format("{}", slot.number);
}

/// Checks that the file is in the order of its seq and has nothing that a window cannot serve.
Status Trace::look_at_stream(const Operation& operation, const Event& event) {
  auto& made = *building_;
  auto& window = *window_;
  if (!made.sorted)
    return require_whole_trace(operation, "its operations are not in the order of their seq");
  if (window.events == 0) return {};  // the replay never looks back
  if (made.seqs_kept) return require_whole_trace(operation, "its seq does not count up by one");
  if (processes_.size() > 1) return require_whole_trace(operation, "it has several processes");
  if (event.op == Op::flush) return require_whole_trace(operation, "it has flushes");
  if (const auto record = detail(event).record; record != 0 && !window.second_pass)
    at_least(window.last_mentions, record) = window.count;
  // A replay checks the order of streams for these operations too.
  if (event.has(event_flag::backing)) return {};
  const bool says_stream = event.op == Op::memalloc || event.op == Op::use ||
                           event.op == Op::record_stream ||
                           (event.op == Op::free && index(event.stream) != 0);
  if (!says_stream) return {};
  if (window.only_stream.value_or(event.stream) != event.stream) window.several_streams = true;
  window.only_stream = event.stream;
  return {};
}

std::uint64_t Trace::last_mention(std::uint32_t record) const noexcept {
  return window_->last_mentions[record];
}

bool Trace::has_several_streams() const noexcept {
  return window_ != nullptr && window_->several_streams;
}

Error Trace::duplicate_id_error(const Event& event, std::string_view name) const {
  return fail(Errc::parse_error,
              "{}:{}: id {} for the second time: expected one for each allocation", source_,
              event.line, name);
}
Error Trace::unmade_id_error(const Event& event, std::string_view name) const {
  return fail(Errc::parse_error,
              "{}:{}: {} of id {}, which nothing made: expected a memalloc before", source_,
              event.line, trace::name(event.op), name);
}
Error Trace::ended_id_error(const Event& event, std::string_view name) const {
  return fail(Errc::parse_error, "{}:{}: {} of id {}, which ended before: expected it to be live",
              source_, event.line, trace::name(event.op), name);
}
Error Trace::not_opened_error(const Event& event, std::string_view name, Op made_by) const {
  return fail(Errc::parse_error,
              "{}:{}: close_ipc_handle of id {}, which {} made: expected open_ipc_handle", source_,
              event.line, name, trace::name(made_by));
}
Error Trace::not_deferred_error(const Event& event) const {
  return fail(Errc::parse_error,
              "{}:{}: end_defer_cleanup: expected a defer_cleanup before it in {}", source_,
              event.line,
              contexts_[index(event.context)].name.empty()
                  ? std::string("its context")
                  : text::format("context {}", contexts_[index(event.context)].name));
}

/// The fast form of place() and judge_next(), which serves most of a long trace: the event is like
/// an earlier one and nothing is wrong with it. If it returns false it has changed nothing.
inline bool Trace::take_plain(const Operation& operation, Event& event) {
  auto& window = *window_;
  const auto place = index(event.context);
  if (event.op == Op::memalloc) {
    if (event.has(event_flag::backing) || event.outcomes != 0 || place >= window.live_there.size())
      return false;
    const auto asked = window.asked + event.size;
    if (asked < window.asked) return false;
    const auto slot_number = window.take_slot();
    if (!window.ids.add_next(operation.id.number, slot_number)) {
      window.release_last_slot(slot_number);
      return false;
    }
    auto& slot = window.slots[slot_number];
    slot = {.number = operation.id.number,
            .made_at = ++window.count,
            .line = event.line,
            .site = event.site,
            .process = 0,
            .context = event.context,
            .op = event.op};
    window.note_made(event.context, true);
    window.asked = asked;
    ++window.live_there[place];
    peak_live_ = std::max(peak_live_, ++window.live);
    event.id = static_cast<AllocId>(slot_number);
  } else {
    if (event.has(event_flag::backing) || window.any_reset) return false;
    const auto slot_number = window.ids.take(operation.id.number);
    if (slot_number == LiveIds::kNone) return false;
    if (window.all_alike) {
      if (event.has(event_flag::follows)) {
        event.context = *window.only_context;
        event.flags ^= event_flag::follows;
      }
      --window.live_there[index(*window.only_context)];
      --window.live;
    } else {
      const auto& slot = window.slots[slot_number];
      if (event.has(event_flag::follows)) {
        event.context = slot.context;
        event.flags ^= event_flag::follows;
      }
      if (!slot.failed) {
        --window.live_there[slot.place()];
        --window.live;
      }
    }
    ++window.count;
    window.note_ended(slot_number);
    event.id = static_cast<AllocId>(slot_number);
  }
  if (operation.has(Member::time_ns)) {
    if (!window.start) window.start = operation.time_ns;
    window.last_time = operation.time_ns < *window.start ? 0 : operation.time_ns - *window.start;
  }
  event.time_ns = window.last_time;
  return true;
}

/// The fast form of on_operation(): the operation is like an earlier one and nothing is wrong with
/// it. If it returns false it has changed nothing.
bool Trace::take_quickly(const Operation& operation) {
  const auto& plain = building_->plain[static_cast<std::size_t>(operation.op)];
  if (!plain.known || plain.members != operation.members || !operation.id.is_number()) return false;
  auto& made = *building_;
  if (made.any_seq &&
      (!operation.has(Member::seq) || !made.last_seq || operation.seq != *made.last_seq + 1))
    return false;
  if (!made.any_seq && operation.has(Member::seq)) return false;
  auto event = plain.event;
  event.line = operation.line;
  if (operation.has(Member::size)) event.size = operation.size;
  if (!take_plain(operation, event)) return false;
  if (made.any_seq) made.last_seq = operation.seq;
  if (window_->second_pass) {
    events_.push(event);
    events_.expect_more();
  } else {
    window_->last = event;
  }
  return true;
}

/// Judges one event of a window, by the rules by which Judge judges a whole trace.
class Trace::WindowJudge {
 public:
  WindowJudge(Trace& trace, const Operation& operation, Event& event) noexcept
      : trace_(trace), window_(*trace.window_), operation_(operation), event_(event) {}

  Status take() {
    ++window_.count;
    event_.time_ns = relative_time();
    if (names_earlier_memory(event_.op) && event_.has(event_flag::follows)) {
      event_.context = context_of_memory();
      event_.flags ^= event_flag::follows;
    }
    switch (event_.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
      case Op::mempin:
      case Op::open_ipc_handle:
        return begin();
      case Op::free:
      case Op::close_ipc_handle:
        return end();
      case Op::get_ipc_handle:
        at_least(window_.exported, detail().handle) = event_.context;
        return use(window_.found, slot_number(), operation_.id);
      case Op::record_stream:
      case Op::mem_map:
      case Op::mem_unmap:
        return use(window_.found, slot_number(), operation_.id);
      case Op::use:
        for (std::size_t i = 0; i < operation_.ids.size(); ++i) {
          const auto slot = static_cast<std::uint32_t>(detail().uses[i]);
          if (auto good = use(window_.uses_found[i], slot, operation_.ids[i]); !good) return good;
        }
        return {};
      case Op::reset:
      case Op::context_destroy:
        reset();
        return {};
      case Op::defer_cleanup:
        at_least(window_.deferred, index(event_.context)) += worked(event_) ? 1 : 0;
        return {};
      case Op::end_defer_cleanup: {
        if (!worked(event_)) return {};
        auto& deferred = at_least(window_.deferred, index(event_.context));
        if (deferred == 0) return trace_.fault(event_.line, trace_.not_deferred_error(event_));
        --deferred;
        return {};
      }
      default:
        return {};
    }
  }

 private:
  using Found = Window::Found;
  using Slot = Window::Slot;

  const Detail& detail() const { return trace_.detail(event_); }
  /// In a window an AllocId is the number of a slot.
  std::uint32_t slot_number() const noexcept { return static_cast<std::uint32_t>(event_.id); }
  std::size_t place() const { return place_of(event_.context, detail().process); }
  static std::string name_of(const Id& id) {
    return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
  }
  bool is_ended_by_reset(const Slot& slot) {
    return window_.any_reset && at_least(window_.resets, slot.place()) > slot.made_at;
  }
  Status unmade(const Id& id) const {
    const auto name = name_of(id);
    return trace_.fault(event_.line, trace_.unmade_id_error(event_, name), name);
  }
  Status ended(const Id& id) const {
    const auto name = name_of(id);
    return trace_.fault(event_.line, trace_.ended_id_error(event_, name), name);
  }

  /// As make_times_relative(): ns since the first time; an event without one has the last one's.
  std::uint64_t relative_time() {
    if (operation_.has(Member::time_ns)) {
      if (!window_.start) window_.start = operation_.time_ns;
      window_.last_time =
          operation_.time_ns < *window_.start ? 0 : operation_.time_ns - *window_.start;
    }
    return window_.last_time;
  }

  ContextId context_of_memory() {
    const auto& said = detail();
    if (event_.op == Op::open_ipc_handle) return at_least(window_.exported, said.handle);
    if (event_.op != Op::use) return window_.slots[slot_number()].context;
    return window_.slots[said.uses.empty() ? 0 : static_cast<std::uint32_t>(said.uses[0])].context;
  }

  Status begin() {
    if (window_.found == Found::again) {
      const auto name = name_of(operation_.id);
      return trace_.fault(event_.line, trace_.duplicate_id_error(event_, name), name);
    }
    const bool backing = event_.has(event_flag::backing);
    const bool counts = !backing && worked(event_);
    auto& slot = window_.slots[slot_number()];
    slot.made_at = window_.count;
    slot.line = event_.line;
    slot.site = event_.site;
    slot.process = detail().process;
    slot.context = event_.context;
    slot.op = event_.op;
    slot.backing = backing;
    slot.failed = !counts;
    window_.note_made(event_.context, counts && slot.process == 0);
    if (counts) {
      ++at_least(window_.live_there, slot.place());
      trace_.peak_live_ = std::max(trace_.peak_live_, ++window_.live);
    }
    if (worked(event_)) return trace_.add_up(event_, event_.size, window_.asked);
    return {};
  }

  Status end() {
    if (window_.found == Found::unmade) return unmade(operation_.id);
    const auto& slot = window_.slots[slot_number()];
    // The recorded manager reused a request's memory here, which the request's own free ended.
    const bool backing = event_.has(event_flag::backing);
    if (backing && (window_.found == Found::over || !slot.backing)) return {};
    if (window_.found == Found::over) return ended(operation_.id);
    if (event_.op == Op::close_ipc_handle && slot.op != Op::open_ipc_handle) {
      return trace_.fault(event_.line,
                          trace_.not_opened_error(event_, name_of(operation_.id), slot.op));
    }
    if (is_ended_by_reset(slot)) {
      event_.flags |= event_flag::late;
    } else if (!slot.failed) {
      --at_least(window_.live_there, slot.place());
      --window_.live;
    }
    window_.end(operation_.id, slot_number());
    return {};
  }

  Status use(Found how, std::uint32_t slot, const Id& id) {
    if (how == Found::unmade) return unmade(id);
    if (!worked(event_)) return {};
    if (how == Found::over || is_ended_by_reset(window_.slots[slot])) return ended(id);
    return {};
  }

  void reset() {
    if (event_.has(event_flag::backing) || !worked(event_)) return;
    window_.any_reset = true;
    const auto there = place();
    at_least(window_.resets, there) = window_.count;
    window_.live -= at_least(window_.live_there, there);
    window_.live_there[there] = 0;
  }

  Trace& trace_;
  Window& window_;
  const Operation& operation_;
  Event& event_;
};

/// Does for one event what judge() and make_times_relative() do for all events.
Status Trace::judge_next(const Operation& operation, Event& event) {
  return WindowJudge(*this, operation, event).take();
}

}  // namespace emm::trace
