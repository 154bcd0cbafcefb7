#pragma once

#include <cstdint>
#include <memory>

#include "replay/operations.hpp"
#include "replay/parallel.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// One replay, which does the work of Engine::run(). It runs the passes; execute.hpp executes the
/// events.
class ReplayRun {
 public:
  ReplayRun(const trace::Trace& trace, Stack& stack, const ReplayOptions& options,
            log::RecordSink* log)
      : stack_(stack), core_(trace, stack, options, log), operations_(core_, stack) {}

  Result<log::Summary> run();

  // These serve a run whose process is gone. They may read only numbers, since its pointers are
  // invalid.
  void add_numbers(log::Summary& summary) const;
  bool has_threads() const noexcept { return core_.state.has_threads; }
  log::Failure ended_at(const trace::Trace& trace, const log::Abnormal& how) const;

 private:
  Status begin_threads();
  void describe_run();
  void run_pass();
  /// The end of the events from `from` on that make memory from before the recording began. The run
  /// executes these before the clock starts. In a trace that streams, looks only as far as the
  /// window reaches.
  std::size_t end_of_preexisting(std::size_t from);
  /// Makes the events [begin, end) available if the trace streams. False if the run must end
  /// instead.
  bool need(std::size_t begin, std::size_t end);
  /// Passes the trace's pool steps up to event `at` to the managers. Returns the event before which
  /// the next step comes.
  std::size_t follow_pools(std::size_t at);
  void follow(const trace::PoolStep& step, ContextId in, MemoryManager& manager);
  /// Completes all delayed frees, since the program has ended and its streams use no memory.
  void complete_frees();
  void add_pool_notes();
  /// Executes [done, end) on all threads, or on this one. Returns where it stopped.
  std::size_t execute(std::size_t done, std::size_t end);
  void measure_pass(std::size_t timed, std::uint64_t model_elapsed_ns);
  void count_leaks();
  /// Frees the memory that is left. The frees are `logged` if another pass follows.
  void end_leftovers(bool logged);
  void end_leftover_host_memory(bool logged);
  void end_leftover_device_memory(bool logged);
  void report_leftover(const Status& freed);
  /// After everything has been freed, checks that managers which count live bytes report none.
  void check_balance();
  /// Reads the managers' statistics, and calls ReplayOptions::look, while memory is still held.
  void read_statistics();
  void finish();

  Stack& stack_;
  ReplayCore core_;
  Operations operations_;
  std::size_t pool_step_ = 0;           ///< Index of the trace's next pool step.
  bool follows_pools_ = false;          ///< A manager has private pools.
  std::uint64_t delayed_frees_ = 0;     ///< Frees of the first pass that a manager delayed.
  std::unique_ptr<Parallel> parallel_;  ///< Last, because its threads use all other members.
};

}  // namespace emm::replay
