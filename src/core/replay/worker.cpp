#include "replay/worker.hpp"

#include <algorithm>
#include <ctime>
#include <thread>

#include "base/spin_lock.hpp"
#include "replay/execute.hpp"

namespace emm::replay {
namespace {

using trace::Event;
using trace::Op;

constexpr unsigned kSpins = 256;  ///< Looks before a thread yields its processor; they take 10 us.
constexpr std::size_t kPacket = 32;    ///< Ranges in a packet to another thread.
constexpr std::size_t kErasedNow = 2;  ///< Returned ranges that each allocation erases.

/// Polls `ready` at growing intervals until it is true. False if `give_up` was set first.
template <class Ready>
bool wait_until(const std::atomic<bool>& give_up, unsigned spins, Ready ready) {
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
      core_(all.core_),
      number_(number),
      cache_(all.core_.held.live.cache(number + 1)),
      log_(all.core_.log.order()),
      records_(log_ != nullptr ? &log_->buffer(number) : nullptr),
      spins_(threads <= all.processors_.count() ? kSpins : 64),
      outgoing_(threads) {}

void Parallel::Worker::execute_until(std::size_t end) {
  const auto threads = outgoing_.size();
  const auto& processors = all_.processors_;
  if (threads > 1 && threads <= processors.count()) {
    processors.move_to((all_.first_processor_ + number_) % processors.count());
  }
  execute_events(end);
  for (std::size_t maker = 0; maker < outgoing_.size(); ++maker) send(maker);
}

void Parallel::Worker::erase_returned() {
  do {
    for (const auto& range : returned_) range.shards->erase(range.begin, range.size, range.number);
    returned_.clear();
    mail_.take(returned_);
  } while (!returned_.empty());
}

void Parallel::Worker::erase_some_returned() {
  if (returned_.empty()) {
    if (mail_.any()) mail_.take(returned_);
    return;
  }
  for (auto left = std::min(kErasedNow, returned_.size()); left > 0; --left) {
    const auto range = returned_.back();
    returned_.pop_back();
    range.shards->erase(range.begin, range.size, range.number);
  }
}

void Parallel::Worker::send(std::size_t maker) {
  auto& ranges = outgoing_[maker];
  if (!ranges.empty()) all_.workers_[maker]->mail_.put(ranges);
}

void Parallel::Worker::erase_address(ContextState& context, const Live& live) {
  auto& shards = *context.device_state->shards;
  const auto address = live.memory.device_pointer().value;
  const auto number = static_cast<std::uint32_t>(live.id);
  const auto maker = index(live.made_on);
  if (maker == number_) return shards.erase(address, live.size, number);
  outgoing_[maker].push_back({&shards, address, live.size, number});
  if (outgoing_[maker].size() >= kPacket) send(maker);
}

/// Prefetches for the events to come. One access needs the result of the one before: the event, the
/// place of its id, the slot there, the entry of the slot. So each step runs some events ahead of
/// the next.
void Parallel::Worker::prefetch() const {
  const auto& live = core_.held.live;
  const auto ahead = [&](std::size_t by) {
    return next + by < events.size() ? &core_.state.trace[events[next + by]] : nullptr;
  };
  if (const auto* event = ahead(12)) {
    __builtin_prefetch(event);
    __builtin_prefetch(&event->op);
  }
  if (const auto* event = ahead(8)) live.prefetch_place(event->id);
  if (const auto* event = ahead(5)) live.prefetch_slot(event->id);
  if (const auto* event = ahead(2); event != nullptr && event->op == Op::free) {
    live.prefetch_entry(event->id);
  }
}

void Parallel::Worker::execute_events(std::size_t end) {
  const CurrentEvent current(at_);
  static constexpr std::atomic<bool> kNotInterrupted{false};
  const auto& options = core_.state.options;
  const auto& interrupted = options.interrupted != nullptr ? *options.interrupted : kNotInterrupted;
  for (; next < events.size() && events[next] < end; ++next) {
    if (all_.stopping_.load(std::memory_order_relaxed)) return;
    if (interrupted.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(all_.rare_);
      core_.judge.summary.interrupted = true;
      return stop();
    }
    at_ = events[next];
    prefetch();
    const auto& event = core_.state.trace[events[next]];
    if (core_.pace) accounts.waited_ns += core_.pace->wait(event.time_ns, accounts.lateness);
    if (!execute(*this, event)) return;
  }
}

void Parallel::Worker::stop() {
  core_.state.stop = true;
  all_.stopping_.store(true, std::memory_order_relaxed);
}

bool Parallel::Worker::await_id(AllocId id) {
  return wait_until(all_.stopping_, spins_, [&] { return core_.held.live.is_decided(id); });
}

/// The acquire load pairs with the release store in executed(). So the work before the record has
/// been put on its stream.
bool Parallel::Worker::await_record(std::uint32_t record) {
  if (core_.state.options.threads == ReplayOptions::Threads::free) return true;
  if (record >= all_.recorded_at_.size() || all_.recorded_at_[record] > at_) return true;
  return wait_until(all_.stopping_, spins_,
                    [&] { return all_.recorded_[record].load(std::memory_order_acquire); });
}

bool Parallel::Worker::await(const Event& event) {
  if (event.op == Op::free) return event.has(trace::event_flag::backing) || await_id(event.id);
  if (event.has(trace::event_flag::backing)) return true;
  const auto& detail = core_.state.trace.detail(event);
  if (event.detail != 0 && detail.process != 0) return true;  // of another process
  switch (event.op) {
    case Op::record_stream:
      return await_id(event.id);
    case Op::use:
      return std::all_of(detail.uses.begin(), detail.uses.end(),
                         [&](AllocId id) { return await_id(id); });
    case Op::stream_wait:
    case Op::event_sync:
      return await_record(detail.record);
    default:
      return true;
  }
}

void Parallel::Worker::executed(const Event& event) {
  if (asks_for_memory(event.op)) core_.held.live.mark_not_held(event.id);
  if (event.op == Op::event_record) {
    all_.recorded_[core_.state.trace.detail(event).record].store(true, std::memory_order_release);
  }
}

}  // namespace emm::replay
