#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "libemm/exported_manager.hpp"
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
  bool holds(DevicePtr ptr);
  /// Records that `ptr`, which is alive, is used on `stream` too.
  void record_stream(DevicePtr ptr, StreamHandle stream);
  /// Writes a row for each live block that has none in the current trace.
  void record_alive();
  /// Limits the live bytes. A request beyond the limit fails with out of memory.
  void set_limit(std::uint64_t bytes) { limit_.store(bytes); }
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
  struct LiveBlock {
    Lifetime lifetime;
    std::uint64_t size = 0;      ///< As requested.
    std::uint64_t capacity = 0;  ///< At least `size`: memory from a private pool may be larger.
    std::uint64_t number = 0;    ///< Its id in the recording; 0 if it is older than the recording.
    std::uint64_t pool = 0;      ///< The private pool; 0 if none.
    StreamHandle stream;
    std::vector<StreamHandle> others;
  };
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
    std::mutex mutex;
    std::unordered_map<std::uint64_t, LiveBlock>
        blocks;  // by address; no output depends on the order
  };
  // Each with its own lock, so that threads seldom wait for one another.
  static constexpr std::size_t kShards = 16;

  Shard& shard_of(DevicePtr ptr) noexcept { return shards_[(ptr.value >> 9) % kShards]; }
  Result<MemoryPointer> request(std::uint64_t size, StreamHandle stream);
  Result<LiveBlock> made(std::uint64_t size, StreamHandle stream, DevicePtr& ptr);
  bool is_capturing() const noexcept { return capturing_.load(std::memory_order_acquire); }
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
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> live_bytes_{0};
  static constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();  // bytes
  std::atomic<std::uint64_t> limit_{kNoLimit};

  std::mutex waits_;  ///< Guards the next two.
  std::deque<DeferredFree> waiting_;
  std::atomic<bool> some_wait_{false};

  std::mutex captures_;  ///< Guards the next two. Taken before waits_.
  PrivatePools pools_;
  std::vector<CapturedFree> postponed_;  ///< Freed during a capture and used on other streams.
  std::atomic<bool> capturing_{false};
};

}  // namespace emm::libemm
