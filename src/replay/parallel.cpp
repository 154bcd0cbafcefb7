#include "replay/parallel.hpp"

#include <algorithm>
#include <ctime>
#include <system_error>

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;
using trace::Outcome;

constexpr std::size_t kLogged = 1 << 20;  ///< Events between two writings of a log.
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kSamples = 128;  ///< Of a pass, by each thread.
constexpr unsigned kSpins = 2048;      ///< Looks before a processor is given to others: 0.1 ms.
constexpr std::size_t kMail = 32;      ///< Ranges sent at once.

/// For a wait of some nanoseconds: this processor's other thread has the rest.
void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// Looks again and again, less and less often; false where it is to be given up.
template <class Ready>
bool await(const std::atomic<bool>& give_up, unsigned spins, Ready ready) {
  for (unsigned looked = 0; !ready(); ++looked) {
    relax();
    if (looked < spins) continue;
    if (give_up.load(std::memory_order_relaxed)) return false;
    if (looked < spins + 1024) {
      std::this_thread::yield();
    } else {
      const timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
      nanosleep(&pause, nullptr);
    }
  }
  return true;
}

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) noexcept {
  auto known = peak.load(std::memory_order_relaxed);
  while (known < value && !peak.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

bool makes(Op op) noexcept {
  return op == Op::memalloc || op == Op::memallocmanaged || op == Op::memhostalloc ||
         op == Op::mempin;
}

}  // namespace

void RecordOrder::add(std::uint64_t place, const log::Record& record, const log::Gauges& gauges) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({place, record, gauges});
}

void RecordOrder::pass_on() {
  const std::lock_guard lock(mutex_);
  std::sort(kept_.begin(), kept_.end(),
            [](const Kept& a, const Kept& b) { return a.place < b.place; });
  const auto on_device = [](Op op) { return op == Op::memalloc || op == Op::memallocmanaged; };
  for (auto& [place, record, gauges] : kept_) {
    if (on_device(record.op) && record.outcome == Outcome::ok) {
      live_bytes_ += record.size;
      ++live_count_;
    } else if (!on_device(record.op) && record.id != log::kNoId && !record.late &&
               on_device(record.freed_kind) &&
               (record.op == Op::free || record.op == Op::reset ||
                record.op == Op::context_destroy)) {
      live_bytes_ -= record.size;
      --live_count_;
    }
    gauges.live_bytes = live_bytes_;
    gauges.live_count = live_count_;
    log_.on_record(record, gauges);
  }
  kept_.clear();
}

/// One thread of the trace. What it counts is its own until the run adds it up.
class alignas(128) Parallel::Worker {
 public:
  Worker(Parallel& all, LiveSet::Cache& cache, std::size_t threads)
      : all_(all),
        run_(all.run_),
        cache_(cache),
        log_(run_.record_order_.get()),
        spins_(threads <= std::thread::hardware_concurrency() ? kSpins : 64),
        outgoing_(threads) {}

  std::vector<std::uint32_t> events;  ///< Of this thread, in order.
  std::size_t next = 0;               ///< Of those.
  std::thread thread;
  std::int64_t live_count = 0;
  std::uint64_t allocs = 0, frees = 0, worked_worked = 0, waited_ns = 0;
  Histogram alloc_times, free_times, lateness;

  void serve(std::size_t end) {
    sample_every_ = std::max<std::size_t>(1, events.size() / kSamples);
    serve_events(end);
    for (std::size_t maker = 0; maker < outgoing_.size(); ++maker) send(maker);
  }
  /// Erases what others have ended of the memory that this thread made.
  void take_mail() {
    {
      const std::lock_guard lock(mail_.mutex);
      taken_.swap(mail_.gone);
      mail_.any.store(false, std::memory_order_relaxed);
    }
    for (const auto& range : taken_) range.shards->erase(range.begin, range.size, range.number);
    taken_.clear();
  }

  /// Looked at by others now and then.
  alignas(128) std::atomic<std::int64_t> live_bytes{0};

 private:
  /// A range that is over, and still in its map.
  struct Gone {
    AddressShards* shards;
    std::uint64_t begin, size;
    std::uint32_t number;
  };
  struct alignas(128) Mail {
    std::atomic<bool> any{false};
    std::mutex mutex;
    std::vector<Gone> gone;
  };

