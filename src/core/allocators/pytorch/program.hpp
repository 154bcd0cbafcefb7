#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "allocators/made_up_memory.hpp"
#include "allocators/pytorch/allocator.hpp"
#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/recording.hpp"
#include "allocators/pytorch/segment_pools.hpp"
#include "allocators/pytorch/state.hpp"
#include "driver/call.hpp"
#include "trace/pool_steps.hpp"

namespace emm::allocators::pytorch {

/// A call of a program to its allocator, without the allocator's reactions.
struct Call {
  enum class Kind : std::uint8_t {
    alloc,
    refused,  ///< An allocation that failed in the recording. Nothing frees it.
    free,
    free_later,
    complete,
    empty_cache,
    unused,  ///< The pool's last graph or MemPool is gone.
    drop,    ///< As `unused`, and the pool's memory is released at once.
  };
  Kind kind = Kind::alloc;
  std::uint32_t allocation = 0;
  std::uint64_t size = 0, stream = 0;
  PoolId pool{};
  std::uint64_t event = 0;  ///< The operation's index in the trace.
  /// The recording leaves open whether a retry or an empty_cache() before this call made room.
  bool may_follow_empty_cache = false;
  /// The memory is in the program's `before`, so a run has it already.
  bool is_before = false;
};

/// The calls of a recording, and what is needed to run them through the model again.
struct Program {
  std::vector<Call> calls;
  std::uint32_t allocations = 0;
  Settings settings;  ///< Those of the recording.
  OneStep recorded;
  /// What existed before the first row. A run begins with it, whatever its settings: it lies where
  /// the recording found it, and no setting of today can have laid it out.
  State before;
  /// Addresses and sizes that the driver gave in the recording, in order.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> segments;
};

Program program_of(const Recording& recording, const Settings& settings);
/// Lists what a replay tells a manager besides the trace's operations: the pool of each request,
/// the end of each pool, the program's calls of empty_cache(), and which frees completed later and
/// when. Empty if there is nothing to tell.
trace::PoolSteps pool_steps_of(const Program& program, std::uint32_t device);

/// The result of a program under one setting.
struct Outcome {
  Allocator::Counts counts;
  std::uint64_t reserved = 0;     ///< After the last call.
  std::uint64_t peak_live = 0;    ///< Requested bytes.
  std::uint64_t refused = 0;      ///< Failed requests.
  std::uint64_t served_more = 0;  ///< Served here, refused in the recording.
  /// A request was served that was refused in the recording, or the other way round: from there on
  /// a program that catches failures may do otherwise.
  bool differs = false;
  std::uint64_t peak_until_differs = 0;  ///< Reserved bytes.
  /// The trace index of the first failed request that matters: one that succeeded in the recording,
  /// or one that is needed all the same.
  std::optional<std::uint64_t> fails_at;
  std::uint64_t failed_size = 0;
  /// Device capacities with which this outcome is the same, if the settings have no limit.
  MadeUpMemory::Alike alike;
};

/// What an allocator asked of its device. `map` and `unmap` are of pieces of `granule` bytes.
struct DeviceCall {
  enum class Kind : std::uint8_t { allocate, free, reserve, release, map, unmap };
  Kind kind{};
  bool refused = false;
  std::uint64_t size = 0, granule = 0;
};

struct RunOptions {
  Settings settings;
  std::uint64_t capacity = kNoLimit;  ///< Device bytes for segments.
  Addresses addresses = Addresses::recorded;
  bool stop_at_failure = false;
  /// Counts a request that failed in the recording as needed: if it fails again, that is a failure.
  /// If it is served, it is freed at once, because no row says when.
  bool refused_are_needed = false;
  bool open_retries_are_empty_cache = false;      ///< See Call::may_follow_empty_cache.
  std::function<void(const DeviceCall&)> told{};  ///< If set, hears of each call to the device.
};
Outcome run(const Program& program, const RunOptions& options);

/// The least and the most over everything that the recording leaves open: the driver's addresses,
/// whether the program or a retry released memory, and the limit within its bounds.
struct Range {
  std::uint64_t low = 0, high = 0;
};
struct FreeRun {
  Range peak_reserved, retries, ooms, device_allocs, device_frees;
};
/// `limit` bounds an unknown limit; program.settings.known_limit lies within it.
FreeRun free_run(const Program& program, std::optional<LimitRange> limit = {});

}  // namespace emm::allocators::pytorch
