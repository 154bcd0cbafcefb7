#include <algorithm>
#include <unordered_map>

#include "replay/parallel.hpp"
#include "replay/run.hpp"

namespace emm::replay {
namespace {

constexpr std::size_t kViolationsKept = 100;
constexpr std::size_t kHolders = 10;

bool fails(trace::Outcome outcome) noexcept {
  return outcome != trace::Outcome::none && outcome != trace::Outcome::any &&
         outcome != trace::Outcome::ok;
}

/// `error` stands for every way of failing.
bool meets(trace::Outcome got, trace::Outcome expected) noexcept {
  if (expected == trace::Outcome::none || expected == trace::Outcome::any) return true;
  return got == expected || (expected == trace::Outcome::error && fails(got));
}

}  // namespace

trace::Outcome outcome_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::out_of_memory:
      return trace::Outcome::oom;
    case Errc::not_supported:
      return trace::Outcome::unsupported;
    case Errc::invalid_value:
    case Errc::already_registered:
    case Errc::not_registered:
    case Errc::dead_pointer:
      return trace::Outcome::invalid;
    case Errc::not_initialized:
    case Errc::invalid_context:
    case Errc::context_destroyed:
    case Errc::not_found:
    case Errc::version_mismatch:
    case Errc::parse_error:
    case Errc::io_error:
    case Errc::no_device:
    case Errc::driver_error:
    case Errc::usage:
    case Errc::interrupted:
    case Errc::internal:
      return trace::Outcome::error;
  }
  return trace::Outcome::error;
}

bool Run::nobody_holds(const Event& event) noexcept {
  return fails(event.recorded()) && event.expected() == Outcome::none;
}

bool Run::was_refused(const Event& event) noexcept {
  const bool of_device = event.op == Op::memalloc || event.op == Op::memallocmanaged;
  return of_device && event.recorded() == Outcome::oom && event.expected() == Outcome::none;
}

trace::Event Run::free_of(Event event) noexcept {
  event.op = Op::free;
  event.outcomes = 0;
  return event;
}

/// Does `expect`, or where it is silent the recording, say that this operation fails so?
bool Run::foretold(const Event& event, Outcome got) const {
  const auto expected = event.expected();
  if (expected == Outcome::none) {
    const bool counts = options_.refusals_fail && got == Outcome::oom && was_refused(event);
    return fails(event.recorded()) && !counts;
  }
  return expected == Outcome::any || (fails(expected) && meets(got, expected));
}

void Run::settle(const Event& event, Outcome got, const Error* error) {
  const auto recorded = event.recorded();
  const auto expected = event.expected();
  const bool worked = got == Outcome::ok;
  if (number_ != 0) {
    // the four ways are the first pass's, like everything that is compared with the recording
  } else if (recorded == Outcome::ok) {
    ++(worked ? summary_.outcomes.worked_worked : summary_.outcomes.worked_fails);
  } else if (fails(recorded)) {
    ++(worked ? summary_.outcomes.fails_works : summary_.outcomes.fails_fails);
  }
  if (number_ == 0 && got == Outcome::oom && was_refused(event)) ++summary_.refused_again;
  if (got == Outcome::unsupported) decline(event.op, describe(*error));

  const auto words = [&] { return error != nullptr ? describe(*error) : std::string(); };
  const bool met = meets(got, expected);
  const bool foretold = !worked && this->foretold(event, got);
  if (!worked && !foretold && (got != Outcome::unsupported || expected == Outcome::ok)) {
    ++pass_.failures;
    if (!summary_.first_failure) {
      summary_.first_failure = capture(got, words());
      keep(Kept::Stage::running);
    }
  }
  if (!met && (worked || got != Outcome::unsupported || expected == Outcome::ok)) {
    const auto what = names_memory(event.op)
                          ? text::format("{} of {}", trace::name(event.op), trace_.name(event.id))
                          : std::string(trace::name(event.op));
    violation(log::Violation::Kind::unexpected,
              text::format("{}: {}, expected {}", what, trace::name(got), trace::name(expected)));
  }
  if (got == Outcome::oom && !foretold && options_.on_oom == ReplayOptions::OnOom::stop) {
    stop_ = true;
    summary_.stopped_at = at_;
  }
}

