#pragma once

#include <cstdint>
#include <vector>

#include "allocators/made_up_memory.hpp"
#include "allocators/pytorch/allocator.hpp"
#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/recording.hpp"
#include "allocators/pytorch/segment_pools.hpp"
#include "trace/pool_steps.hpp"

namespace emm::allocators::pytorch {

/// What a program asked of its allocator, without what the allocator made of it.
struct Call {
  enum class Kind : std::uint8_t {
    alloc,
    refused,  ///< An allocation that failed when it was recorded: nothing frees it.
    free,
    free_later,
    complete,
    empty_cache,
    unused,  ///< The pool's last graph or MemPool is gone.
    drop,    ///< The same, and what it holds is released at once.
  };
  Kind kind = Kind::alloc;
  std::uint32_t allocation = 0;
  std::uint64_t size = 0, stream = 0;
  PoolId pool{};
  std::uint64_t event = 0;  ///< The operation's index in the trace.
  /// The recording leaves open whether a retry or an empty_cache() in front of it made room.
  bool may_follow_empty_cache = false;
};

/// The calls of a recording, and what is needed to run them through the model again.
struct Program {
  std::vector<Call> calls;
  std::uint32_t allocations = 0;
  Settings settings;  ///< Of the recording.
  OneStep recorded;
  /// Addresses that the driver gave when it was recorded, in order, with sizes.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> segments;
};

Program program_of(const Recording& recording, const Settings& settings);
/// What a replay tells a manager beside the operations of the trace: the pools of the requests,
/// what became of these, the program's empty_cache(), and which frees completed later and when.
/// Empty where there is nothing to tell.
trace::PoolSteps pool_steps_of(const Program& program, std::uint32_t device);

/// What became of a program under a setting.
struct Outcome {
  Allocator::Counts counts;
  std::uint64_t reserved = 0;     ///< After the last call.
  std::uint64_t peak_live = 0;    ///< Requested bytes.
  std::uint64_t refused = 0;      ///< Requests that had no memory.
  std::uint64_t served_more = 0;  ///< Of those that failed when it was recorded.
  /// The first request that failed, and did not when it was recorded, or is needed all the same:
  /// its index in the trace.
  std::optional<std::uint64_t> fails_at;
  std::uint64_t failed_size = 0;
  /// The capacities of the device with which all of this is the same, where the settings have no
  /// limit of their own.
  MadeUpMemory::Alike alike;
};

struct RunOptions {
  Settings settings;
  std::uint64_t capacity = kNoLimit;  ///< Of the device, for segments.
  Addresses addresses = Addresses::recorded;
  bool stop_at_failure = false;
  /// A request that failed when it was recorded is one that the program needs: where it fails
  /// again, that is a failure. It is freed at once where it is served, since no row says when.
  bool refused_are_needed = false;
  bool open_retries_are_empty_cache = false;  ///< See Call::may_follow_empty_cache.
};
Outcome run(const Program& program, const RunOptions& options);

/// What a free run of a recording gives: the least and the most over what the recording leaves
/// open, which are the driver's addresses, whether the program released its memory or a retry did,
/// and the limit within its bounds.
struct Range {
  std::uint64_t low = 0, high = 0;
};
struct FreeRun {
  Range peak_reserved, retries, ooms, device_allocs, device_frees;
};
/// `limit` has the bounds, where it is not known; program.settings have a known_limit of these.
FreeRun free_run(const Program& program, std::optional<LimitRange> limit = {});

}  // namespace emm::allocators::pytorch
