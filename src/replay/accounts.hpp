#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/byte_sum.hpp"
#include "log/summary.hpp"
#include "replay/context_state.hpp"
#include "replay/histogram.hpp"

namespace emm::replay {

/// What one thread of the trace counts. Nobody else writes it while threads run; then the run adds
/// it up.
struct ThreadAccounts {
  std::int64_t live_count = 0;
  std::uint64_t allocs = 0, frees = 0;
  std::uint64_t succeeded_as_recorded = 0;
  std::uint64_t waited_ns = 0;  ///< For recorded times.
  Histogram alloc_times, free_times, lateness;
  /// Other threads read it now and then, so it has a cache line of its own.
  alignas(128) std::atomic<std::int64_t> live_bytes{0};
};

/// What a run counts, of the pass under way.
struct Accounts {
  log::Pass pass;
  std::uint64_t live_bytes = 0;  ///< Device and managed memory, like live_count.
  std::uint64_t live_count = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t reserved_bytes = 0;  ///< Held from all devices when last measured.
  ByteSum unserved_bytes;            ///< Would be live had the requests for them succeeded.
  Histogram alloc_times, free_times, lateness;
  std::uint64_t waited_ns = 0;  ///< For recorded times.
  std::vector<ThreadAccounts*> threads;

  /// The peaks of the pass before the part of it that is under way. The pass has those of the part,
  /// so that they cost no more than the pass's own would.
  log::CoursePoint earlier{};
  /// Ends a part, and answers its peaks.
  log::CoursePoint end_part() noexcept {
    const log::CoursePoint part{.live = pass.peak_live_bytes, .reserved = pass.peak_reserved_bytes};
    earlier = {.live = std::max(earlier.live, part.live),
               .reserved = std::max(earlier.reserved, part.reserved)};
    pass.peak_live_bytes = live_bytes;
    pass.peak_reserved_bytes = reserved_bytes;
    return part;
  }
  /// The pass, with the peaks of all its parts.
  log::Pass whole_pass() const noexcept {
    auto whole = pass;
    whole.peak_live_bytes = std::max(whole.peak_live_bytes, earlier.live);
    whole.peak_reserved_bytes = std::max(whole.peak_reserved_bytes, earlier.reserved);
    return whole;
  }

  /// What would be live had all requests succeeded; 2^64 - 1 where that does not fit.
  std::uint64_t requested_bytes(std::uint64_t live) const noexcept {
    auto sum = unserved_bytes;
    sum.add(live);
    return sum.value();
  }
  void add_device_memory(std::uint64_t size) noexcept {
    ++pass.allocs;
    ++live_count;
    live_bytes += size;
    if (live_bytes > pass.peak_live_bytes) pass.peak_live_bytes = live_bytes;
    raise_requested(live_bytes);
  }
  void remove_device_memory(std::uint64_t size) noexcept {
    --live_count;
    live_bytes -= size;
  }
  void raise_requested(std::uint64_t live) noexcept {
    const auto requested = requested_bytes(live);
    if (requested > pass.peak_requested_bytes) pass.peak_requested_bytes = requested;
  }
  void measure_reserved(ContextState& context) {
    const auto held = context.driver().held_bytes();
    auto& device = *context.device_state;
    if (held > device.held_most) device.held_most = held;
    reserved_bytes += held - std::exchange(device.held, held);
    if (reserved_bytes > pass.peak_reserved_bytes) pass.peak_reserved_bytes = reserved_bytes;
  }
  /// All memory has ended.
  void clear_live() noexcept {
    live_bytes = host_bytes = live_count = 0;
    unserved_bytes = {};
  }

  /// Live bytes of what the threads have made since add_threads(). Any thread may ask.
  std::int64_t thread_live_bytes() const noexcept {
    std::int64_t bytes = 0;
    for (const auto* thread : threads) bytes += thread->live_bytes.load(std::memory_order_relaxed);
    return bytes;
  }
  /// Takes over what the threads have counted. `peak_live` is the most that one of them has seen.
  /// REQUIRES: no thread runs.
  void add_threads(std::uint64_t peak_live, log::FourWay& outcomes) noexcept;
  void add_thread_times() noexcept;
};

}  // namespace emm::replay
