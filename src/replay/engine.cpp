#include "replay/engine.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "log/summary_bytes.hpp"
#include "replay/parallel.hpp"
#include "replay/run.hpp"

namespace emm::replay {
namespace {

constexpr std::size_t kChunk = 1024;  ///< Events between two calls of ReplayOptions::progress.

std::optional<StreamId> find_per_thread(const trace::Trace& trace) {
  const auto& names = trace.streams();
  const auto found = std::find(names.begin(), names.end(), "per_thread");
  if (found == names.end()) return std::nullopt;
  return static_cast<StreamId>(found - names.begin());
}

/// Is there order to look at: memory, or work on it, on more streams than one?
bool has_several_streams(const trace::Trace& trace, std::optional<StreamId> per_thread) {
  if (trace.streams().size() < 2) return false;
  if (per_thread && trace.threads().size() > 1) return true;
  std::optional<StreamId> only;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (event.has(trace::event_flag::backing)) continue;
    const bool says_stream = event.op == trace::Op::memalloc || event.op == trace::Op::use ||
                             event.op == trace::Op::record_stream ||
                             (event.op == trace::Op::free && index(event.stream) != 0);
    if (!says_stream) continue;
    if (only.value_or(event.stream) != event.stream) return true;
    only = event.stream;
  }
  return false;
}

}  // namespace

Run::Run(const trace::Trace& trace, Stack& stack, const ReplayOptions& options,
         log::RecordSink* log)
    : trace_(trace),
      stack_(stack),
      options_(options),
      log_(log),
      clock_(stack.clock()),
      model_clock_(stack.model_clock()),
      per_thread_(find_per_thread(trace)),
      live_(trace.alloc_count(),
            options.threads == ReplayOptions::Threads::trace ? 1 : trace.threads().size() + 1),
      host_buffers_(trace) {
  if (options.pace > 0) {
    pace_ = std::make_unique<Pace>(clock_, options.pace, options.interrupted);
  }
  if (options.checks && has_several_streams(trace, per_thread_)) {
    order_ = std::make_unique<order::Checker>(&serving);
  }
  for (const auto& context : trace.contexts()) {
    lanes_.push_back(std::make_unique<Lane>(context.device, seen_, order_.get()));
  }
}

Run::~Run() { parallel_.reset(); }

Result<log::Summary> Run::run() {
  const Serving serving(at_);
  name_run();
  keep(Kept::Stage::running);
  if (options_.threads != ReplayOptions::Threads::trace) {
    if (auto begun = begin_threads(); !begun) return begun.error();
  }
  const auto passes = std::max(options_.repeat, 1u);
  for (number_ = 0; number_ < passes && !stop_; ++number_) pass(number_);
  if (fatal_) return *std::move(fatal_);
  finish();
  return std::move(summary_);
}

Status Run::begin_threads() {
  constexpr std::size_t kThreadsMax = 1024;
  if (trace_.threads().size() > kThreadsMax) {
    return fail(Errc::usage, "--threads: the trace has {} threads: expected at most {}",
                trace_.threads().size(), kThreadsMax);
  }
  if (log_ != nullptr) {
    record_order_ = std::make_unique<RecordOrder>(*log_, trace_.threads().size());
    log_ = record_order_.get();
  }
  parallel_ = std::make_unique<Parallel>(*this);
  return parallel_->start();
}

/// Before threads use them at once: contexts, and the streams that are theirs without being made.
void Run::open_all() {
  std::vector<bool> made(trace_.streams().size());
  for (std::size_t at = 0; at < trace_.size(); ++at) {
    if (trace_[at].op == Op::stream_create) made[index(trace_[at].stream)] = true;
  }
  for (std::size_t at = 0; at < trace_.size(); ++at) {
    const auto& event = trace_[at];
    if (event.has(trace::event_flag::backing)) continue;
    auto* used = lane(event.context);
    if (used == nullptr) return;
    if (index(event.stream) != 0 && !made[index(event.stream)]) {
      used->stream(index(event.stream), event.thread);
    }
  }
}

