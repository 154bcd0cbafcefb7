#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "replay/processors.hpp"
#include "replay/run.hpp"

namespace emm::replay {

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
  std::size_t sample_every_ = 1;                   ///< Allocations of a thread.
  const Processors processors_;
  std::size_t first_processor_ = 0;  ///< Of the first thread; the others' follow.
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