  void send(std::size_t maker) {
    auto& ranges = outgoing_[maker];
    if (ranges.empty()) return;
    auto& mail = all_.workers_[maker]->mail_;
    {
      const std::lock_guard lock(mail.mutex);
      mail.gone.insert(mail.gone.end(), ranges.begin(), ranges.end());
      mail.any.store(true, std::memory_order_relaxed);
    }
    ranges.clear();
  }
  /// The map's lines are with the thread that made the range: it is left to that one to erase it.
  void displace(const Live& live, Lane& lane, std::uint64_t address) {
    auto& shards = *lane.shared->shards;
    const auto number = static_cast<std::uint32_t>(live.id);
    const auto maker = index(live.made_on);
    if (all_.workers_[maker].get() == this) return shards.erase(address, live.size, number);
    outgoing_[maker].push_back({&shards, address, live.size, number});
    if (outgoing_[maker].size() >= kMail) send(maker);
  }

  /// What events to come will look at is asked for in the order in which one leads to the next.
  void prefetch() const {
    const auto ahead = [&](std::size_t by) {
      return next + by < events.size() ? &run_.trace_[events[next + by]] : nullptr;
    };
    if (const auto* event = ahead(12)) {
      __builtin_prefetch(event);
      __builtin_prefetch(&event->op);
    }
    if (const auto* event = ahead(8)) run_.live_.prefetch_place(event->id);
    if (const auto* event = ahead(5)) run_.live_.prefetch_slot(event->id);
    if (const auto* event = ahead(2); event != nullptr && event->op == Op::free) {
      run_.live_.prefetch_entry(event->id);
    }
  }

  void serve_events(std::size_t end) {
    const Serving serving(at_);
    static constexpr std::atomic<bool> kNotInterrupted{false};
    const auto& interrupted =
        run_.options_.interrupted != nullptr ? *run_.options_.interrupted : kNotInterrupted;
    for (; next < events.size() && events[next] < end; ++next) {
      if (all_.stopping_.load(std::memory_order_relaxed)) return;
      if (interrupted.load(std::memory_order_relaxed)) {
        const std::lock_guard lock(all_.rare_);
        run_.summary_.interrupted = true;
        return stop();
      }
      at_ = events[next];
      prefetch();
      const auto& event = run_.trace_[events[next]];
      if (run_.pace_) waited_ns += run_.pace_->wait(event.time_ns, lateness);
      if (!serve_one(event)) return;
    }
  }

  void stop() {
    run_.stop_ = true;
    all_.stopping_.store(true, std::memory_order_relaxed);
  }
  /// Calls `rare` as if the run served this event itself.
  template <class Rare>
  void rarely(Rare rare) {
    const std::lock_guard lock(all_.rare_);
    run_.at_ = at_;
    rare();
    if (run_.stop_) stop();
  }
  bool await_id(AllocId id) {
    return await(all_.stopping_, spins_, [&] { return run_.live_.settled(id); });
  }
  bool await_record(std::uint32_t record) {
    if (run_.options_.threads == ReplayOptions::Threads::free) return true;
    if (record >= all_.recorded_at_.size() || all_.recorded_at_[record] > at_) return true;
    return await(all_.stopping_, spins_,
                 [&] { return all_.recorded_[record].load(std::memory_order_acquire); });
  }

  /// False where the run stops.
  bool serve_one(const Event& event) {
    const bool backing = event.has(trace::event_flag::backing);
    const bool here = event.detail == 0 || run_.trace_.detail(event).process == 0;
    if (here && !backing) [[likely]] {
      switch (event.op) {
        case Op::memalloc:
        case Op::memallocmanaged:
          allocate(event);
          return true;
        case Op::free:
          if (!await_id(event.id)) return false;
          free(event);
          return true;
        case Op::record_stream:
          if (!await_id(event.id)) return false;
          break;
        case Op::use:
          for (const auto id : run_.trace_.detail(event).uses) {
            if (!await_id(id)) return false;
          }
          break;
        case Op::stream_wait:
        case Op::event_sync:
          if (!await_record(run_.trace_.detail(event).record)) return false;
          break;
        case Op::thread_begin:
        case Op::thread_end:
        case Op::mark:
          return true;
        default:
          break;
      }
    } else if (!backing && event.op == Op::free && !await_id(event.id)) {
      return false;
    }
    rarely([&] { run_.serve_rare(event); });
    if (makes(event.op)) run_.live_.settle(event.id);
    if (event.op == Op::event_record) {
      all_.recorded_[run_.trace_.detail(event).record].store(true, std::memory_order_release);
    }
    return true;
  }