/// How many events at the beginning make what was alive before the recording began: they are served
/// before the clock starts.
std::size_t Run::preexisting() const {
  std::size_t after = 0;
  for (std::size_t at = 0; at < trace_.size(); ++at) {
    const auto& event = trace_[at];
    if (event.has(trace::event_flag::preexisting)) {
      after = at + 1;
    } else if (event.op == Op::memalloc || event.op == Op::free) {
      break;
    }
  }
  return after;
}

void Run::pass(unsigned number) {
  pass_ = {};
  for (auto& each : devices_) each.second.held_most = each.second.held;
  if (parallel_) parallel_->rewind();
  seen_.flushes.clear();
  const auto backing_before = backing_events_;
  const auto stop_at =
      std::min<std::uint64_t>(options_.stop_at.value_or(trace_.size()), trace_.size());
  const auto end = static_cast<std::size_t>(stop_at);
  const auto before_clock = std::min(preexisting(), end);
  const auto total = std::uint64_t{trace_.size()} * std::max(options_.repeat, 1u);

  auto done = walk(0, before_clock);
  if (number == 0) {
    alloc_times_.clear();
    free_times_.clear();
  }
  if (parallel_) open_all();
  waited_ns_ = 0;
  const auto begin_ns = now();
  const auto model_begin_ns = model_ns() - model_hidden_ns_;
  if (pace_ && done < end) pace_->begin(trace_[done].time_ns);
  if (parallel_ && done < end && !stop_) {
    done = parallel_->walk(done, end);
    if (number == 0) parallel_->add_up_times();
  }
  while (!parallel_ && done < end && !stop_) {
    done = walk(done, std::min(end, done + kChunk));
    if (options_.progress) options_.progress(std::uint64_t{trace_.size()} * number + done, total);
  }
  pass_.elapsed_ns = now() - begin_ns;
  const auto model_elapsed_ns = model_ns() - model_hidden_ns_ - model_begin_ns;
  if (fatal_) return;

  const auto timed = done - std::min(done, before_clock);
  pass_.ns_per_event =
      timed == 0 ? 0
                 : static_cast<double>(pass_.elapsed_ns - std::min(pass_.elapsed_ns, waited_ns_)) /
                       static_cast<double>(timed);
  if (model_clock_ != nullptr) {
    pass_.simulated_ns = model_elapsed_ns;
    pass_.simulated_ns_per_event =
        timed == 0 ? 0 : static_cast<double>(model_elapsed_ns) / static_cast<double>(timed);
  }
  pass_.events = done - (backing_events_ - backing_before);
  for (const auto& lane : lanes_) {
    if (lane->open()) measure_reserved(*lane);
  }
  pass_.reserved_at_end_bytes = reserved_;
  if (number == 0) {
    summary_.flushes = std::move(seen_.flushes);
    for (auto& flush : summary_.flushes) flush.seq = trace_.seq(flush.event);
  }
  if (!stop_ && end < trace_.size()) {
    stop_ = true;
    summary_.stopped_at = end;
    at_ = end;
    summary_.stop_state = capture(Outcome::none, "");
  }
  if (!stop_) count_leaks();
  const bool more = !stop_ && number + 1 < options_.repeat;
  if (!more) look_at_managers();
  end_leftovers(more);
  if (record_order_) record_order_->pass_on();
  if (!stop_ && options_.checks) check_balance();
  hear(pass_);
  if (number == 0) {
    summary_.pass = pass_;
    for (const auto& [device, of] : devices_)
      summary_.peak_reserved_by_device.emplace_back(device, of.held_most);
  }
  if (options_.repeat > 1) summary_.repeats.push_back(pass_);
}

void Run::count_leaks() {
  at_ = trace_.size();
  const auto leak = [&](std::uint64_t size) {
    ++pass_.leaked;
    pass_.leaked_bytes += size;
  };
  for (const auto slot : live_.by_id()) {
    if (live_[slot].ended) continue;
    leak(live_[slot].size);
    check_content(live_[slot]);
  }
  for (const auto& [id, host] : hosts_) {
    if (host.ended) continue;
    leak(host.size);
    check_content(AllocId{id}, host);
  }
  for (const auto& [id, import] : imports_) leak(import.size);
  if (number_ == 0) summary_.leaks = biggest();
}

