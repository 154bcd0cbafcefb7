#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/spin_lock.hpp"
#include "driver/types.hpp"
#include "libemm/exported_manager.hpp"
#include "libemm/live_blocks.hpp"
#include "libemm/private_pools.hpp"

namespace emm::libemm {

/// Device memory of a manager, for callers that know only its address. Any thread.
///
/// Memory that was recorded for other streams is freed by event (an event-deferred free): the
/// manager gets it back once the work that those streams had at the free is done. Only a request
/// that finds no memory waits for such events. While a stream is captured into a CUDA graph this
/// makes no stream or event call, because CUDA forbids them then.
class AddressedMemory {
 public:
  /// `manager` must outlive this.
  AddressedMemory(ExportedManager& manager, int device) noexcept
      : manager_(manager), device_(device) {}

  Result<DevicePtr> take(std::uint64_t size, StreamHandle stream);
  /// Frees memory in the order of the stream that it was taken on. `size` is what the caller
  /// believes it to be. Returns what is wrong with the free, if anything. The caller counts wrong
  /// frees.
  std::optional<WrongFree> free(DevicePtr ptr, std::optional<std::uint64_t> size);
  /// As free(), for memory that is neither of a recording, nor of a graph, nor used on several
  /// streams. False, and nothing is done, if it is, or if anything is wrong with the free.
  bool free_plain(DevicePtr ptr, std::optional<std::uint64_t> size) noexcept;
  bool holds(DevicePtr ptr);
  /// Records that `ptr`, which is alive, is used on `stream` too.
  void record_stream(DevicePtr ptr, StreamHandle stream);
  /// Writes a row for each live block that has none in the current trace.
  void record_alive();
  /// Limits the live bytes. A request beyond the limit fails with out of memory.
  void set_limit(std::uint64_t bytes);
  /// Waits until the manager has got back all freed memory.
  void wait();
  /// Whether no memory is live, kept in a private pool, or waiting for an event.
  bool is_idle();

  // Captures into CUDA graphs; see PrivatePools.
  void begin_private(const PrivatePools::Id& id, PrivatePools::Filter takes);
  void end_private(const PrivatePools::Id& id);
  /// Waits for the device if this frees memory.
  void release_private(const PrivatePools::Id& id);

 private:
  struct DeferredFree {
    Lifetime lifetime;
    StreamHandle stream;
    std::vector<EventHandle> events;
  };
  struct CapturedFree {
    Lifetime lifetime;
    StreamHandle stream;
    std::vector<StreamHandle> others;
  };
  /// A part of the map with its own lock, so that threads seldom contend.
  struct alignas(64) Shard {
    SpinLock lock;
    LiveBlocks blocks;
  };
  // Each with its own lock, so that threads seldom wait for one another.
  static constexpr std::size_t kShards = 16;

  /// What makes requests take the slow path.
  enum Special : std::uint32_t { kCaptures = 1, kWaits = 2, kIsLimited = 4 };

  Shard& shard_of(DevicePtr ptr) noexcept {
    return shards_[LiveBlocks::hash(ptr.value) >> 60];  // one of kShards
  }
  Result<MemoryPointer> request(std::uint64_t size, StreamHandle stream);
  Result<LiveBlock> made(std::uint64_t size, StreamHandle stream, DevicePtr& ptr);
  Result<DevicePtr> take_slowly(std::uint64_t size, StreamHandle stream);
  /// Counts `size` among the live bytes before the memory is there. False beyond the limit.
  bool expect(std::uint64_t size);
  void expect_no_more(std::uint64_t size);
  void keep(DevicePtr ptr, LiveBlock&& block);
  bool is(Special what) const noexcept {
    return (special_.load(std::memory_order_acquire) & what) != 0;
  }
  void set(Special what, bool yes) noexcept {
    if (yes) {
      special_.fetch_or(what);
    } else {
      special_.fetch_and(~std::uint32_t{what});
    }
  }
  bool is_capturing() const noexcept { return is(kCaptures); }
  void end(LiveBlock block, DevicePtr ptr);
  /// Describes the free of an address at which no live memory begins.
  WrongFree not_alive(DevicePtr ptr);
  /// Adds the manager's state to an out-of-memory error.
  Error with_state(Error error);
  static void end(Lifetime& lifetime, StreamHandle stream) noexcept;
  /// Frees memory after the work that the other streams have now.
  void end_after(Lifetime lifetime, StreamHandle stream, const std::vector<StreamHandle>& others);
  /// Frees deferred memory, oldest first. With `all`, waits for all of it; else frees only what is
  /// done.
  void reap(bool all);
  bool is_done(const DeferredFree& waiting);
  void end_unused_pools();

  ExportedManager& manager_;
  const int device_;
  std::atomic<std::uint32_t> special_{0};
  std::array<Shard, kShards> shards_;

  static constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();  // bytes
  std::mutex limits_;  ///< Guards the next two. Held while a request with a limit enters a shard.
  std::uint64_t limit_ = kNoLimit;
  std::uint64_t expected_bytes_ = 0;  ///< What requests take that are not in the shards yet.

  std::mutex waits_;  ///< Guards the next one, and kWaits.
  std::deque<DeferredFree> waiting_;

  std::mutex captures_;  ///< Guards the next two, and kCaptures. Taken before waits_.
  PrivatePools pools_;
  std::vector<CapturedFree> postponed_;  ///< Freed during a capture and used on other streams.
};

}  // namespace emm::libemm
