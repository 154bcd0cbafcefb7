#include "trace/trace.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/assert.hpp"
#include "trace/compact/operation_row.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace_building.hpp"
#include "trace/trace_window.hpp"

namespace emm::trace {
namespace {

using enum Member;

// An event that has no time yet, see make_times_relative().
constexpr std::uint64_t kNoTime = std::numeric_limits<std::uint64_t>::max();
// Members that an Event has no field for.
constexpr Members kDetailed(expect, handle, buffer, offset, page_offset, align, count, bytes, free,
                            total, label, ids, write, record, process, result, text);

// Members whose values an Event holds as plain numbers, or does not hold. Two operations with the
// same such members become the same Event except for those numbers.
constexpr Members kPlain(op, Member::seq, enter, exit, time_ns, duration_ns, api, id, Member::size,
                         addr, granted, parent, extension);

std::uint8_t flags_of(const Operation& operation) noexcept {
  std::uint8_t flags = 0;
  const auto set = [&](std::uint8_t flag, bool on) {
    flags = static_cast<std::uint8_t>(flags | (on ? flag : 0));
  };
  set(event_flag::mapped, operation.has(mapped) && operation.mapped);
  set(event_flag::portable, operation.has(portable) && operation.portable);
  set(event_flag::wc, operation.has(wc) && operation.wc);
  set(event_flag::read_only, operation.has(read_only) && operation.read_only);
  set(event_flag::attach_host, operation.has(attach) && !operation.attach_global);
  set(event_flag::backing,
      operation.op == Op::flush || (operation.has(layer) && operation.layer == Layer::backing));
  set(event_flag::preexisting, operation.has(preexisting) && operation.preexisting);
  set(event_flag::non_blocking,
      operation.op == Op::stream_create && operation.has(blocking) && !operation.blocking);
  if (operation.op == Op::mark && operation.has(phase)) {
    set(event_flag::begins, operation.phase == Phase::begin);
    set(event_flag::ends, operation.phase == Phase::end);
  }
  return flags;
}

bool is_about_the_trace(Op op) noexcept {
  return op == Op::mark || op == Op::gap || op == Op::thread_begin || op == Op::thread_end;
}

/// Does the operation make or end memory, or tell of it? The recording has then begun.
bool changes_memory(Op op) noexcept {
  return gives_memory_an_id(op) || op == Op::free || op == Op::close_ipc_handle ||
         op == Op::reset || op == Op::context_destroy || op == Op::flush;
}

std::uint64_t hash_of(const Detail& detail) {
  std::uint64_t hash = std::hash<std::string>()(detail.label);
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  const auto& wanted = detail.expect;
  for (const auto value : {wanted.align, wanted.free_at_least, wanted.free_at_most, detail.offset,
                           detail.align, detail.count, detail.bytes, detail.free, detail.total}) {
    mix(value);
  }
  for (const auto value :
       {detail.handle, detail.process, detail.buffer, detail.page_offset, detail.record})
    mix(value);
  mix(static_cast<std::uint64_t>(detail.code));
  mix((static_cast<std::uint64_t>(wanted.outcome) << 8) | (wanted.distinct ? 1u : 0u) |
      (detail.write ? 2u : 0u));
  mix(detail.has_same_as ? index(detail.same_as) + 1 : 0);
  for (const auto used : detail.uses) mix(index(used));
  return hash;
}

}  // namespace

Trace::Trace() : building_(std::make_unique<Building>()) {}
Trace::~Trace() = default;
Trace::Trace(Trace&&) noexcept = default;
Trace& Trace::operator=(Trace&&) noexcept = default;

void Trace::set_source(std::string source) { source_ = std::move(source); }

void Trace::set_fault_handler(FaultHandler on_fault) { on_fault_ = std::move(on_fault); }

Status Trace::fault(std::uint32_t line, Error error, std::string_view id) const {
  if (on_fault_ == nullptr) return error;
  on_fault_(line, error, id);
  return {};
}

Status Trace::on_header(const Header& header) {
  if (window_ != nullptr && window_->second_pass) return {};
  header_ = header;
  auto& made = *building_;
  if (!header_.default_context.empty()) {
    made.default_context_text = header_.default_context;
    made.default_context = Id::of(std::string_view(made.default_context_text));
  }
  if (!header_.default_thread.empty()) {
    made.default_thread_text = header_.default_thread;
    made.default_thread = Id::of(std::string_view(made.default_thread_text));
  }
  if (!header_.default_process.empty()) {
    made.processes.find_or_add(Id::of(std::string_view(header_.default_process)));
    made.main_process_named = true;
  }
  processes_.push_back(header_.default_process);
  streams_.emplace_back("legacy");
  stream_numbers_.push_back(0);
  made.streams.find_or_add(Id{.text = "legacy"});
  return {};
}

Status Trace::on_operations(compact::OperationRow& row, std::size_t most) {
  const bool quickly = window_ != nullptr;
  for (; most != 0; --most) {
    const auto* const operation = row.next();
    if (operation == nullptr) return {};
    if (quickly && !is_beginning() && take_quickly(*operation)) continue;
    if (auto taken = on_operation(*operation); !taken) return taken;
  }
  return {};
}

Status Trace::on_operation(const Operation& operation) {
  switch (operation.op) {
    case Op::extension:
      if (total_ == 0) ++extensions_skipped_;
      return {};
    case Op::define:
      if (operation.define_kind == DefineKind::site && total_ == 0) define_site(operation);
      note_seq(operation, false);
      return {};
    case Op::end:
      note_seq(operation, false);
      return {};
    default:
      break;
  }
  if (window_ != nullptr && !is_beginning() && take_quickly(operation)) return {};
  Event event;
  auto& plain = building_->plain[static_cast<std::size_t>(operation.op)];
  const bool is_plain = plain.known && plain.members == operation.members;
  if (is_plain) {
    event = plain.event;
    event.line = operation.line;
    event.time_ns = operation.has(time_ns) ? operation.time_ns : kNoTime;
    if (operation.has(Member::size)) event.size = operation.size;
    if (auto placed = number_id(operation, event); !placed)
      return fault(operation.line, placed.error());
  } else {
    if (auto placed = place(operation, event); !placed)
      return fault(operation.line, placed.error());
    const bool may_be = operation.op == Op::memalloc || operation.op == Op::free;
    if (may_be && operation.members.without(kPlain).empty() && event.detail == 0)
      plain = {.members = operation.members, .event = event, .known = true};
  }
  if (building_->any_seq || operation.has(Member::seq)) note_seq(operation, true);
  if (window_ != nullptr) {
    const bool looks = !is_plain || building_->any_seq;
    if (auto good = looks ? look_at_stream(operation, event) : Status(); !good) return good;
    if (auto judged = judge_next(operation, event); !judged) return judged;
    if (is_beginning()) note_beginning(operation, event);
    if (!window_->second_pass) {
      window_->last = event;
      return {};
    }
  } else if (is_beginning()) {
    note_beginning(operation, event);
  }
  events_.push(event);
  return {};
}

/// Looks at an event before it is counted, or in a window just after.
void Trace::note_beginning(const Operation& operation, Event& event) {
  constexpr std::string_view kNoRow = R"("x-no_row":true)";
  if (in_beginning_) {
    const auto at = window_ != nullptr ? static_cast<std::size_t>(window_->count) - 1 : size();
    const bool asked_before = event.op == Op::free && !event.has(event_flag::backing) &&
                              operation.has(Member::extension) &&
                              operation.extension.find(kNoRow) != std::string_view::npos;
    if (asked_before) event.flags |= event_flag::preexisting;
    if (event.has(event_flag::preexisting)) {
      if (total_ == 0) beginning_ = at + 1;
      return;
    }
    in_beginning_ = !changes_memory(event.op);
  }
  const bool asks = asks_for_device_memory(event.op) && !event.has(event_flag::backing) &&
                    !event.has(event_flag::preexisting);
  if (asks && total_ == 0 && requests_ < kRequestsMin) ++requests_;
}

/// Finds the beginning again, as the events were sorted.
void Trace::find_beginning() noexcept {
  beginning_ = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    if (at(i).has(event_flag::preexisting)) {
      beginning_ = i + 1;
    } else if (changes_memory(at(i).op)) {
      break;
    }
  }
}

