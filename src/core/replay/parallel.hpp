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

/// Replays each thread of a trace on its own thread. Operations that change more than one
/// allocation (resets, contexts, IPC, creating and destroying streams) are executed alone, while
/// all threads are stopped. Every other event waits only for the ids that it names, and with
/// Threads::recorded for event records.
///
/// There is no deadlock: an event waits only for earlier events of the trace, so the first event
/// that is not yet executed can always go on.
class Parallel {
 public:
  Parallel(ReplayCore& core, Operations& operations);
  ~Parallel();

  /// Starts the threads. Error out_of_memory if the system has no more threads.
  Status start();
  /// Prepares another pass over the trace.
  void rewind();
  /// Executes [begin, end). Returns the index behind the last executed event, which is less than
  /// `end` if the run stops.
  std::size_t execute_range(std::size_t begin, std::size_t end);
  std::size_t thread_count() const noexcept { return workers_.size(); }

 private:
  class Worker;
  friend class Worker;

  /// Answers whether the operation is executed while all threads are stopped.
  static bool is_alone(trace::Op op) noexcept;
  void run_threads(std::size_t end);
  /// Notes the live and held bytes of now. Other threads go on, so they are approximate.
  void sample();

  ReplayCore& core_;
  Operations& operations_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::size_t> alone_;                 ///< Events that are executed alone.
  std::unique_ptr<std::atomic<bool>[]> recorded_;  ///< Whether each event record has been made.
  std::vector<std::uint64_t>
      recorded_at_;               ///< The event that makes each record; 2^64-1 if none does.
  std::size_t sample_every_ = 1;  ///< Allocations of a thread between two samples.
  const Processors processors_;
  std::size_t first_processor_ = 0;  ///< The first thread's processor; the others follow.
  std::atomic<bool> stopping_{false};

  // The members below are written while threads run, so they do not share cache lines with those
  // above.
  alignas(128) std::mutex rare_;  ///< Guards the core, except what belongs to one thread.
  alignas(128) std::atomic<std::uint64_t> peak_live_{0};
  std::atomic<std::uint64_t> peak_reserved_{0};

  alignas(128) std::mutex turn_;
  std::condition_variable begun_, done_;
  std::uint64_t round_ = 0;
  std::size_t end_ = 0, busy_ = 0;
  bool over_ = false;
};

}  // namespace emm::replay