void Run::refused(const Event& event, const Error& error, Times times) {
  const auto outcome = outcome_of(error);
  const bool of_device = event.op == Op::memalloc || event.op == Op::memallocmanaged;
  // What was never to be served is not asked for in earnest; what the recording refused is, at its
  // moment.
  const bool kept = of_device && !was_refused(event) && !foretold(event, outcome);
  const auto asked = kept || was_refused(event) ? event.size : 0;
  refused_bytes_.add(asked);
  pass_.peak_requested_bytes = std::max(pass_.peak_requested_bytes, requested_bytes(live_bytes_));
  if (!kept) refused_bytes_.subtract(asked);
  refused_[static_cast<std::uint32_t>(event.id)] = {.bytes = kept ? asked : 0, .outcome = outcome};
  if (options_.checks)
    measure_reserved(*lanes_[index(event.context)]);  // it may have grown and failed all the same
  record(event, outcome, times, 0, event.size);
  settle(event, outcome, &error);
}

trace::Outcome Run::refused_outcome(AllocId id) const {
  const auto found = refused_.find(static_cast<std::uint32_t>(id));
  return found == refused_.end() ? Outcome::none : found->second.outcome;
}

void Run::unmade(const Event& event) {
  ++pass_.unmade;
  if (event.op != Op::free && event.op != Op::close_ipc_handle) return;
  const auto found = refused_.find(static_cast<std::uint32_t>(event.id));
  if (found == refused_.end()) return;
  refused_bytes_.subtract(found->second.bytes);
  refused_.erase(found);
}

void Run::violation(log::Violation::Kind kind, const std::string& words) {
  ++summary_.violation_count;
  if (!summary_.first_failure) summary_.first_failure = capture(Outcome::ok, words);
  if (summary_.violations.size() == kViolationsKept) return;
  const auto line = at_ < trace_.size() ? trace_[at_].line : 0;
  summary_.violations.push_back({.kind = kind, .event = at_, .line = line, .words = words});
  keep(Kept::Stage::running);
}

void Run::hear(log::Pass& pass) {
  if (!is_told()) return;
  Heard told;
  std::string free_words, call_words;
  const auto here = at_;
  {
    const std::lock_guard lock(seen_.mutex);
    told = {.all = seen_.failed.load(),
            .frees = seen_.failed_frees - seen_.excused_frees,
            .calls = seen_.failed_calls};
    free_words = seen_.last_failed_free;
    call_words = seen_.last_failed_call;
    at_ = std::min<std::uint64_t>(seen_.failed_at, trace_.size());
  }
  const auto heard = std::exchange(heard_, told);
  if (const auto failed = told.frees - heard.frees; failed != 0) {
    pass.failures += failed;
    // Each was counted as carried out when it was asked for.
    if (at_ < trace_.size() && trace_[at_].op == Op::free)
      pass.frees -= std::min(pass.frees, failed);
    if (!summary_.first_failure) {
      summary_.first_failure = capture(Outcome::error, free_words);
      keep(Kept::Stage::running);
    }
  }
  if (const auto failed = told.calls - heard.calls; failed != 0) {
    summary_.violation_count += failed - 1;
    if (!summary_.first_failure) summary_.first_failure = capture(Outcome::error, call_words);
    violation(log::Violation::Kind::contract, call_words);
  }
  at_ = here;
}

void Run::fatal(Error error) {
  fatal_ = std::move(error);
  stop_ = true;
}

void Run::decline(Op op, const std::string& why) {
  if (number_ != 0) return;
  auto& declined = summary_.declined;
  auto found =
      std::find_if(declined.begin(), declined.end(), [&](const auto& one) { return one.op == op; });
  if (found == declined.end()) found = declined.insert(found, {.op = op, .count = 0, .why = why});
  ++found->count;
  keep(Kept::Stage::running);
}

std::string Run::described(const Live& live) const {
  return text::format("{} ({} bytes at {})", trace_.name(live.id), live.size,
                      text::hex(live.memory.device_pointer().value));
}

void Run::note_idle(log::Failure& failure, const MemoryStatistics& of) {
  if (!of.reserved_bytes.current || !of.active_bytes.current) return;
  failure.idle_bytes = *of.reserved_bytes.current - *of.active_bytes.current;
  failure.largest_idle_bytes = of.largest_free_bytes;
  if (of.allocated_bytes.current)
    failure.waiting_bytes = *of.active_bytes.current - *of.allocated_bytes.current;
}

/// What managers count, and what `look` wants to see, while all is in its place.
void Run::look_at_managers() {
  const Ours quiet(*this);
  const auto named = [](const NamedStatistics& given) {
    std::vector<log::Statistics::Named> all;
    for (const auto& [name, value] : given) all.push_back({name, value});
    return all;
  };
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i]->open()) continue;
    const auto& manager = lanes_[i]->context().memory_manager();
    const auto counted = manager.statistics();
    log::Statistics statistics{.context = trace_.contexts()[i].name,
                               .torch = named(torch_statistics(counted)),
                               .rmm = named(rmm_statistics(counted)),
                               .other = named(other_statistics(counted))};
    if (options_.look) options_.look(statistics, lanes_[i]->device(), manager);
    if (!statistics.torch.empty()) summary_.statistics.push_back(std::move(statistics));
  }
}