Status Trace::finish() {
  if (window_ != nullptr && window_->second_pass) return {};
  if (auto sorted = sort_by_seq(); !sorted) return sorted;
  if (!building_->sorted) find_beginning();
  if (contexts_.empty()) contexts_.push_back({.name = {}, .device = default_device()});
  for (const auto& context : contexts_) devices_.push_back(context.device);
  std::sort(devices_.begin(), devices_.end());
  devices_.erase(std::unique(devices_.begin(), devices_.end()), devices_.end());
  if (window_ != nullptr) {
    total_ = static_cast<std::size_t>(window_->count);
    first_seq_ = building_->first_seq;
    return {};
  }
  make_times_relative();
  if (auto judged = judge(); !judged) return judged;
  ids_.freeze();
  frames_.freeze();
  details_.shrink_to_fit();
  first_seq_ = building_->first_seq;
  seqs_ = std::move(building_->seqs);
  building_.reset();
  return {};
}

Status Trace::place(const Operation& operation, Event& event) {
  auto& made = *building_;
  event.op = operation.op;
  event.line = operation.line;
  event.time_ns = operation.has(time_ns) ? operation.time_ns : kNoTime;
  event.flags = flags_of(operation);
  if (operation.has(Member::size)) event.size = operation.size;
  if (operation.has(pool)) {
    made.pools.find_or_add(operation.pool);
    pools_ = made.pools.size();
    if (operation.op == Op::pool_trim && operation.has(keep)) event.size = operation.keep;
  }
  if (auto placed = place_context(operation, event); !placed) return placed;

  const bool makes_stream = operation.op == Op::stream_create;
  if (operation.has(id) && !makes_stream) {
    if (auto placed = number_id(operation, event); !placed) return placed;
  }
  if (operation.has(stream) || makes_stream) {
    const auto& name = makes_stream ? operation.id : operation.stream;
    const auto found = made.streams.find_or_add(name);
    if (found.added) {
      if (found.index > std::numeric_limits<std::uint16_t>::max())
        return too_many(operation, "stream");
      streams_.push_back(made.streams.name(found.index));
      stream_numbers_.push_back(made.streams.number(found.index).value_or(found.index));
    }
    event.stream = static_cast<StreamId>(found.index);
  }
  const auto thread_name =
      operation.has(thread) ? operation.thread : made.default_thread.value_or(Id::of(0));
  const auto found = made.threads.find_or_add(thread_name);
  if (found.added) {
    if (found.index > std::numeric_limits<std::uint16_t>::max())
      return too_many(operation, "thread");
    threads_.push_back(made.threads.name(found.index));
    thread_numbers_.push_back(made.threads.number(found.index).value_or(found.index));
  }
  event.thread = static_cast<ThreadId>(found.index);
  if (operation.has(site)) {
    const auto at_site = made.sites.find_or_add(operation.site).index + 1;
    event.site = static_cast<SiteId>(at_site);
    if (sites_.size() <= at_site) sites_.resize(at_site + 1);
  }
  const auto recorded = operation.has(result) ? operation.result.outcome : Outcome::none;
  auto expected = operation.has(expect) ? operation.expect.outcome : Outcome::none;
  if (expected == Outcome::none) expected = header_.default_expect;
  event.outcomes = static_cast<std::uint8_t>(static_cast<unsigned>(recorded) |
                                             (static_cast<unsigned>(expected) << 4u));
  if (!(operation.members & kDetailed).empty()) place_detail(operation, event);
  return {};
}

