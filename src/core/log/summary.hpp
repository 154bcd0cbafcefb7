#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/members.hpp"
#include "base/named_statistic.hpp"
#include "trace/op.hpp"

namespace emm::format {
class JsonWriter;
}

namespace emm::log {

/// The times of one kind of operation, in nanoseconds on the run's clock.
struct Percentiles {
  std::uint64_t count = 0;
  std::uint64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};
EMM_MEMBERS_OF(Percentiles, p50, p90, p99, p999, max, count)

/// A live allocation, for a list of the largest.
struct Holder {
  std::string id;
  std::uint64_t size = 0;
  std::uint32_t line = 0;
  std::vector<std::string> frames{};  ///< Its call stack, innermost first; may be empty.
};
void write_members(format::JsonWriter& json, const Holder& holder);

/// A failed event, its place, and the state just before it.
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
  std::string error;  ///< The manager's or driver's message.
  std::vector<std::string> frames;
  std::uint64_t live_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::optional<std::uint64_t> free_bytes;  ///< Free on the device, if known.
  std::optional<std::uint64_t> largest_free_bytes;
  // Memory that the manager holds beyond the live memory, if it counts it:
  std::optional<std::uint64_t> idle_bytes{};          ///< Free memory that it keeps.
  std::optional<std::uint64_t> largest_idle_bytes{};  ///< The largest block of that.
  std::optional<std::uint64_t> waiting_bytes{};       ///< Bytes of event-deferred frees.
  std::vector<Holder> holders;  ///< The largest live allocations, at most ten.
};
EMM_MEMBERS_OF(Failure, event, line, op, id, size, thread, stream, outcome, live_bytes,
               reserved_bytes, largest_free_bytes, holders, context, error, free_bytes, idle_bytes,
               largest_idle_bytes, waiting_bytes, frames)
/// Writes also the frame that is shown first.
void write_members(format::JsonWriter& json, const Failure& failure);

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
    contract,  ///< A call that cannot return an error failed.
  };
  Kind kind = Kind::overlap;
  std::uint64_t event = 0;
  std::uint32_t line = 0;
  std::string words;  ///< One sentence with the ids, addresses and sizes.
};
constexpr std::string_view name(Violation::Kind kind) noexcept {
  constexpr std::array<std::string_view, 9> kNames{
      "overlap", "misaligned",         "wrong size", "corruption", "wrong address",
      "hazard",  "unexpected outcome", "balance",    "contract"};
  return kNames[static_cast<std::size_t>(kind)];
}
EMM_MEMBERS_OF(Violation, kind, event, line, words)

/// Counts the operations that have a recorded result, by that result and the replay's.
struct FourWay {
  std::uint64_t succeeded_as_recorded = 0, only_recording_succeeded = 0, only_replay_succeeded = 0,
                failed_as_recorded = 0;
};

/// One emptying of a manager's queue of deferred frees, during event `event`.
struct Flush {
  std::uint64_t event = 0;
  std::uint64_t seq = 0;  ///< The operation's own `seq`, or `event` if it has none.
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Flush&) const = default;
};

/// Compares the flushes of a recording with those of its replay, in order. A recorded flush belongs
/// to the last operation before it in its context.
struct FlushComparison {
  std::uint64_t recorded = 0;
  std::uint64_t as_recorded = 0;  ///< At the same event, with the same count and bytes.
  std::uint64_t unrecorded = 0;   ///< Only in the replay.
  std::string first_difference;   ///< One sentence. Empty if there is none.
};
EMM_MEMBERS_OF(FlushComparison, recorded, as_recorded, unrecorded, first_difference)
FlushComparison compare_flushes(const std::vector<Flush>& recorded,
                                const std::vector<Flush>& replayed);

/// How well the model of the recorded allocator agrees with the recording. Each step is judged from
/// the recorded state before it.
struct ModelAgreement {
  struct Count {
    std::uint64_t recorded = 0, as_recorded = 0;
  };
  Count segments, placements, releases, refusals;
  std::uint64_t inferred_pools = 0;  ///< Segments whose pool the recording does not name.
  std::uint64_t ties = 0;            ///< Placements among equals, which no rule decides.
  /// Placements that depend on memory from before the recording. Not judged.
  std::uint64_t unknown = 0;
  std::uint64_t inferred_flushes = 0;  ///< Releases of idle memory that no row reports.
  /// The least and the greatest value over everything that the recording leaves open. They come
  /// from a run of the model from the first request on, with its own segments.
  struct Range {
    std::uint64_t low = 0, high = 0;
  };
  Range peak_reserved, retries, ooms, device_allocs, device_frees;
  /// What a recording implies about a limit that it does not name: it was at least `least` and less
  /// than `below`.
  struct InferredLimit {
    std::uint64_t least = 0, below = 0;
    std::string_view by;  ///< A literal that says what implies it.
  };
  std::optional<InferredLimit> inferred_limit{};
  std::string first_difference;  ///< One sentence. Empty if there is none.
};
EMM_MEMBERS_OF(ModelAgreement::Count, recorded, as_recorded)
EMM_MEMBERS_OF(ModelAgreement::Range, low, high)