void Run::end_leftovers(bool logged) {
  const Hidden hidden(*this);
  const auto refused = [&](const Status& ended) {
    if (ended) return;
    seen_.last_failed_free = describe(ended.error());
    if (seen_.failed_frees++ == 0) seen_.first_failed_free = seen_.last_failed_free;
    seen_.failed_at = at_;
    ++seen_.failed;
  };
  for (const auto slot : order_ ? live_.by_id() : std::vector<std::uint32_t>()) {
    if (!live_[slot].ended) order_ending(live_[slot], {});
  }
  order_all_done();
  drop_records();
  for (const auto& lane : lanes_) lane->leave_all();
  for (auto& [id, import] : imports_) refused(close_import(import));
  imports_.clear();
  exports_.clear();
  for (auto& [id, host] : hosts_) {
    if (host.ended) continue;
    if (logged)
      record_ended(Op::free, AllocId{id}, host.context, {now(), now()}, host.shown, host.size,
                   host.made_by);
    refused(std::visit([](auto& memory) { return memory.free(); }, host.memory));
  }
  hosts_.clear();
  for (const auto slot : live_.by_id()) {
    auto& live = live_[slot];
    unplace(live);
    if (!live.ended) {
      if (logged) {
        record_ended(Op::free, live.id, live.context, {now(), now()},
                     live.memory.device_pointer().value, live.size, live.made_by);
      }
      refused(live.memory.free());
    }
    live_.end(slot, live_.cache());
  }
  if (order_) report_hazards();
  reached_.clear();
  live_bytes_ = host_bytes_ = live_count_ = 0;
  refused_bytes_ = {};
  refused_.clear();
}

/// Everything has been freed: a manager that keeps accounts must say so too.
void Run::check_balance() {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i]->open()) continue;
    const auto state = lanes_[i]->context().memory_manager().state();
    if (state.live_bytes.value_or(0) == 0) continue;
    violation(
        log::Violation::Kind::balance,
        text::format("all was freed, and the manager of context {} says that {} bytes are live",
                     trace_.contexts()[i].name, *state.live_bytes));
  }
}

void Run::name_run() {
  summary_.trace = trace_.source();
  summary_.manager = stack_.describe_manager();
  summary_.device = stack_.describe_device();
  summary_.clock = clock_.kind();
}

void Run::keep(Kept::Stage stage) {
  if (options_.kept.empty()) return;
  auto& kept = *reinterpret_cast<Kept*>(options_.kept.data());
  const auto bytes = log::to_bytes(summary_);
  if (bytes.size() > Kept::kSummaryBytes) return;
  const auto other = 1 - kept.current.load();
  std::memcpy(options_.kept.data() + Kept::summary_at(other), bytes.data(), bytes.size());
  kept.sizes[other] = bytes.size();
  kept.current.store(other);
  kept.stage.store(stage);
}

void Run::add_numbers(log::Summary& summary) const {
  summary.pass = number_ == 0 ? pass_ : summary_.pass;
  if (number_ == 0) summary.pass.events = at_ - std::min(at_, backing_events_);
  summary.outcomes = summary_.outcomes;
  summary.refused_again = summary_.refused_again;
  summary.violation_count = summary_.violation_count;
  summary.skipped = summary_.skipped;
}

log::Failure Run::ended_at(const trace::Trace& trace, const log::Abnormal& how) const {
  log::Failure failure;
  failure.event = how.event.value_or(at_);
  failure.outcome = Outcome::error;
  failure.error = how.words;
  failure.live_bytes = live_bytes_;
  failure.reserved_bytes = reserved_;
  name_event(failure, trace);
  return failure;
}

