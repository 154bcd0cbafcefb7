#pragma once

#include <cstdint>
#include <memory>

#include "replay/operations.hpp"
#include "replay/parallel.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// One replay: all of Engine::run(). It leads the passes, and leaves the events to execute.hpp.
class Run {
 public:
  Run(const trace::Trace& trace, Stack& stack, const ReplayOptions& options, log::RecordSink* log)
      : stack_(stack), core_(trace, stack, options, log), operations_(core_, stack) {}

  Result<log::Summary> run();

  // These serve a run whose process is gone. Only numbers may be read: its pointers lead nowhere.
  void add_numbers(log::Summary& summary) const;
  bool has_threads() const noexcept { return core_.state.has_threads; }
  log::Failure ended_at(const trace::Trace& trace, const log::Abnormal& how) const;

 private:
  Status begin_threads();
  void describe_run();
  void run_pass();
  /// Where the events from `from` on end that make what was alive before the recording began: they
  /// are executed before the clock starts. Of a trace that streams, as far as a window reaches.
  std::size_t end_of_preexisting(std::size_t from);
  /// Has the events [begin, end), where the trace streams; false where the run ends instead.
  bool need(std::size_t begin, std::size_t end);
  /// Tells the managers what the program said of its pools in front of event `at`. Returns the next
  /// event in front of which it said something.
  std::size_t follow_pools(std::size_t at);
  void follow(const trace::PoolStep& step, ContextId in, MemoryManager& manager);
  /// The program has ended: no stream of it uses anything.
  void complete_frees();
  void add_pool_notes();
  /// Executes [done, end) by all threads, or by this one. Returns where it stopped.
  std::size_t execute(std::size_t done, std::size_t end);
  void measure_pass(std::size_t timed, std::uint64_t model_elapsed_ns);
  void count_leaks();
  /// Frees what is left. The frees are `logged` where another pass follows.
  void end_leftovers(bool logged);
  void end_leftover_host_memory(bool logged);
  void end_leftover_device_memory(bool logged);
  void report_leftover(const Status& freed);
  /// Everything has been freed: a manager that keeps accounts must say so, too.
  void check_balance();
  /// Reads what managers count, and lets ReplayOptions::look see them, while memory is still held.
  void read_statistics();
  void finish();

  Stack& stack_;
  ReplayCore core_;
  Operations operations_;
  std::size_t pool_step_ = 0;           ///< The next of the trace's.
  bool follows_pools_ = false;          ///< A manager has private pools.
  std::uint64_t delayed_frees_ = 0;     ///< Of the first pass, that a manager kept back.
  std::unique_ptr<Parallel> parallel_;  ///< Last: its threads use all of this.
};

}  // namespace emm::replay
