#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "replay/mail.hpp"
#include "replay/parallel.hpp"
#include "replay/record_order.hpp"

namespace emm::replay {

/// Replays one thread of the trace: the Access of execute() with many threads. It counts for
/// itself, and the run adds the counts up.
///
/// Threads that wait for each other's ids are as slow as the one that is held up at the moment. So
/// a thread spreads its extra work: it erases a few returned ranges with each allocation, and sends
/// ranges to other threads in packets.
class alignas(128) Parallel::Worker {
 public:
  /// `number` is the thread's number in the trace, of `threads`.
  Worker(Parallel& all, std::size_t number, std::size_t threads);

  std::vector<std::uint32_t> events;  ///< This thread's events, in order.
  std::size_t next = 0;               ///< Index in `events`.
  std::thread thread;
  ThreadAccounts accounts;

  /// Executes the events before `end`.
  void execute_until(std::size_t end);
  /// Erases the ranges of memory that this thread made and other threads freed.
  void erase_returned();

  // The Access of execute().
  static constexpr bool kShowsAtOnce = false;

  ReplayCore& core() noexcept { return core_; }
  Operations& operations() noexcept { return all_.operations_; }
  bool checks() const noexcept { return core_.state.options.checks; }
  bool latency() const noexcept { return core_.state.options.latency; }
  bool timed() const noexcept { return latency() || log_ != nullptr; }
  static constexpr bool watched() noexcept { return true; }

  bool await(const trace::Event& event);
  void executed(const trace::Event& event);
  void request_failed(AllocId id) noexcept { core_.held.live.mark_not_held(id); }
  /// Calls `rare` under the lock, with this thread's event as the run's current event.
  template <class Rare>
  void rarely(Rare rare) {
    const std::lock_guard lock(all_.rare_);
    core_.state.at = at_;
    rare();
    if (core_.state.stop) stop();
  }

  ContextState* context(ContextId id) noexcept { return &core_.contexts[id]; }
  StreamHandle stream(ContextState& context, const trace::Event& event) const noexcept {
    return context.known_stream(index(event.stream));
  }
  /// Includes excluded time, because another thread may be changing that.
  std::uint64_t now() const noexcept { return core_.clock.raw_ns(); }
  LiveSet::Cache& cache() noexcept { return cache_; }

  void add_alloc_time(std::uint64_t ns) noexcept { accounts.alloc_times.add(ns); }
  void add_free_time(std::uint64_t ns) noexcept { accounts.free_times.add(ns); }
  void allocated(std::uint64_t size) noexcept {
    erase_some_returned();
    ++accounts.allocs;
    ++accounts.live_count;
    add_live(static_cast<std::int64_t>(size));
    ++since_sample_;
  }
  void freed(std::uint64_t size, bool succeeded) noexcept {
    --accounts.live_count;
    add_live(-static_cast<std::int64_t>(size));
    if (succeeded) ++accounts.frees;
  }
  void succeeded_as_recorded() noexcept {
    if (core_.state.pass == 0) ++accounts.succeeded_as_recorded;
  }
  static void measure(ContextState&) noexcept {}  // Parallel::sample() measures now and then
  void allocation_done() {
    if (since_sample_ < all_.sample_every_) return;
    since_sample_ = 0;
    all_.sample();
  }

  std::optional<std::uint32_t> insert_address(ContextState& context, const Live& live) {
    return context.device_state->shards->insert(live.memory.device_pointer().value, live.size,
                                                static_cast<std::uint32_t>(live.id));
  }
  /// Leaves the range to the thread that made the memory, which has the map's lines in its cache.
  void erase_address(ContextState& context, const Live& live);
  std::uint64_t record_place() noexcept { return log_ != nullptr ? log_->place() : 0; }
  void record(std::uint64_t place, const trace::Event& event, trace::Outcome outcome, Times times,
              std::uint64_t address, std::uint64_t size, trace::Op freed_kind) {
    if (log_ == nullptr) return;
    core_.log.add_at(*records_, place, at_, event, outcome, times, address, size, freed_kind);
  }

 private:
  void execute_events(std::size_t end);
  void prefetch() const;
  bool await_id(AllocId id);
  bool await_record(std::uint32_t record);
  void send(std::size_t maker);
  void erase_some_returned();
  void stop();
  /// Only this thread writes the number, so a load and a store suffice. An atomic addition would
  /// cost a locked instruction for each event.
  void add_live(std::int64_t bytes) noexcept {
    accounts.live_bytes.store(accounts.live_bytes.load(std::memory_order_relaxed) + bytes,
                              std::memory_order_relaxed);
  }

  Parallel& all_;
  ReplayCore& core_;
  const std::size_t number_;
  LiveSet::Cache& cache_;
  RecordOrder* const log_;
  RecordOrder::Buffer* const records_;  ///< Null if log_ is null.
  const unsigned spins_;
  std::uint64_t at_ = 0;  ///< Index of the event being executed.
  std::size_t since_sample_ = 0;
  std::vector<std::vector<Mail::Range>> outgoing_;  ///< Indexed by the thread that made the memory.
  std::vector<Mail::Range> returned_;               ///< Ranges that this thread must still erase.
  Mail mail_;
};

}  // namespace emm::replay
