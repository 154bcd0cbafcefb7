#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/op.hpp"

namespace emm::log {

/// The times of one kind of operation, in nanoseconds on the run's clock.
struct Percentiles {
  std::uint64_t count = 0;
  std::uint64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};

/// A live allocation, for a list of the biggest.
struct Holder {
  std::string id;
  std::uint64_t size = 0;
  std::uint32_t line = 0;
  std::vector<std::string> frames{};  ///< Its call stack, innermost first; may be empty.
};

/// A failing event, its place, and the state just before it.
struct Failure {
  std::uint64_t event = 0;  ///< Index in the trace, from 0.
  std::uint32_t line = 0;
  trace::Op op = trace::Op::memalloc;
  std::string id;
  std::uint64_t size = 0;
  std::uint64_t thread = 0;
  std::string stream;
  std::string context;
  trace::Outcome outcome = trace::Outcome::error;
  std::string error;  ///< The manager's or driver's words.
  std::vector<std::string> frames;
  std::uint64_t live_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::optional<std::uint64_t> free_bytes;  ///< Free on the device, where it tells.
  std::optional<std::uint64_t> largest_free_bytes;
  // What the manager holds beside what is live, where it counts that:
  std::optional<std::uint64_t> idle_bytes{};          ///< Free memory that it keeps.
  std::optional<std::uint64_t> largest_idle_bytes{};  ///< The largest piece of that.
  std::optional<std::uint64_t> waiting_bytes{};       ///< Bytes of event-deferred frees.
  std::vector<Holder> holders;  ///< The biggest live allocations, at most ten.
};

/// Something that a manager must never do.
struct Violation {
  enum class Kind : std::uint8_t {
    overlap,
    misaligned,
    wrong_size,
    corruption,
    wrong_address,
    hazard,
    unexpected,
    balance,
    contract,  ///< A call that has no answer went wrong.
  };
  Kind kind = Kind::overlap;
  std::uint64_t event = 0;
  std::uint32_t line = 0;
  std::string words;  ///< One sentence with the ids, addresses and sizes.
};
inline constexpr std::array<std::string_view, 9> kViolationNames{
    "overlap", "misaligned",         "wrong size", "corruption", "wrong address",
    "hazard",  "unexpected outcome", "balance",    "contract"};

/// Counts operations by their recorded result and today's, where there is a recorded one.
struct FourWay {
  std::uint64_t worked_worked = 0, worked_fails = 0, fails_works = 0, fails_fails = 0;
};

/// A deferring manager emptied its queue while event `event` was executed.
struct Flush {
  std::uint64_t event = 0;
  std::uint64_t seq = 0;  ///< The operation's own `seq`, or `event` where it has none.
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Flush&) const = default;
};

/// The flushes of a recording against those of its replay, in order. A recorded one belongs to the
/// last operation before it in its context.
struct FlushComparison {
  std::uint64_t recorded = 0;
  std::uint64_t as_recorded = 0;  ///< At the same event, with the same count and bytes.
  std::uint64_t unrecorded = 0;   ///< In the replay alone.
  std::string first_difference;   ///< One sentence; empty if there is none.
};
FlushComparison compare_flushes(const std::vector<Flush>& recorded,
                                const std::vector<Flush>& replayed);

/// How far the model of the allocator that a recording was made on agrees with it. Each step is
/// judged from the recorded state before it.
struct ModelAgreement {
  struct Count {
    std::uint64_t recorded = 0, as_recorded = 0;
  };
  Count segments, placements, releases, refusals;
  std::uint64_t inferred_pools = 0;  ///< Segments whose pool the recording does not name.
  std::uint64_t ties = 0;            ///< Placements that rules alone do not settle.
  std::uint64_t unknown = 0;  ///< Placements in memory from before the recording: not judged.
  std::uint64_t inferred_flushes = 0;  ///< Releases of idle memory that no row tells of.
  /// A run of the model from the first request, with segments of its own: the least and the most
  /// over what the recording leaves open.
  struct Range {
    std::uint64_t low = 0, high = 0;
  };
  Range peak_reserved, retries, ooms, device_allocs, device_frees;
  /// What a recording tells of a limit that it does not name: it was `least` or more, and less than
  /// `below`.
  struct InferredLimit {
    std::uint64_t least = 0, below = 0;
    std::string_view by;  ///< A literal: what tells it.
  };
  std::optional<InferredLimit> inferred_limit{};
  std::string first_difference;  ///< One sentence; empty if there is none.
};

