#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "replay/operations.hpp"
#include "replay/processors.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// Replays each thread of a trace on a thread of its own. What changes more than one allocation
/// (reset, contexts, IPC, the making and ending of streams) is executed alone, while the threads
/// stand still; all else waits only for the ids that it names, and in Threads::recorded for the
/// records.
///
/// No wait is for ever: what is waited for stands before in the trace, so of all events that are
/// not yet executed the first can be.
class Parallel {
 public:
  Parallel(ReplayCore& core, Operations& operations);
  ~Parallel();

  /// Starts the threads. Error out_of_memory where the system has no more.
  Status start();
  /// Prepares another pass over the trace.
  void rewind();
  /// Executes [begin, end). Returns where it stopped: behind the last event executed, which is less
  /// than `end` where the run stops.
  std::size_t execute_range(std::size_t begin, std::size_t end);
  std::size_t thread_count() const noexcept { return workers_.size(); }

 private:
  class Worker;
  friend class Worker;

  /// Is the operation executed while the threads stand still?
  static bool is_alone(trace::Op op) noexcept;
  void run_threads(std::size_t end);
  /// Notes what is live and held now, as far as one thread can see what others do meanwhile.
  void sample();

  ReplayCore& core_;
  Operations& operations_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::size_t> alone_;                 ///< Events that are executed alone.
  std::unique_ptr<std::atomic<bool>[]> recorded_;  ///< By record: was it made?
  std::vector<std::uint64_t> recorded_at_;         ///< Event, by record; 2^64-1: none.
  std::size_t sample_every_ = 1;                   ///< Allocations of a thread between samples.
  const Processors processors_;
  std::size_t first_processor_ = 0;  ///< The first thread's; the others' follow.
  std::atomic<bool> stopping_{false};

  // What follows is written while threads run, and lies apart from what they only read.
  alignas(128) std::mutex rare_;  ///< Guards the core, but for what a thread has to itself.
  alignas(128) std::atomic<std::uint64_t> peak_live_{0};
  std::atomic<std::uint64_t> peak_reserved_{0};

  alignas(128) std::mutex turn_;
  std::condition_variable begun_, done_;
  std::uint64_t round_ = 0;
  std::size_t end_ = 0, busy_ = 0;
  bool over_ = false;
};

}  // namespace emm::replay
