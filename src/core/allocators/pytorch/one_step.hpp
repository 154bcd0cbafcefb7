#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/agreement.hpp"
#include "allocators/pytorch/policy.hpp"
#include "allocators/pytorch/recording.hpp"

namespace emm::allocators::pytorch {

/// Why memory was released to the device.
enum class Release : std::uint8_t {
  none,
  collection,   ///< By garbage_collection_threshold.
  oversize,     ///< By max_split_size, because the device had no room.
  retry,        ///< All idle memory, before the request was tried again.
  empty_cache,  ///< The program asked for it.
  pool_dropped,
  unexplained,
};

/// A call of the program between two requests that no row shows.
struct Outside {
  std::size_t before = 0;  ///< The first step after it.
  Release what = Release::none;
  PoolId pool{};         ///< For pool_dropped.
  bool at_once = false;  ///< For pool_dropped: its memory was released with it.
};

struct OneStep {
  Agreement placements, segments, releases, refusals;
  std::vector<Outside> outside;
  std::uint64_t retries = 0;
  bool gave_up = false;  ///< The results cover only a part of the recording.
  /// `looks` counts the free blocks and pools that were inspected to explain releases, less an
  /// allowance for each release. looks_most() bounds it. `unseen_releases` counts the releases
  /// after that bound was met, which count as unexplained without a look.
  std::uint64_t looks = 0, unseen_releases = 0;
  /// The first few differences from the recording, in words.
  std::vector<std::string> misses;
  /// Counts the segments whose pool is inferred, because neither a row nor the final state names
  /// it.
  std::uint64_t inferred_pools = 0;
  /// Indices of the completions that a retry of the next request waited for.
  std::set<std::size_t> synchronised;
  /// Indices of the requests that were served after all idle memory had been released. The limit
  /// suggests that a retry released it, but an empty_cache() before the request leaves the same
  /// rows.
  std::set<std::size_t> retried;
  /// The pool of each allocation.
  std::vector<PoolId> pools;
  /// The pools of refused requests that are not in the default pool, by step.
  std::map<std::size_t, PoolId> refused_pools;
  /// The bytes of each allocation's block; 0 where the model has none.
  std::vector<std::uint64_t> blocks;
  struct SegmentPool {
    PoolId id{};
    bool small = false;
  };
  /// The pool of each segment, by its number in the recording.
  std::vector<SegmentPool> segment_pools;
};

/// Looks at the heap where a request is served.
struct HeapProbe {
  /// The request's index in the trace. If it is empty, `at` sees every request.
  std::optional<std::uint64_t> event{};
  /// Gets the heap after memory was released for the request of `step`, and before the request is
  /// served. If pools have to be inferred, several rounds call it, and only the last round is
  /// right.
  std::function<void(const Step& step, const Heap&, const Wanted&)> at;
};

/// Bounds OneStep::looks. Each release that no rule explains costs a look at all idle memory. A
/// recording with many of them is not of this allocator, and must still be walked in linear time.
constexpr std::uint64_t looks_most(std::uint64_t steps) noexcept { return 1'000'000 + 32 * steps; }

/// Checks the recording step by step: before each step the heap is as recorded, and the model says
/// what it would do. `settings` are those of the recording. `look` may be null. It gives up after
/// `unexplained_most` releases that no rule explains.
OneStep check_one_step(const Recording& recording, const Settings& settings,
                       const HeapProbe* look = nullptr,
                       std::uint64_t unexplained_most = std::numeric_limits<std::uint64_t>::max());

/// Estimates the limit of a recording that lacks the memory fraction. PyTorch collects garbage when
/// it holds more than a given part of the limit, so collections tell the limit. Returns nothing if
/// `settings` collect no garbage, none was collected, or no limit explains every row.
std::optional<std::uint64_t> limit_of_collections(const Recording& recording,
                                                  const Settings& settings);

/// The limit is at least `least`, because requests were served, and less than `below`, because a
/// request was refused although the device had room.
struct LimitRange {
  std::uint64_t least = 0, below = 0;
};
/// Returns nothing if no request was refused that way, or if no single limit explains all requests:
/// a program can change its limit.
std::optional<LimitRange> limit_of_refusals(const Recording& recording, const Settings& settings);
/// Bounds the limit if nothing was refused: a release before a new segment may have made room below
/// the limit. Returns nothing if no such limit explains every row.
std::optional<LimitRange> limit_of_releases(const Recording& recording, const Settings& settings);

/// The rows that bound a limit which the recording does not state.
enum class LimitBy : std::uint8_t { collections, refusals, releases };
std::string_view name(LimitBy by) noexcept;
struct InferredLimit {
  LimitRange range{};
  LimitBy by{};
};
/// Infers the limit from collections or refusals. Returns nothing if the recording states its
/// limit, or if nothing tells it.
std::optional<InferredLimit> inferred_limit(const Recording& recording);

}  // namespace emm::allocators::pytorch