  void allocate(const Event& event) {
    if (mail_.any.load(std::memory_order_relaxed)) take_mail();
    auto& lane = *run_.lanes_[index(event.context)];
    const auto stream = lane.known_stream(index(event.stream));
    const bool timed = run_.options_.latency || log_ != nullptr;
    Run::Times times;
    if (timed) times.begin_ns = run_.clock_.now_ns();
    Result<MemoryPointer> memory = event.op == Op::memalloc
                                       ? lane.context().memalloc(event.size, stream)
                                       : managed(event, lane);
    if (timed) times.end_ns = run_.clock_.now_ns();
    if (run_.options_.latency) alloc_times.add(times.end_ns - times.begin_ns);
    if (!memory) {
      rarely([&] { run_.refused(event, memory.error(), times); });
      run_.live_.settle(event.id);
      return;
    }
    const auto slot = run_.live_.add(event.id, cache_);
    auto& live = run_.live_[slot];
    live.memory = std::move(*memory);
    live.size = event.size;
    live.context = event.context;
    live.stream = event.stream;
    live.made_on = event.thread;
    live.made_by = event.op;
    live.ended = false;
    live.placed = false;
    ++allocs;
    ++live_count;
    const auto bytes =
        live_bytes.load(std::memory_order_relaxed) + static_cast<std::int64_t>(event.size);
    live_bytes.store(bytes, std::memory_order_relaxed);
    if (run_.options_.checks) check(event, lane, live, slot);
    if (run_.order_) {
      run_.order_->allocated(lane.device(), static_cast<std::uint32_t>(live.id),
                             live.memory.device_pointer(), live.size, stream);
      if (run_.order_->any_found()) rarely([&] { run_.report_hazards(); });
    }
    if (run_.options_.verify) rarely([&] { run_.fill(live); });
    if (log_ != nullptr) {
      run_.record_at(*log_, log_->place(), at_, event, Outcome::ok, times,
                     live.memory.device_pointer().value, event.size, Op::memalloc);
    }
    run_.live_.show(slot);
    settle(event);
    if (++since_sample_ >= sample_every_) {
      since_sample_ = 0;
      all_.sample();
    }
  }

  Result<MemoryPointer> managed(const Event& event, Lane& lane) {
    const auto attach =
        event.has(trace::event_flag::attach_host) ? AttachFlags::host : AttachFlags::global;
    auto memory = lane.context().memallocmanaged(event.size, attach);
    if (!memory) return std::move(memory).error();
    return std::move(memory->memory());
  }

  void check(const Event& event, Lane& lane, Live& live, std::uint32_t slot) {
    const auto address = live.memory.device_pointer().value;
    if (event.size > 0 && address != 0) {
      const auto other = lane.shared->shards->insert(address, event.size,
                                                     static_cast<std::uint32_t>(index(event.id)));
      live.placed = !other;
      if (other) rarely([&] { run_.overlap(live, AllocId{*other}); });
    }
    if ((address % kAlignment) != 0 || address == 0 || live.memory.size() != event.size ||
        event.detail != 0) {
      rarely([&] { run_.check_made(event, slot); });
    }
  }

  /// What worked as it was to costs no lock.
  void settle(const Event& event) {
    if (event.outcomes == 0) return;
    const auto as_expected = [](Outcome outcome) {
      return outcome == Outcome::none || outcome == Outcome::ok || outcome == Outcome::any;
    };
    if (as_expected(event.expected()) && as_expected(event.recorded())) {
      if (event.recorded() == Outcome::ok && run_.number_ == 0) ++worked_worked;
      return;
    }
    rarely([&] { run_.settle(event, Outcome::ok, nullptr); });
  }

