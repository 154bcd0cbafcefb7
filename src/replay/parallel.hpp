#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "replay/run.hpp"

namespace emm::replay {

/// Keeps the records of threads until there is an order for them: that in which memory began and
/// ended to be theirs, so that an address is never live twice in a log. Any thread may give one.
class RecordOrder final : public log::RecordSink {
 public:
  explicit RecordOrder(log::RecordSink& log) noexcept : log_(log) {}

  /// A place in the order: of what gives memory after it was given, of what ends it before.
  std::uint64_t place() noexcept { return places_.fetch_add(1, std::memory_order_relaxed); }
  void add(std::uint64_t place, const log::Record& record, const log::Gauges& gauges);
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    add(place(), record, gauges);
  }
  /// Passes on what there is. REQUIRES: no thread is between place() and add().
  void pass_on();

 private:
  struct Kept {
    std::uint64_t place;
    log::Record record;
    log::Gauges gauges;
  };
  log::RecordSink& log_;
  std::atomic<std::uint64_t> places_{0};
  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::uint64_t live_bytes_ = 0, live_count_ = 0;
};

/// Replays each thread of a trace on a thread of its own. What changes more than one allocation
/// (reset, contexts, IPC, the making and ending of streams) is served alone, between others; all
/// else waits only for the ids that it names, and in Threads::recorded for the records.
///
/// No wait is for ever: what is waited for stands before in the trace, so of all that is not yet
/// served the first can be.
class Parallel {
 public:
  explicit Parallel(Run& run);
  ~Parallel();

  static bool alone(trace::Op op) noexcept;
  /// Starts the threads. Error out_of_memory where the system has no more.
  Status start();
  /// For another pass over the trace.
  void rewind();
  /// Serves [begin, end); returns after the last event served, which is less where the run stops.
  std::size_t walk(std::size_t begin, std::size_t end);
  std::size_t thread_count() const noexcept { return workers_.size(); }
  /// Live bytes of device memory, of what the threads have made since they were last counted.
  std::int64_t live_bytes() const noexcept;
  bool running() const noexcept { return running_; }
  void add_up_times();

 private:
  class Worker;
  friend class Worker;

  void serve_all(std::size_t end);
  void add_up();
  void sample();

  Run& run_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::size_t> alone_;                 ///< Events that are served alone.
  std::unique_ptr<std::atomic<bool>[]> recorded_;  ///< By record.
  std::vector<std::uint64_t> recorded_at_;         ///< Event, by record; 2^64-1: none.
  std::atomic<bool> stopping_{false};

  // What follows is written while threads run, apart from what they only read.
  alignas(128) std::mutex rare_;  ///< Around everything of the run but what threads have alone.
  alignas(128) std::atomic<std::uint64_t> peak_live_{0};
  std::atomic<std::uint64_t> peak_reserved_{0};

  alignas(128) std::mutex turn_;
  std::condition_variable begun_, done_;
  std::uint64_t round_ = 0;
  std::size_t end_ = 0, busy_ = 0;
  bool over_ = false;
  bool running_ = false;
};

}  // namespace emm::replay
