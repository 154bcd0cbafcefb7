#include "trace/trace_window.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "trace/trace_building.hpp"

namespace emm::trace {
namespace {

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

/// Does for one event what judge() and make_times_relative() do for all events.
Status Trace::judge_next(const Operation& operation, Event& event) {
  using Found = Window::Found;
  auto& window = *window_;
  const auto at = ++window.count;
  if (operation.has(Member::time_ns)) {
    if (!window.start) window.start = operation.time_ns;
    window.last_time = operation.time_ns < *window.start ? 0 : operation.time_ns - *window.start;
  }
  event.time_ns = window.last_time;

  const auto number = static_cast<std::uint32_t>(event.id);
  const auto said = [&] {
    return operation.id.is_number() ? text::format("{}", operation.id.number)
                                    : std::string(operation.id.text);
  };
  if (names_earlier_memory(event.op) && event.has(event_flag::follows)) {
    const auto& more = detail(event);
    const auto of = event.op == Op::use
                        ? (more.uses.empty() ? 0 : static_cast<std::uint32_t>(more.uses[0]))
                        : number;
    event.context = event.op == Op::open_ipc_handle ? at_least(window.exported, more.handle)
                                                    : window.slots[of].context;
    event.flags ^= event_flag::follows;
  }
  const auto place = place_of(event.context, detail(event).process);
  const bool backing = event.has(event_flag::backing);
  const auto ended_by_reset = [&](const Window::Slot& slot) {
    return window.any_reset && at_least(window.resets, slot.place()) > slot.made_at;
  };
  const auto use = [&](Found how, std::uint32_t of, const std::string& name) -> Status {
    if (how == Found::unmade) return fault(event.line, unmade_id_error(event, name), name);
    if (!worked(event)) return {};
    if (how == Found::over || ended_by_reset(window.slots[of]))
      return fault(event.line, ended_id_error(event, name), name);
    return {};
  };
  switch (event.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
    case Op::open_ipc_handle: {
      if (window.found == Found::again)
        return fault(event.line, duplicate_id_error(event, said()), said());
      const bool counts = !backing && worked(event);
      auto& slot = window.slots[number];
      slot.made_at = at;
      slot.line = event.line;
      slot.site = event.site;
      slot.process = detail(event).process;
      slot.context = event.context;
      slot.op = event.op;
      slot.backing = backing;
      slot.failed = !counts;
      window.note_made(event.context, counts && slot.process == 0);
      if (counts) {
        ++at_least(window.live_there, place);
        peak_live_ = std::max(peak_live_, ++window.live);
      }
      if (worked(event)) return add_up(event, event.size, window.asked);
      return {};
    }
    case Op::free:
    case Op::close_ipc_handle: {
      if (window.found == Found::unmade)
        return fault(event.line, unmade_id_error(event, said()), said());
      // The recorded manager reused a request's memory here, which the request's own free ended.
      const auto& slot = window.slots[number];
      if (backing && (window.found == Found::over || !slot.backing)) return {};
      if (window.found == Found::over)
        return fault(event.line, ended_id_error(event, said()), said());
      if (event.op == Op::close_ipc_handle && slot.op != Op::open_ipc_handle)
        return fault(event.line, not_opened_error(event, said(), slot.op));
      if (ended_by_reset(slot)) {
        event.flags |= event_flag::late;
      } else if (!slot.failed) {
        --at_least(window.live_there, slot.place());
        --window.live;
      }
      window.end(operation.id, number);
      return {};
    }
    case Op::get_ipc_handle:
      at_least(window.exported, detail(event).handle) = event.context;
      return use(window.found, number, said());
    case Op::record_stream:
    case Op::mem_map:
    case Op::mem_unmap:
      return use(window.found, number, said());
    case Op::use:
      for (std::size_t i = 0; i < operation.ids.size(); ++i) {
        const auto& id = operation.ids[i];
        const auto of = static_cast<std::uint32_t>(detail(event).uses[i]);
        auto good = use(window.uses_found[i], of,
                        id.is_number() ? text::format("{}", id.number) : std::string(id.text));
        if (!good) return good;
      }
      return {};
    case Op::reset:
    case Op::context_destroy:
      if (backing || !worked(event)) return {};
      window.any_reset = true;
      at_least(window.resets, place) = at;
      window.live -= at_least(window.live_there, place);
      window.live_there[place] = 0;
      return {};
    case Op::defer_cleanup:
      at_least(window.deferred, index(event.context)) += worked(event) ? 1 : 0;
      return {};
    case Op::end_defer_cleanup: {
      if (!worked(event)) return {};
      auto& deferred = at_least(window.deferred, index(event.context));
      if (deferred == 0) return fault(event.line, not_deferred_error(event));
      --deferred;
      return {};
    }
    default:
      return {};
  }
}

}  // namespace emm::trace