  void free(const Event& event) {
    const auto slot = run_.live_.slot(event.id);
    if (slot == LiveSet::kNone) return rarely([&] { run_.free_other(event); });
    auto& live = run_.live_[slot];
    if (live.ended) return rarely([&] { run_.free_ended(event, slot); });
    auto& lane = *run_.lanes_[index(live.context)];
    const auto address = live.memory.device_pointer();
    const auto size = live.size;
    const auto made_by = live.made_by;
    if (run_.options_.verify) rarely([&] { run_.check_content(live); });
    run_.live_.hide(slot);  // its range overlaps nothing, also where it is erased late
    if (live.placed) displace(live, lane, address.value);
    const auto stream = lane.known_stream(index(event.stream));
    if (run_.order_) rarely([&] { run_.order_ending(live, stream); });
    const auto place = log_ != nullptr ? log_->place() : 0;
    const bool timed = run_.options_.latency || log_ != nullptr;
    Run::Times times;
    if (timed) times.begin_ns = run_.clock_.now_ns();
    const auto freed = live.memory.free(stream);
    if (timed) times.end_ns = run_.clock_.now_ns();
    if (run_.options_.latency) free_times.add(times.end_ns - times.begin_ns);
    run_.live_.forget(slot, cache_);
    --live_count;
    live_bytes.store(live_bytes.load(std::memory_order_relaxed) - static_cast<std::int64_t>(size),
                     std::memory_order_relaxed);
    if (freed) ++frees;
    const auto outcome = freed ? Outcome::ok : outcome_of(freed.error());
    if (log_ != nullptr) {
      run_.record_at(*log_, place, at_, event, outcome, times, address.value, size, made_by);
    }
    if (run_.order_ && run_.order_->any_found()) rarely([&] { run_.report_hazards(); });
    if (freed) return settle(event);
    rarely([&] { run_.settle(event, outcome, &freed.error()); });
  }

  Parallel& all_;
  Run& run_;
  LiveSet::Cache& cache_;
  RecordOrder* log_;
  const unsigned spins_;
  std::uint64_t at_ = 0;
  std::size_t since_sample_ = 0, sample_every_ = 1;
  std::vector<std::vector<Gone>> outgoing_;  ///< By the thread that made them.
  std::vector<Gone> taken_;                  ///< Empty but for its room.
  Mail mail_;
};

bool Parallel::alone(Op op) noexcept {
  switch (op) {
    case Op::initialize:
    case Op::reset:
    case Op::context_create:
    case Op::context_destroy:
    case Op::stream_create:
    case Op::stream_destroy:
    case Op::get_ipc_handle:
    case Op::open_ipc_handle:
    case Op::close_ipc_handle:
      return true;
    default:
      return false;
  }
}

Parallel::Parallel(Run& run) : run_(run) {
  const auto& trace = run.trace_;
  for (std::size_t i = 0; i < trace.threads().size(); ++i) {
    workers_.push_back(
        std::make_unique<Worker>(*this, run.live_.cache(i + 1), trace.threads().size()));
  }
  std::vector<std::vector<std::uint32_t>> made(workers_.size());
  std::uint32_t records = 0;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (alone(event.op)) {
      alone_.push_back(at);
    } else {
      workers_[index(event.thread)]->events.push_back(static_cast<std::uint32_t>(at));
    }
    if (makes(event.op) || event.op == Op::open_ipc_handle) {
      made[index(event.thread)].push_back(static_cast<std::uint32_t>(event.id));
    }
    if (event.op != Op::event_record) continue;
    const auto record = trace.detail(event).record;
    records = std::max(records, record + 1);
    if (recorded_at_.size() < records) recorded_at_.resize(records, kNever);
    recorded_at_[record] = std::min<std::uint64_t>(recorded_at_[record], at);
  }
  recorded_ = std::make_unique<std::atomic<bool>[]>(records);
  std::vector<std::uint32_t> place(trace.alloc_count(), ~std::uint32_t{0});
  std::uint32_t at = 0;
  for (const auto& ids : made) {
    for (const auto id : ids) {
      if (place[id] == ~std::uint32_t{0}) place[id] = at++;
    }
  }
  for (auto& of_id : place) {
    if (of_id == ~std::uint32_t{0}) of_id = at++;
  }
  run.live_.group(std::move(place));
}