/// The statistics that the manager of a context counted.
struct ContextStatistics {
  std::string context;
  NamedStatistics torch;  ///< Under the names of torch.cuda.memory_stats().
  NamedStatistics rmm;    ///< Under the names of RMM's statistics_resource_adaptor.
  NamedStatistics other;  ///< Statistics that have neither name.
};
EMM_MEMBERS_OF(ContextStatistics, context, torch, rmm, other)
/// Writes "torch", "rmm" and "other", each an object.
void write_members(format::JsonWriter& json, const ContextStatistics& statistics);

/// Operations that the manager answered with not_supported, by operation.
struct Declined {
  trace::Op op = trace::Op::memalloc;
  std::uint64_t count = 0;
  std::string why;  ///< The message of the first.
};
EMM_MEMBERS_OF(Declined, op, count, why)

/// One pass of a replay: "emmctl.replay/1". Bytes are requested bytes of device and managed memory
/// unless the name says otherwise. Peaks are taken after events.
struct Pass {
  std::uint64_t events = 0;  ///< Replayed events: all but those of the recording's backing layer.
  std::uint64_t allocs = 0;  ///< Successful memalloc, memallocmanaged, memhostalloc and mempin.
  std::uint64_t frees = 0;   ///< Frees made, late ones included.
  /// Operations that failed although neither `expect` nor the recording says so.
  std::uint64_t failures = 0;
  /// Operations on memory that was never made, because its allocation failed or was declined.
  std::uint64_t unmade = 0;
  std::uint64_t leaked = 0, leaked_bytes = 0;  ///< Live at the end; all kinds of memory.
  std::uint64_t hazards = 0;
  std::uint64_t peak_live_bytes = 0;
  /// What peak_live_bytes would be if only those requests had failed that were meant to fail.
  std::uint64_t peak_requested_bytes = 0;
  std::uint64_t peak_host_bytes = 0;  ///< Peak of the live memory of memhostalloc and mempin.
  std::uint64_t peak_reserved_bytes = 0;
  std::uint64_t reserved_at_end_bytes = 0;
  double ns_per_event = 0;
  std::uint64_t elapsed_ns = 0;
  /// The cost of the driver calls by the simulated device's model, if the run used another clock.
  std::optional<std::uint64_t> simulated_ns{};
  double simulated_ns_per_event = 0;
};

/// The peaks of live and reserved bytes in one of the equal parts of a pass.
struct CoursePoint {
  std::uint64_t live = 0, reserved = 0;
};

/// How the process of a foreign manager ended early. The summary holds what was found until then.
struct Abnormal {
  std::string words;                     ///< One sentence.
  int signal = 0;                        ///< The signal that ended it, or 0.
  bool hung = false;                     ///< A call did not return in time.
  std::optional<std::uint64_t> event{};  ///< The event that was executing.
  std::uint32_t line = 0;
};
EMM_MEMBERS_OF(Abnormal, words, signal, hung, event, line)

struct Summary {
  std::string trace, manager, device, clock;
  Pass pass;                  ///< The first pass.
  std::vector<Pass> repeats;  ///< All passes, if there are several.
  std::optional<Percentiles> alloc_latency, free_latency;
  /// How late events began in a run that keeps recorded times.
  std::optional<Percentiles> lateness;
  std::uint64_t threads = 1;  ///< Threads that replayed at the same time.
  std::optional<Failure> first_failure;
  FourWay outcomes;
  /// Requests for device memory that the recording refused and that ran out of memory here too.
  std::uint64_t refused_again = 0;
  /// Peak of each device in the first pass, by its ordinal. Empty if several threads replay.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> peak_reserved_by_device;
  /// The first pass in at most kCoursePoints parts. Empty if several threads replay.
  std::vector<CoursePoint> course{};
  // Eight for each column of the curve on a terminal.
  static constexpr std::size_t kCoursePoints = 480;
  std::vector<Flush> flushes;                       ///< Those of the first pass.
  std::optional<FlushComparison> recorded_flushes;  ///< Present if the recording has flushes.
  /// Present if the manager is the model of the recorded allocator, with its settings.
  std::optional<ModelAgreement> model_agreement{};
  std::vector<Violation> violations;  ///< The first hundred.
  std::uint64_t violation_count = 0;  ///< Counts all of them.
  std::vector<Declined> declined;
  /// The managers' statistics in the last pass, taken before leaks were freed. Empty if they count
  /// none.
  std::vector<ContextStatistics> statistics;
  /// Operations that this replay cannot execute, or was told not to.
  std::uint64_t skipped = 0;
  std::vector<std::string> notes;  ///< Remarks for a person, one sentence each.
  std::string reports;             ///< Lines that the managers and adaptors write at the end.
  bool interrupted = false;
  std::optional<std::uint64_t> stopped_at;  ///< Event of --stop-at or --on-oom stop.
  std::optional<Failure> stop_state;        ///< The state before that event.
  std::vector<Holder> leaks;                ///< The largest, at most ten.
  std::optional<Abnormal> abnormal;
};

}  // namespace emm::log
