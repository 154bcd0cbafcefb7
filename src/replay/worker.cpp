#include "replay/worker.hpp"

#include <algorithm>
#include <ctime>
#include <thread>

#include "replay/spin.hpp"

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;
using trace::Outcome;

constexpr unsigned kSpins = 256;    ///< Looks before a processor is given to others: 10 us.
constexpr std::size_t kMail = 32;   ///< Ranges sent at once.
constexpr std::size_t kErased = 2;  ///< Of those that came, at each allocation.

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

}  // namespace

Parallel::Worker::Worker(Parallel& all, std::size_t number, std::size_t threads)
    : all_(all),
      run_(all.run_),
      number_(number),
      cache_(all.run_.live_.cache(number + 1)),
      log_(all.run_.record_order_.get()),
      records_(log_ != nullptr ? &log_->buffer(number) : nullptr),
      spins_(threads <= all.processors_.count() ? kSpins : 64),
      outgoing_(threads) {}

void Parallel::Worker::serve(std::size_t end) {
  const auto threads = outgoing_.size();
  const auto& processors = all_.processors_;
  if (threads > 1 && threads <= processors.count()) {
    processors.move_to((all_.first_processor_ + number_) % processors.count());
  }
  serve_events(end);
  for (std::size_t maker = 0; maker < outgoing_.size(); ++maker) send(maker);
}

void Parallel::Worker::take_mail() {
  do {
    for (const auto& range : taken_) range.shards->erase(range.begin, range.size, range.number);
    taken_.clear();
    mail_.take(taken_);
  } while (!taken_.empty());
}

void Parallel::Worker::take_some_mail() {
  if (taken_.empty()) {
    if (mail_.any()) mail_.take(taken_);
    return;
  }
  for (auto left = std::min(kErased, taken_.size()); left > 0; --left) {
    const auto range = taken_.back();
    taken_.pop_back();
    range.shards->erase(range.begin, range.size, range.number);
  }
}

void Parallel::Worker::send(std::size_t maker) {
  auto& ranges = outgoing_[maker];
  if (!ranges.empty()) all_.workers_[maker]->mail_.put(ranges);
}

void Parallel::Worker::displace(const Live& live, Lane& lane, std::uint64_t address) {
  auto& shards = *lane.shared->shards;
  const auto number = static_cast<std::uint32_t>(live.id);
  const auto maker = index(live.made_on);
  if (maker == number_) return shards.erase(address, live.size, number);
  outgoing_[maker].push_back({&shards, address, live.size, number});
  if (outgoing_[maker].size() >= kMail) send(maker);
}

/// What events to come will look at is asked for in the order in which one leads to the next.
void Parallel::Worker::prefetch() const {
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

void Parallel::Worker::serve_events(std::size_t end) {
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

void Parallel::Worker::stop() {
  run_.stop_ = true;
  all_.stopping_.store(true, std::memory_order_relaxed);
}

/// Calls `rare` as if the run served this event itself.
template <class Rare>
void Parallel::Worker::rarely(Rare rare) {
  const std::lock_guard lock(all_.rare_);
  run_.at_ = at_;
  rare();
  if (run_.stop_) stop();
}

bool Parallel::Worker::await_id(AllocId id) {
  return await(all_.stopping_, spins_, [&] { return run_.live_.settled(id); });
}

bool Parallel::Worker::await_record(std::uint32_t record) {
  if (run_.options_.threads == ReplayOptions::Threads::free) return true;
  if (record >= all_.recorded_at_.size() || all_.recorded_at_[record] > at_) return true;
  return await(all_.stopping_, spins_,
               [&] { return all_.recorded_[record].load(std::memory_order_acquire); });
}

/// False where the run stops.
bool Parallel::Worker::serve_one(const Event& event) {
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

void Parallel::Worker::allocate(const Event& event) {
  take_some_mail();
  auto& lane = *run_.lanes_[index(event.context)];
  const auto stream = lane.known_stream(index(event.stream));
  const bool timed = run_.options_.latency || log_ != nullptr;
  Run::Times times;
  if (timed) times.begin_ns = run_.clock_.now_ns();
  auto memory = event.op == Op::memalloc ? lane.context().memalloc(event.size, stream)
                                         : Run::managed(event, lane);
  if (timed) times.end_ns = run_.clock_.now_ns();
  if (run_.options_.latency) alloc_times.add(times.end_ns - times.begin_ns);
  if (!memory) {
    rarely([&] { run_.refused(event, memory.error(), times); });
    run_.live_.settle(event.id);
    return;
  }
  const auto slot = run_.hold(event, *std::move(memory), cache_);
  auto& live = run_.live_[slot];
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
  if (run_.options_.verify) rarely([&] { run_.fill(live, stream); });
  if (log_ != nullptr) {
    run_.record_at(*records_, log_->place(), at_, event, Outcome::ok, times,
                   live.memory.device_pointer().value, event.size, Op::memalloc);
  }
  settle(event);
  if (Run::nobody_holds(event)) {
    free_held(Run::free_of(event), slot);  // and no other thread has seen it
  } else {
    run_.live_.show(slot);
  }
  if (++since_sample_ >= all_.sample_every_) {
    since_sample_ = 0;
    all_.sample();
  }
}

void Parallel::Worker::check(const Event& event, Lane& lane, Live& live, std::uint32_t slot) {
  if (Run::has_place(live)) {
    const auto other = lane.shared->shards->insert(live.memory.device_pointer().value, event.size,
                                                   static_cast<std::uint32_t>(index(event.id)));
    live.placed = !other;
    if (other) rarely([&] { run_.overlap(live, AllocId{*other}); });
  }
  if (Run::stands_out(event, live)) rarely([&] { run_.check_made(event, slot); });
}

/// What worked as it was to costs no lock.
void Parallel::Worker::settle(const Event& event) {
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

void Parallel::Worker::free(const Event& event) {
  const auto slot = run_.live_.slot(event.id);
  if (slot == LiveSet::kNone) return rarely([&] { run_.free_other(event); });
  if (run_.live_[slot].ended) return rarely([&] { run_.free_ended(event, slot); });
  free_held(event, slot);
}

void Parallel::Worker::free_held(const Event& event, std::uint32_t slot) {
  auto& live = run_.live_[slot];
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
  run_.live_.reuse(slot, cache_);
  --live_count;
  live_bytes.store(live_bytes.load(std::memory_order_relaxed) - static_cast<std::int64_t>(size),
                   std::memory_order_relaxed);
  if (freed) ++frees;
  const auto outcome = freed ? Outcome::ok : outcome_of(freed.error());
  if (log_ != nullptr) {
    run_.record_at(*records_, place, at_, event, outcome, times, address.value, size, made_by);
  }
  if (run_.order_ && run_.order_->any_found()) rarely([&] { run_.report_hazards(); });
  if (freed) return settle(event);
  rarely([&] { run_.settle(event, outcome, &freed.error()); });
}

}  // namespace emm::replay