Status Trace::number_id(const Operation& operation, Event& event) {
  event.id = window_ != nullptr ? place_id(operation)
                                : static_cast<AllocId>(ids_.find_or_add(operation.id).index);
  if (ids_.size() > std::numeric_limits<std::uint32_t>::max() / 4)
    return too_many(operation, "allocation");
  return {};
}

Error Trace::too_many(const Operation& operation, std::string_view what) const {
  return fail(Errc::parse_error,
              "{}:{}: one {} too many: expected no more than a replay can tell apart", source_,
              operation.line, what);
}

std::uint32_t Trace::default_device() const noexcept {
  return header_.default_device < 0 ? 0 : static_cast<std::uint32_t>(header_.default_device);
}

// An operation's context is the one it names; else the default one, unless the operation names
// another device; else one without a name, of its device. Where none of these is said, an operation
// on earlier memory takes that memory's context, which only judge() knows.
Status Trace::place_context(const Operation& operation, Event& event) {
  auto& made = *building_;
  if (!operation.has(context) && !operation.has(device)) {
    if (is_about_the_trace(operation.op)) return {};
    const bool has_default = header_.default_device >= 0 || made.default_context.has_value();
    if (!has_default && names_earlier_memory(operation.op)) {
      event.flags |= event_flag::follows;
      return {};
    }
  }
  const auto default_device = this->default_device();
  const auto on_device = operation.has(device) ? operation.device : default_device;
  const auto add = [&](std::string name, bool said) -> Result<ContextId> {
    if (contexts_.size() > std::numeric_limits<std::uint8_t>::max()) {
      return too_many(operation, "context");
    }
    contexts_.push_back({.name = std::move(name), .device = on_device});
    made.device_said.push_back(said);
    return static_cast<ContextId>(contexts_.size() - 1);
  };

  const Id* name = operation.has(context) ? &operation.context : nullptr;
  if (name == nullptr && made.default_context.has_value() &&
      (!operation.has(device) || on_device == default_device)) {
    name = &*made.default_context;
  }
  if (name == nullptr) {
    auto& last = made.last_unnamed_context;
    if (!last || last->first != on_device) {
      auto known = made.unnamed_contexts.find(on_device);
      if (known == made.unnamed_contexts.end()) {
        auto added = add({}, true);
        if (!added) return std::move(added).error();
        known = made.unnamed_contexts.emplace(on_device, *added).first;
      }
      last = *known;
    }
    event.context = last->second;
    return {};
  }
  const auto found = made.contexts.find_or_add(*name);
  if (found.added) made.context_of_name.push_back(-1);
  auto& known = made.context_of_name[found.index];
  if (known < 0) {
    auto added = add(made.contexts.name(found.index), operation.has(device));
    if (!added) return std::move(added).error();
    known = static_cast<std::int32_t>(index(*added));
  }
  const auto context_index = static_cast<std::size_t>(known);
  auto& info = contexts_[context_index];
  if (operation.has(device) && info.device != operation.device) {
    if (made.device_said[context_index]) {
      return fail(Errc::parse_error,
                  "{}:{}: context {} on device {}, and on device {} before: expected one device",
                  source_, operation.line, info.name, operation.device, info.device);
    }
    info.device = operation.device;
  }
  if (operation.has(device)) made.device_said[context_index] = true;
  event.context = static_cast<ContextId>(context_index);
  return {};
}

