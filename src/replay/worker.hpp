#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "replay/mail.hpp"
#include "replay/parallel.hpp"
#include "replay/record_order.hpp"

namespace emm::replay {

/// One thread of the trace. What it counts is its own until the run adds it up.
///
/// Threads that need each other's ids go on no faster than the one that stands still, whichever
/// that is at the time: so nothing is left to be done at once that could be done a little at a
/// time.
class alignas(128) Parallel::Worker {
 public:
  Worker(Parallel& all, std::size_t number, std::size_t threads);

  std::vector<std::uint32_t> events;  ///< Of this thread, in order.
  std::size_t next = 0;               ///< Of those.
  std::thread thread;
  std::int64_t live_count = 0;
  std::uint64_t allocs = 0, frees = 0, worked_worked = 0, waited_ns = 0;
  Histogram alloc_times, free_times, lateness;

  /// Serves what is before event `end`.
  void serve(std::size_t end);
  /// Erases what others have ended of the memory that this thread made.
  void take_mail();

  /// Looked at by others now and then.
  alignas(128) std::atomic<std::int64_t> live_bytes{0};

 private:
  using Event = trace::Event;

  void serve_events(std::size_t end);
  void prefetch() const;
  bool serve_one(const Event& event);
  void allocate(const Event& event);
  void check(const Event& event, Lane& lane, Live& live, std::uint32_t slot);
  void free(const Event& event);
  void free_held(const Event& event, std::uint32_t slot);
  void settle(const Event& event);
  bool await_id(AllocId id);
  bool await_record(std::uint32_t record);
  void displace(const Live& live, Lane& lane, std::uint64_t address);
  void send(std::size_t maker);
  void take_some_mail();
  void stop();
  template <class Rare>
  void rarely(Rare rare);

  Parallel& all_;
  Run& run_;
  const std::size_t number_;
  LiveSet::Cache& cache_;
  RecordOrder* const log_;
  RecordOrder::Buffer* const records_;  ///< Null where log_ is.
  const unsigned spins_;
  std::uint64_t at_ = 0;
  std::size_t since_sample_ = 0;
  std::vector<std::vector<Mail::Gone>> outgoing_;  ///< By the thread that made them.
  std::vector<Mail::Gone> taken_;                  ///< Still to be erased.
  Mail mail_;
};

}  // namespace emm::replay