// Takes `trace` from its caller: in a run that another process left, trace_ leads nowhere.
void Run::name_event(log::Failure& failure, const trace::Trace& trace) {
  failure.op = Op::end;
  if (failure.event >= trace.size()) return;
  const auto& event = trace[failure.event];
  failure.line = event.line;
  failure.op = event.op;
  if (names_memory(event.op)) failure.id = trace.name(event.id);
  failure.size = event.size;
  failure.thread = trace.thread_number(event.thread);
  failure.stream = trace.streams()[index(event.stream)];
  failure.context = trace.contexts()[index(event.context)].name;
  failure.frames = trace.site_frames(event.site);
}

log::Failure Run::capture(Outcome outcome, std::string error) {
  const Ours quiet(*this);
  log::Failure failure;
  failure.event = at_;
  failure.outcome = outcome;
  failure.error = std::move(error);
  failure.live_bytes =
      live_bytes_ + (parallel_ ? static_cast<std::uint64_t>(parallel_->live_bytes()) : 0);
  failure.reserved_bytes = reserved_;
  failure.holders = biggest();
  name_event(failure, trace_);
  if (at_ >= trace_.size()) return failure;

  if (auto& lane = *lanes_[index(trace_[at_].context)]; lane.open()) {
    if (const auto info = lane.driver().mem_get_info()) failure.free_bytes = info->free;
    if (const auto largest = lane.driver().largest_free_bytes(); largest != 0)
      failure.largest_free_bytes = largest;
    note_idle(failure, lane.context().memory_manager().statistics());
  }
  return failure;
}

std::vector<log::Holder> Run::biggest() {
  struct Held {
    std::uint64_t size;
    std::uint32_t id;
  };
  std::vector<Held> held;
  const bool shared = parallel_ && parallel_->running();
  // Entries may be changing hands now; the trace tells as well what is held.
  for (std::size_t at = 0; shared && at < trace_.size(); ++at) {
    const auto& event = trace_[at];
    const bool makes = event.op == Op::memalloc || event.op == Op::memallocmanaged;
    if (!makes || event.has(trace::event_flag::backing)) continue;
    const bool reset =
        index(event.context) < reset_at_.size() && at < reset_at_[index(event.context)];
    if (!reset && live_.slot(event.id) != LiveSet::kNone) {
      held.push_back({event.size, static_cast<std::uint32_t>(event.id)});
    }
  }
  for (const auto slot : shared ? std::vector<std::uint32_t>() : live_.by_id()) {
    if (!live_[slot].ended)
      held.push_back({live_[slot].size, static_cast<std::uint32_t>(live_[slot].id)});
  }
  for (const auto& [id, host] : hosts_) {
    if (!host.ended) held.push_back({host.size, id});
  }
  for (const auto& [id, import] : imports_) held.push_back({import.size, id});
  const auto count = std::min(held.size(), kHolders);
  std::partial_sort(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(count), held.end(),
                    [](const Held& a, const Held& b) {
                      return a.size != b.size ? a.size > b.size : a.id < b.id;
                    });
  held.resize(count);

  // Where they were made is looked up only here, so that entries need not carry it.
  std::vector<log::Holder> holders;
  for (const auto& one : held)
    holders.push_back(
        {.id = trace_.name(AllocId{one.id}), .size = one.size, .line = 0, .frames = {}});
  auto missing = count;
  for (std::size_t at = std::min<std::size_t>(at_ + 1, trace_.size()); at > 0 && missing > 0;
       --at) {
    const auto& event = trace_[at - 1];
    if (!names_memory(event.op) || event.op == Op::free || event.op == Op::get_ipc_handle ||
        event.op == Op::close_ipc_handle || event.has(trace::event_flag::backing)) {
      continue;
    }
    const auto found = std::find_if(held.begin(), held.end(),
                                    [&](const Held& one) { return AllocId{one.id} == event.id; });
    if (found == held.end()) continue;
    auto& holder = holders[static_cast<std::size_t>(found - held.begin())];
    holder.line = event.line;
    holder.frames = trace_.site_frames(event.site);
    --missing;
  }
  return holders;
}

}  // namespace emm::replay
