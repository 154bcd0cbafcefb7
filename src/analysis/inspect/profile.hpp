#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "inspect/held_memory.hpp"
#include "inspect/percentiles.hpp"
#include "inspect/recording.hpp"
#include "trace/curve.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// Returns what is live after `event`, on `device` if given.
HeldMemory held_after(const trace::Lifetimes& lifetimes, std::uint32_t event,
                      std::optional<std::uint32_t> device = std::nullopt);

/// A greatest value and the first event after which it holds.
struct Peak {
  std::uint64_t bytes = 0, count = 0;  ///< Count of what is live then.
  std::uint32_t event = 0;
  bool operator==(const Peak&) const = default;
};

struct SizeClass {
  std::uint64_t from = 0;  ///< 0, or a power of two; up to twice it, exclusive.
  std::uint64_t count = 0, bytes = 0;
  std::uint64_t at_peak_count = 0, at_peak_bytes = 0;
  bool operator==(const SizeClass&) const = default;
};

/// What one thread or stream did with device memory.
struct Share {
  std::uint64_t events = 0, allocs = 0, bytes = 0, frees = 0;
  std::uint64_t frees_of_others = 0;  ///< Frees of what another thread, or stream, allocated.
  std::uint64_t peak_live_bytes = 0;  ///< The peak of the memory that it allocated.
  bool operator==(const Share&) const = default;
};

/// The kinds of rows of a recording, in the words of PyTorch's caching allocator.
enum class Action : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
};
/// As PyTorch's snapshots name them.
inline constexpr std::array<std::string_view, 8> kActionNames{
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom"};
using Actions = std::array<std::uint64_t, kActionNames.size()>;

/// What the recorded manager held from the device, if the trace has a backing layer. A segment from
/// before the recording does not count as made. The rest of a range that was unmapped in part
/// counts neither as made nor as released.
struct Backing {
  Peak reserved;                       ///< Count: segments then.
  std::uint64_t live_at_reserved = 0;  ///< The program's live bytes at that event.
  std::uint64_t reserved_at_live =
      0;                           ///< Reserved bytes when the program's live bytes are greatest.
  std::uint64_t pending_peak = 0;  ///< Freed by the program, but kept for another stream.
  std::uint64_t segments_before = 0, segments_made = 0, segments_given_back = 0;
  std::uint64_t reserved_at_end = 0;
  std::uint64_t flushes = 0, flushed_bytes = 0;
};

/// Describes a trace. Live bytes, peaks and sizes are those of device memory as requested, unless
/// the name says otherwise.
struct Profile {
  std::uint64_t events = 0;
  std::array<std::uint64_t, trace::kOpCount> by_op{};
  std::array<std::uint64_t, trace::kOpCount> backing_by_op{};  ///< Those of the manager.
  std::uint64_t failed = 0;             ///< Requests that are recorded, or expected, to fail.
  std::uint64_t allocs = 0, bytes = 0;  ///< Requests for device memory that succeeded.
  bool has_times = false;
  std::uint64_t span_ns = 0;  ///< From the first event to the last.
  Percentiles sizes, lifetime_events,
      lifetime_ns;                      ///< trace::Lifetimes of what began and ended within.
  std::vector<SizeClass> size_classes;  ///< By size, without empty ones.
  std::vector<Share> threads, streams;  ///< By ThreadId, StreamId.
  Actions actions{};                    ///< What was done with device memory.
  Peak live;
  /// The most that is live in each of at most kCurveParts equal parts of the trace, from its
  /// first_moment() on.
  static constexpr std::size_t kCurveParts = 64;
  std::vector<std::uint64_t> live_over_events;
  Peak active;                                                 ///< Live, or freed and not free yet.
  std::uint64_t pending_at_end = 0, pending_bytes_at_end = 0;  ///< Freed, and not free at the end.
  std::uint64_t live_at_end_bytes = 0;
  std::vector<std::pair<std::uint32_t, Peak>> live_by_device;  ///< By device.
  Peak host;  ///< Memory of memhostalloc and mempin.
  HeldMemory at_peak;
  HeldMemory leaked, preexisting_at_end;  ///< Live at the end: the recording's own; older memory.
  std::vector<CategoryUse> categories;    ///< Empty where the recording names none.
  std::optional<Backing> backing;
};
/// Removes what a trace that tells only a curve does not tell: lifetimes, and of totals also sizes.
void leave_out_unknown(const trace::Header& header, Profile& out);

}  // namespace emm::inspect