void Run::finish() {
  if (options_.latency) {
    if (alloc_times_.count() != 0) summary_.alloc_latency = alloc_times_.percentiles();
    if (free_times_.count() != 0) summary_.free_latency = free_times_.percentiles();
  }
  if (!recorded_flushes_.empty()) {
    summary_.recorded_flushes = log::compare_flushes(recorded_flushes_, summary_.flushes);
  }
  for (const auto& lane : lanes_) {
    if (lane->open()) summary_.reports += lane->context().memory_manager().report();
  }
  keep(Kept::Stage::over);
  for (const auto& lane : lanes_) lane->end();  // a manager frees what it holds, which may fail
  hear(summary_.pass);
  if (pace_) summary_.lateness = lateness_.percentiles();
  if (parallel_) summary_.threads = parallel_->thread_count();
  note_recording();
}

struct Engine::State {
  ReplayOptions options;
  Run run;

  State(const trace::Trace& trace, Stack& stack, ReplayOptions chosen, log::RecordSink* log)
      : options(std::move(chosen)), run(trace, stack, options, log) {}
};

std::unique_ptr<Engine::State, Engine::End> Engine::begin(const trace::Trace& trace, Stack& stack,
                                                          ReplayOptions options,
                                                          log::RecordSink* log) {
  static_assert(sizeof(State) <= Kept::kRunBytes && sizeof(Kept) <= Kept::kRunBytes);
  const auto kept = options.kept;
  if (kept.empty()) {
    return {new State(trace, stack, std::move(options), log), End{}};
  }
  EMM_ASSERT(kept.size() == kKeptBytes);
  new (kept.data()) Kept;
  auto* state = new (kept.data() + Kept::kRunBytes) State(trace, stack, std::move(options), log);
  return {state, End{.in_place = true}};
}

void Engine::End::operator()(State* state) const {
  if (in_place) {
    std::destroy_at(state);
  } else {
    delete state;
  }
}

Engine::Engine(const trace::Trace& trace, Stack& stack, ReplayOptions options, log::RecordSink* log)
    : state_(begin(trace, stack, std::move(options), log)) {}

Engine::~Engine() = default;

Result<log::Summary> Engine::run() { return state_->run.run(); }

std::optional<log::Summary> found_so_far(std::span<const std::byte> kept, const trace::Trace& trace,
                                         log::Abnormal how) {
  // Only numbers are read of the run itself: what it points to is gone with its process.
  const auto& header = *reinterpret_cast<const Kept*>(kept.data());
  if (header.stage.load() == Kept::Stage::none) return std::nullopt;
  const auto which = header.current.load() % 2;
  const auto size = std::min<std::uint64_t>(header.sizes[which], Kept::kSummaryBytes);
  const auto bytes = kept.subspan(Kept::summary_at(which), static_cast<std::size_t>(size));
  auto summary =
      log::summary_from_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!summary) return std::nullopt;
  const auto& run = reinterpret_cast<const Engine::State*>(kept.data() + Kept::kRunBytes)->run;
  if (header.stage.load() == Kept::Stage::running) {
    run.add_numbers(*summary);
    if (run.has_threads()) {
      summary->notes.push_back(
          "what the threads had counted is lost with their process: there were more events, "
          "allocations and frees than are said here");
    }
  }
  if (!summary->first_failure) summary->first_failure = run.ended_at(trace, how);
  ++summary->pass.failures;  // the call that did not come back
  summary->abnormal = std::move(how);
  return summary;
}

bool found_failure(const log::Summary& summary, bool leaks_fail) noexcept {
  if (summary.violation_count != 0 || summary.abnormal) return true;
  const auto failed = [&](const log::Pass& pass) {
    return pass.failures != 0 || pass.hazards != 0 || (leaks_fail && pass.leaked != 0);
  };
  return failed(summary.pass) ||
         std::any_of(summary.repeats.begin(), summary.repeats.end(), failed);
}

bool judged_nothing(const log::Summary& summary) noexcept {
  const auto& pass = summary.pass;
  return pass.events == 0 || (pass.allocs == 0 && pass.failures == 0 && !summary.declined.empty());
}

}  // namespace emm::replay
