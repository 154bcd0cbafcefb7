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

/// The counts of one thread of the trace. Only that thread writes them while threads run;
/// afterwards the run adds them up.
struct ThreadAccounts {
  std::int64_t live_count = 0;
  std::uint64_t allocs = 0, frees = 0;
  std::uint64_t succeeded_as_recorded = 0;
  std::uint64_t waited_ns = 0;  ///< For recorded times.
  Histogram alloc_times, free_times, lateness;
  /// In its own cache line, because other threads read it now and then.
  alignas(128) std::atomic<std::int64_t> live_bytes{0};
};

/// The counts of a run for the current pass.
struct Accounts {
  log::Pass pass;
  std::uint64_t live_bytes = 0;  ///< Device and managed memory, like live_count.
  std::uint64_t live_count = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t reserved_bytes = 0;  ///< Bytes held from all devices at the last measurement.
  ByteSum unserved_bytes;            ///< Bytes that would be live if their requests had succeeded.
  Histogram alloc_times, free_times, lateness;
  std::uint64_t waited_ns = 0;  ///< For recorded times.
  std::vector<ThreadAccounts*> threads;

  /// The peaks of the earlier parts of the pass. `pass` has the peaks of the current part, so that
  /// parts cost nothing for each event.
  log::CoursePoint earlier{};
  /// Ends a part and returns its peaks.
  log::CoursePoint end_part() noexcept {
    const log::CoursePoint part{.live = pass.peak_live_bytes, .reserved = pass.peak_reserved_bytes};
    earlier = {.live = std::max(earlier.live, part.live),
               .reserved = std::max(earlier.reserved, part.reserved)};
    pass.peak_live_bytes = live_bytes;
    pass.peak_reserved_bytes = reserved_bytes;
    return part;
  }
  /// Returns the pass with the peaks of all its parts.
  log::Pass whole_pass() const noexcept {
    auto whole = pass;
    whole.peak_live_bytes = std::max(whole.peak_live_bytes, earlier.live);
    whole.peak_reserved_bytes = std::max(whole.peak_reserved_bytes, earlier.reserved);
    return whole;
  }

  /// The bytes that would be live if all requests had succeeded; 2^64 - 1 if the sum does not fit.
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
  /// Counts all memory as ended.
  void clear_live() noexcept {
    live_bytes = host_bytes = live_count = 0;
    unserved_bytes = {};
  }

  /// The change of live bytes by all threads since add_threads(). Any thread may call.
  std::int64_t thread_live_bytes() const noexcept {
    std::int64_t bytes = 0;
    for (const auto* thread : threads) bytes += thread->live_bytes.load(std::memory_order_relaxed);
    return bytes;
  }
  /// Takes over the threads' counts. `peak_live` is the highest sum that a thread has sampled.
  /// REQUIRES: no thread runs.
  void add_threads(std::uint64_t peak_live, log::FourWay& outcomes) noexcept;
  void add_thread_times() noexcept;
};

}  // namespace emm::replay