/// What the manager of a context counted.
struct Statistics {
  struct Named {
    std::string_view name;  ///< A literal.
    std::uint64_t value = 0;
  };
  std::string context;
  std::vector<Named> torch;  ///< Under the names of torch.cuda.memory_stats().
  std::vector<Named> rmm;    ///< Under the names of RMM's statistics_resource_adaptor.
  std::vector<Named> other;  ///< What neither of them has.
};

/// Operations that the manager answered with not_supported, by operation.
struct Declined {
  trace::Op op = trace::Op::memalloc;
  std::uint64_t count = 0;
  std::string why;  ///< The words of the first.
};

/// One pass of a replay: "emmctl.replay/1". Bytes are requested bytes of device and managed memory
/// unless the name says otherwise; peaks are over events.
struct Pass {
  std::uint64_t events = 0;  ///< Replayed: walked, less those of the recording's backing layer.
  std::uint64_t allocs = 0;  ///< That worked: memalloc, memallocmanaged, memhostalloc, mempin.
  std::uint64_t frees = 0;   ///< Carried out, late ones too.
  std::uint64_t failures =
      0;  ///< Operations that failed and that neither `expect` nor the recording says fail.
  std::uint64_t unmade =
      0;  ///< Operations on what was never made, because making it failed or was declined.
  std::uint64_t leaked = 0, leaked_bytes = 0;  ///< Alive at the end; of every kind of memory.
  std::uint64_t hazards = 0;
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t peak_requested_bytes =
      0;  ///< As peak_live_bytes would be had no request failed but those that were to.
  std::uint64_t peak_host_bytes = 0;  ///< The peak of live memory of memhostalloc and mempin.
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t reserved_at_end_bytes = 0;
  double ns_per_event = 0;
  std::uint64_t elapsed_ns = 0;
  /// What the driver's calls cost by the simulated device's model, where the run's clock is
  /// another.
  std::optional<std::uint64_t> simulated_ns{};
  double simulated_ns_per_event = 0;
};

/// The most that was live and reserved in one of the equal parts that a pass is cut into.
struct CoursePoint {
  std::uint64_t live = 0, reserved = 0;
};

/// How the process of a foreign manager ended early. The summary has what was found until then.
struct Abnormal {
  std::string words;                     ///< One sentence.
  int signal = 0;                        ///< The signal that ended it, or 0.
  bool hung = false;                     ///< A call did not return in time.
  std::optional<std::uint64_t> event{};  ///< The event that was being executed.
  std::uint32_t line = 0;
};

struct Summary {
  std::string trace, manager, device, clock;
  Pass pass;                  ///< The first.
  std::vector<Pass> repeats;  ///< All of them, where there are several.
  std::optional<Percentiles> alloc_latency, free_latency;
  std::optional<Percentiles> lateness;  ///< How late events began that kept their recorded times.
  std::uint64_t threads = 1;            ///< Threads that replayed at once.
  std::optional<Failure> first_failure;
  FourWay outcomes;
  /// Requests for device memory that the recording refused, and that run out of it here too.
  std::uint64_t refused_again = 0;
  /// Each device's peak in the first pass, by its number; empty where several threads replay.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> peak_reserved_by_device;
  /// Of the first pass, in at most kCoursePoints parts; empty where several threads replay.
  std::vector<CoursePoint> course{};
  static constexpr std::size_t kCoursePoints = 480;
  std::vector<Flush> flushes;                       ///< Those of the first pass.
  std::optional<FlushComparison> recorded_flushes;  ///< Present if the recording has flushes.
  /// Present if the manager is the model of the allocator that was recorded, with its settings.
  std::optional<ModelAgreement> model_agreement{};
  std::vector<Violation> violations;  ///< The first hundred.
  std::uint64_t violation_count = 0;  ///< The number of all.
  std::vector<Declined> declined;
  /// What the managers counted in the last pass, taken before leaks were freed. Empty where they do
  /// not count.
  std::vector<Statistics> statistics;
  /// Operations that this replay cannot execute, or was asked not to.
  std::uint64_t skipped = 0;
  std::vector<std::string> notes;  ///< What a person should know, a sentence each.
  std::string reports;             ///< What the managers and adaptors say at the end, in lines.
  bool interrupted = false;
  std::optional<std::uint64_t> stopped_at;  ///< Event of --stop-at or --on-oom stop.
  std::optional<Failure> stop_state;        ///< The state before that event.
  std::vector<Holder> leaks;                ///< The biggest, at most ten.
  std::optional<Abnormal> abnormal;
};

}  // namespace emm::log