void Trace::place_detail(const Operation& operation, Event& event) {
  auto& made = *building_;
  Detail detail;
  const auto count_from_1 = [](IdTable& table, const Id& name) {
    return table.find_or_add(name).index + 1;
  };
  if (operation.has(process)) {
    if (!made.main_process_named && events_.size() == 0 &&
        (window_ == nullptr ||
         window_->count == 0)) {  // the first event names the manager's process
      made.processes.find_or_add(operation.process);
      made.main_process_named = true;
      processes_[0] = made.processes.name(0);
    }
    const auto found = made.processes.find_or_add(operation.process);
    detail.process = found.index + (made.main_process_named ? 0 : 1);
    if (found.added) processes_.push_back(made.processes.name(found.index));
  }
  if (operation.has(expect)) {
    // The outcome is in the Event.
    detail.expect = operation.expect;
    detail.expect.outcome = Outcome::none;
    detail.expect.same_as = Id{};
    detail.expect.has_same_as = false;
    if (operation.expect.has_same_as) {
      detail.same_as = window_ != nullptr
                           ? place_use(operation.expect.same_as)
                           : static_cast<AllocId>(ids_.find_or_add(operation.expect.same_as).index);
      detail.has_same_as = true;
    }
  }
  if (operation.has(handle)) detail.handle = count_from_1(made.handles, operation.handle);
  if (operation.has(buffer)) detail.buffer = count_from_1(made.buffers, operation.buffer);
  if (operation.has(record)) detail.record = count_from_1(made.records, operation.record);
  if (operation.has(offset)) detail.offset = operation.offset;
  if (operation.has(page_offset)) detail.page_offset = operation.page_offset;
  if (operation.has(align)) detail.align = operation.align;
  if (operation.has(count)) detail.count = operation.count;
  if (operation.has(bytes)) detail.bytes = operation.bytes;
  if (operation.has(free)) detail.free = operation.free;
  if (operation.has(total)) detail.total = operation.total;
  if (operation.has(result)) detail.code = operation.result.code;
  if (operation.has(label)) detail.label = operation.label;
  if (operation.has(text) && detail.label.empty()) detail.label = operation.text;
  if (operation.has(write)) detail.write = operation.write;
  if (operation.has(ids)) {
    if (window_ != nullptr) window_->uses_found.clear();
    for (const auto& used : operation.ids) {
      detail.uses.push_back(window_ != nullptr
                                ? place_use(used)
                                : static_cast<AllocId>(ids_.find_or_add(used).index));
    }
  }
  if (detail == details_[0]) return;
  if (window_ != nullptr) {
    event.detail = window_->pass(std::move(detail));
    return;
  }
  const auto [known, added] =
      made.details.try_emplace(hash_of(detail), static_cast<std::uint32_t>(details_.size()));
  event.detail = known->second;
  if (added || details_[event.detail] != detail) {
    event.detail = static_cast<std::uint32_t>(details_.size());
    details_.push_back(std::move(detail));
  }
}

