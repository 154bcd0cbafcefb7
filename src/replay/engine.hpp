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
#include "driver/types.hpp"
#include "emm/manager_observer.hpp"
#include "log/record.hpp"
#include "log/summary.hpp"
#include "order/checker.hpp"
#include "replay/peer.hpp"
#include "trace/trace.hpp"

namespace emm::replay {

struct ReplayOptions {
  enum class OnOom : std::uint8_t { record, stop };
  OnOom on_oom = OnOom::record;
  unsigned repeat = 1;   ///< Number of passes; no reset comes between them.
  bool checks = true;    ///< Checks overlap, alignment, size, balance. Off only in benchmarks.
  bool latency = false;  ///< Takes the time of each operation; else only that of each pass.
  bool verify = false;   ///< Fills each allocation, and reads it back at its end.
  /// A request that ran out of memory in the recording is a failure where it does so again.
  bool refusals_fail = false;
  /// trace: one thread replays all events in their order. recorded: each thread of the trace has a
  /// thread of its own, which waits for the ids and records that it needs. free: it waits for the
  /// ids alone.
  enum class Threads : std::uint8_t { trace, recorded, free };
  Threads threads = Threads::trace;
  double pace = 0;  ///< Keeps the recorded times, so many times as fast; 0 keeps none.
  std::optional<std::uint64_t>
      stop_at{};  ///< Ends before this event; Summary::stop_state then holds the state.
  const std::atomic<bool>* interrupted =
      nullptr;  ///< Set by a signal handler; ends the run after the current event.
  std::function<void(std::uint64_t done, std::uint64_t total)>
      progress{};  ///< Called every few thousand events.
  /// Of a trace that streams: called before the events [begin, end) are executed; those before
  /// `begin` are not looked at again. An error ends the run.
  std::function<Status(std::size_t begin, std::size_t end)> need{};
  /// Called for each context at the end, with the statistics of its manager, before the memory that
  /// is left is freed.
  std::function<void(const log::Statistics& statistics, std::uint32_t device,
                     const MemoryManager& manager)>
      look{};
  /// Zeroed memory of kKeptBytes that another process shares. The run and its findings lie there,
  /// for found_so_far(); where it is empty, they lie on the heap.
  std::span<std::byte> kept{};
};

inline constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

/// Makes the contexts of a trace: the engine knows neither devices nor managers.
class Stack {
 public:
  virtual ~Stack() = default;
  /// Makes a context on device `device` with a manager of its own, which reports to `observer`. An
  /// `order` decorates the device below all else. The Stack outlives the context.
  virtual Result<std::unique_ptr<Context>> make_context(std::uint32_t device,
                                                        ManagerObserver* observer,
                                                        order::Checker* order = nullptr) = 0;
  virtual Clock& clock() = 0;
  /// The simulated device's clock, where clock() is another; else null.
  virtual const Clock* model_clock() { return nullptr; }
  /// Starts the second process of an IPC section, on the same kind of device.
  virtual Result<std::unique_ptr<Peer>> start_peer(std::uint32_t device) = 0;
  virtual std::string describe_manager() const = 0;
  virtual std::string describe_device() const = 0;
};

/// Executes a trace over a manager stack.
///
/// What a manager does wrong is data (a Record, a Violation, Summary::first_failure), never the end
/// of the run, unless options ask for that. Errors are only those that leave nothing to report: no
/// context could be made, the log could not be written.
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

/// What a run in `kept` had found when its process ended as `how` says, whatever state that process
/// was in. Where it had found no failure, the end is the first. Empty: it had not begun.
std::optional<log::Summary> found_so_far(std::span<const std::byte> kept, const trace::Trace& trace,
                                         log::Abnormal how);

/// Did the run find a failure, by the rules of exit code 1: an operation that failed and that
/// neither `expect` nor the recording says fails, an expectation that was not met, overlap,
/// misalignment, corruption, hazard; leaks only where `leaks_fail`.
bool found_failure(const log::Summary& summary, bool leaks_fail) noexcept;

/// Was there nothing to judge: no operation, or no allocation that the manager did not decline.
bool judged_nothing(const log::Summary& summary) noexcept;

}  // namespace emm::replay
