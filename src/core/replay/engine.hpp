#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "emm/manager_observer.hpp"
#include "log/record.hpp"
#include "log/summary.hpp"
#include "replay/peer.hpp"
#include "stream_order/checker.hpp"
#include "trace/trace.hpp"

namespace emm {
struct MemoryMap;  // emm/memory_map.hpp
}

namespace emm::replay {

struct ReplayOptions {
  enum class OnOom : std::uint8_t { record, stop };
  OnOom on_oom = OnOom::record;
  unsigned repeat = 1;   ///< Number of passes; no reset comes between them.
  bool checks = true;    ///< Checks overlap, alignment, size, balance. Off only in benchmarks.
  bool latency = false;  ///< Measures each operation; else only each pass.
  bool verify = false;   ///< Fills each allocation, and checks the content at its end.
  /// A request that ran out of memory in the recording is a failure if it does so again.
  bool refusals_fail = false;
  /// trace: one thread replays all events in order. recorded: each thread of the trace has its own
  /// thread, which waits for the ids and event records that it needs. free: these threads wait only
  /// for ids.
  enum class Threads : std::uint8_t { trace, recorded, free };
  Threads threads = Threads::trace;
  double pace = 0;  ///< Keeps the recorded times, sped up by this factor; 0 ignores them.
  std::optional<std::uint64_t>
      stop_at{};  ///< Ends before this event; Summary::stop_state then holds the state.
  const std::atomic<bool>* interrupted =
      nullptr;  ///< Set by a signal handler; ends the run after the current event.
  std::function<void(std::uint64_t done, std::uint64_t total)>
      progress{};  ///< Called every few thousand events.
  /// For a trace that streams: called before the events [begin, end) are executed. The events
  /// before `begin` are not read again. An error ends the run.
  std::function<Status(std::size_t begin, std::size_t end)> need{};
  /// Called at the end for each context, before leftover memory is freed, with its manager's
  /// statistics and, if the manager has one, its map of memory.
  std::function<void(const log::ContextStatistics& statistics, std::uint32_t device,
                     const std::optional<MemoryMap>& map)>
      look{};
  /// kKeptBytes of zeroed memory, shared with another process. The run and its findings are stored
  /// there for found_so_far(). Empty means the heap.
  std::span<std::byte> kept{};
};

// For ReplayOptions::kept: the summary that is kept while the run goes on.
inline constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

/// Makes the contexts of a trace: the engine knows neither devices nor managers.
class Stack {
 public:
  virtual ~Stack() = default;
  /// Makes a context on device `device` with a new manager, which reports to `observer`. If `order`
  /// is given, it observes the driver calls below all else. The Stack must outlive the context.
  virtual Result<std::unique_ptr<Context>> make_context(std::uint32_t device,
                                                        ManagerObserver* observer,
                                                        stream_order::Checker* order = nullptr) = 0;
  virtual Clock& clock() = 0;
  /// The simulated device's clock if clock() is another one; else null.
  virtual const Clock* model_clock() { return nullptr; }
  /// Starts the second process of an IPC section, on the same kind of device.
  virtual Result<std::unique_ptr<Peer>> start_peer(std::uint32_t device) = 0;
  virtual std::string describe_manager() const = 0;
  virtual std::string describe_device() const = 0;
};

/// Executes a trace over a manager stack.
///
/// A manager's mistake is data (a Record, a Violation, Summary::first_failure) and does not end the
/// run unless the options say so. run() returns an error only if there is nothing to report,
/// because no context could be made or the log could not be written.
class Engine {
 public:
  Engine(const trace::Trace& trace, Stack& stack, ReplayOptions options,
         log::RecordSink* log = nullptr);
  ~Engine();

  Result<log::Summary> run();

 private:
  friend std::optional<log::Summary> found_so_far(std::span<const std::byte>, const trace::Trace&,
                                                  log::Abnormal);
  struct State;
  struct End {
    bool in_place = false;
    void operator()(State* state) const;
  };
  static std::unique_ptr<State, End> begin(const trace::Trace& trace, Stack& stack,
                                           ReplayOptions options, log::RecordSink* log);
  std::unique_ptr<State, End> state_;
};

/// What a run in `kept` had found when its process ended as `how` says, in whatever state. If it
/// had found no failure, the end of the process becomes the first. Empty if the run had not begun.
std::optional<log::Summary> found_so_far(std::span<const std::byte> kept, const trace::Trace& trace,
                                         log::Abnormal how);

/// Answers whether the run found a failure, by the rules of exit code 1. These are: an operation
/// that failed although neither `expect` nor the recording says so, an unmet expectation, overlap,
/// misalignment, corruption, a hazard, and with `leaks_fail` a leak.
bool found_failure(const log::Summary& summary, bool leaks_fail) noexcept;

/// Answers whether there was nothing to judge: no operation, or only allocations that the manager
/// declined.
bool judged_nothing(const log::Summary& summary) noexcept;

/// Returns the exit code of a replay: 128 + n if signal n ended it, 1 if it found_failure(), 3 if
/// it judged_nothing(), else 0.
int exit_code(const log::Summary& summary, bool leaks_fail = false) noexcept;

}  // namespace emm::replay