Parallel::~Parallel() {
  {
    const std::lock_guard lock(turn_);
    over_ = true;
  }
  begun_.notify_all();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

Status Parallel::start() {
  try {
    for (const auto& worker : workers_) {
      worker->thread = std::thread([this, &mine = *worker] {
        std::uint64_t seen = 0;
        for (;;) {
          std::size_t end = 0;
          {
            std::unique_lock lock(turn_);
            begun_.wait(lock, [&] { return over_ || round_ != seen; });
            if (over_) return;
            seen = round_;
            end = end_;
          }
          mine.serve(end);
          const std::lock_guard lock(turn_);
          if (--busy_ == 0) done_.notify_one();
        }
      });
    }
  } catch (const std::system_error& error) {
    return Error{.code = Errc::out_of_memory,
                 .message = text::format("the system has no room for {} threads: {}",
                                         workers_.size(), error.code().message())};
  }
  return {};
}

void Parallel::rewind() {
  for (const auto& worker : workers_) worker->next = 0;
  for (std::size_t i = 0; i < recorded_at_.size(); ++i) recorded_[i].store(false);
  run_.live_.await_all();
}

void Parallel::serve_all(std::size_t end) {
  const auto hidden = run_.hidden_ns_;
  running_ = true;
  {
    std::unique_lock lock(turn_);
    ++round_;
    end_ = end;
    busy_ = workers_.size();
    begun_.notify_all();
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  running_ = false;
  for (const auto& worker : workers_) worker->take_mail();
  run_.hidden_ns_ = hidden;  // it ran beside other threads
  add_up();
  if (run_.record_order_) run_.record_order_->pass_on();
}

void Parallel::add_up() {
  auto& pass = run_.pass_;
  std::uint64_t waited = 0;
  for (const auto& worker : workers_) {
    run_.live_bytes_ += static_cast<std::uint64_t>(worker->live_bytes.exchange(0));
    run_.live_count_ += static_cast<std::uint64_t>(std::exchange(worker->live_count, 0));
    pass.allocs += std::exchange(worker->allocs, 0);
    pass.frees += std::exchange(worker->frees, 0);
    run_.summary_.outcomes.worked_worked += std::exchange(worker->worked_worked, 0);
    waited = std::max(waited, std::exchange(worker->waited_ns, 0));
  }
  run_.waited_ns_ += waited;
  pass.peak_live_bytes = std::max({pass.peak_live_bytes, run_.live_bytes_, peak_live_.exchange(0)});
  pass.peak_requested_bytes =
      std::max(pass.peak_requested_bytes, pass.peak_live_bytes + run_.refused_bytes_);
  if (!run_.options_.checks) return;
  for (const auto& lane : run_.lanes_) {
    if (lane->open()) run_.measure_reserved(*lane);
  }
  pass.peak_reserved_bytes = std::max(pass.peak_reserved_bytes, peak_reserved_.exchange(0));
}

void Parallel::add_up_times() {
  for (const auto& worker : workers_) {
    run_.alloc_times_.add(worker->alloc_times);
    run_.free_times_.add(worker->free_times);
    run_.lateness_.add(worker->lateness);
  }
}

std::int64_t Parallel::live_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->live_bytes.load(std::memory_order_relaxed);
  return bytes;
}

/// What is live and held now, as far as one thread can see what others do meanwhile.
void Parallel::sample() {
  const auto live = static_cast<std::int64_t>(run_.live_bytes_) + live_bytes();
  if (live > 0) raise(peak_live_, static_cast<std::uint64_t>(live));
  if (!run_.options_.checks) return;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < run_.lanes_.size(); ++i) {
    auto& lane = *run_.lanes_[i];
    const bool first = std::none_of(
        run_.lanes_.begin(), run_.lanes_.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const auto& other) { return other->open() && other->shared == lane.shared; });
    if (lane.open() && first) held += lane.driver().held_bytes();
  }
  raise(peak_reserved_, held);
}

std::size_t Parallel::walk(std::size_t begin, std::size_t end) {
  // What was served before the threads began is not theirs.
  for (const auto& worker : workers_) {
    auto& next = worker->next;
    for (; next < worker->events.size() && worker->events[next] < begin; ++next) {
      const auto& event = run_.trace_[worker->events[next]];
      if (makes(event.op)) run_.live_.settle(event.id);
    }
  }
  auto at = std::lower_bound(alone_.begin(), alone_.end(), begin);
  while (begin < end && !run_.stop_) {
    auto until = at == alone_.end() ? end : std::min(*at, end);
    if (run_.record_order_) until = std::min(until, begin + kLogged);
    if (until > begin) serve_all(until);
    begin = until;
    if (run_.stop_ || begin == end || at == alone_.end() || *at != begin) continue;
    run_.walk(begin, begin + 1);
    const auto& event = run_.trace_[begin];
    if (event.op == Op::open_ipc_handle) run_.live_.settle(event.id);
    ++begin;
    ++at;
  }
  if (!run_.stop_) return end;
  if (run_.record_order_) run_.record_order_->pass_on();
  std::size_t served = 0;
  for (const auto& worker : workers_) served += worker->next;
  for (const auto one : alone_) served += one < begin ? 1 : 0;
  return std::min(served, end);
}

}  // namespace emm::replay