void Trace::define_site(const Operation& operation) {
  const auto site_index = building_->sites.find_or_add(operation.id).index + 1;
  if (sites_.size() <= site_index) sites_.resize(site_index + 1);
  auto& stack = sites_[site_index] = {};
  for (const auto frame : operation.frames) frames_.add(stack, frame);
  if (stack.count == 0 && operation.has(Member::name)) frames_.add(stack, operation.name);
}

std::size_t Trace::alloc_count() const noexcept {
  // The second pass also keeps the slots of ids that ended within the window.
  return window_ != nullptr ? window_->slots_most() : ids_.size();
}

std::string Trace::name(AllocId id) const {
  if (window_ != nullptr) return slot_name(static_cast<std::uint32_t>(id));
  return ids_.name(static_cast<std::uint32_t>(index(id)));
}

std::vector<std::string> Trace::site_frames(SiteId site) const {
  return frames_.frames(sites_[index(site)]);
}

std::uint64_t Trace::capacity(std::uint32_t device) const noexcept {
  for (const auto& info : header_.devices) {
    if (info.id == device) return info.capacity;
  }
  return 0;
}

std::uint64_t Trace::least_capacity() const noexcept {
  std::uint64_t least = 0;
  for (const auto device : devices_) {
    const auto bytes = capacity(device);
    if (bytes != 0 && (least == 0 || bytes < least)) least = bytes;
  }
  return least;
}

std::uint64_t Trace::memory_bytes() const noexcept {
  std::uint64_t bytes_held = events_.bytes();
  bytes_held += ids_.memory_bytes() + details_.capacity() * sizeof(Detail);
  for (const auto& detail : details_)
    bytes_held += detail.label.capacity() + detail.uses.capacity() * sizeof(AllocId);
  for (const auto* names : {&threads_, &streams_, &processes_}) {
    for (const auto& name : *names) bytes_held += sizeof(std::string) + name.capacity();
  }
  bytes_held += sites_.capacity() * sizeof(sites_[0]) + frames_.memory_bytes();
  bytes_held += seqs_.memory_bytes();
  bytes_held += pool_steps_.steps.capacity() * sizeof(PoolStep);
  if (building_ != nullptr) {
    bytes_held += building_->seqs.memory_bytes();
    // Bytes of a node of libstdc++'s unordered_map with such an entry.
    constexpr std::uint64_t kHashNode = 32;
    bytes_held += building_->details.size() * kHashNode;
  }
  return bytes_held;
}

}  // namespace emm::trace
