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
  collection,   ///< garbage_collection_threshold.
  oversize,     ///< max_split_size, where the device had no room.
  retry,        ///< All that was idle, and the request was made again.
  empty_cache,  ///< The program asked for it.
  pool_dropped,
  unexplained,
};

/// What the program did between two requests that no row says.
struct Outside {
  std::size_t before = 0;  ///< The step in front of which it happened.
  Release what = Release::none;
  PoolId pool{};         ///< Of pool_dropped.
  bool at_once = false;  ///< Of pool_dropped: what it held was released with it.
};

struct OneStep {
  Agreement placements, segments, releases, refusals;
  std::vector<Outside> outside;
  std::uint64_t retries = 0;
  bool gave_up = false;  ///< What is found is of a part of the recording.
  /// Free blocks and pools that were looked at for releases, beyond as many as were released, which
  /// looks_most() bounds; and releases behind that, which are taken as unexplained without a look.
  std::uint64_t looks = 0, unseen_releases = 0;
  /// The first few that are not as recorded, in words.
  std::vector<std::string> misses;
  /// Segments whose pool no row names and the state at the end does not: inferred.
  std::uint64_t inferred_pools = 0;
  /// Completions, as indices of steps, that a retry of the next request waited for.
  std::set<std::size_t> synchronised;
  /// Requests, as indices of steps, that were served after all that was idle had been released. The
  /// limit says that a retry did it; an empty_cache() in front of the request leaves the same rows.
  std::set<std::size_t> retried;
  /// The pool of each allocation.
  std::vector<PoolId> pools;
  /// The pool of each refused request, by its step, where it is not the default pool.
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

struct Look {
  /// The index of a request's operation in the trace; where it is empty, each request is looked at.
  std::optional<std::uint64_t> event{};
  /// The heap after what was released for the request of `step`, and before that is served. Pools
  /// that have to be inferred take several rounds: what the last one shows is right.
  std::function<void(const Step& step, const Heap&, const Wanted&)> at;
};

/// A release that no rule explains costs looks at all that is idle. A recording that has many is
/// not of this allocator, and is walked through in a time that is linear all the same.
constexpr std::uint64_t looks_most(std::uint64_t steps) noexcept { return 1'000'000 + 32 * steps; }

/// Takes the recording step by step: before each, the heap is as recorded, and the model says what
/// it would do. `settings` are those of the recording. `look` may be null. It gives up after
/// `unexplained_most` releases that no rule explains.
OneStep check_one_step(const Recording& recording, const Settings& settings,
                       const Look* look = nullptr,
                       std::uint64_t unexplained_most = std::numeric_limits<std::uint64_t>::max());

/// What the limit was, as near as a recording without the memory fraction tells it: garbage is
/// collected where more than a part of it is reserved. Nothing where `settings` collect no garbage,
/// none was collected, or no limit explains every row.
std::optional<std::uint64_t> limit_of_collections(const Recording& recording,
                                                  const Settings& settings);

/// What the limit is at least, by what was served, and below, by what was refused although the
/// device had room.
struct LimitRange {
  std::uint64_t least = 0, below = 0;
};
/// Nothing where nothing was refused so, or where no one limit explains all: a program can change
/// it.
std::optional<LimitRange> limit_of_refusals(const Recording& recording, const Settings& settings);
/// What the limit may have been where nothing was refused: memory that was released in front of a
/// new segment may have made room below it. Nothing where no such limit explains every row.
std::optional<LimitRange> limit_of_releases(const Recording& recording, const Settings& settings);

/// What tells the bounds of a limit that a recording does not have.
enum class LimitBy : std::uint8_t { collections, refusals, releases };
std::string_view name(LimitBy by) noexcept;
struct InferredLimit {
  LimitRange range{};
  LimitBy by{};
};
/// By collections or refusals; nothing where the recording has its limit, or nothing tells one.
std::optional<InferredLimit> inferred_limit(const Recording& recording);

}  // namespace emm::allocators::pytorch
