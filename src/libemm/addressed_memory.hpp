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

#include "driver/types.hpp"
#include "libemm/exported_manager.hpp"
#include "libemm/private_pools.hpp"

namespace emm::libemm {

/// Device memory of a manager for callers that name it by its address alone. Any thread.
///
/// Memory that other streams were recorded for is given back to the manager when the work that
/// was on those streams at its free is done; nobody is made to wait for that, but a request that
/// finds no memory. While a stream is being captured into a CUDA graph nothing is asked of streams
/// and events, which CUDA forbids then.
class AddressedMemory {
 public:
  /// `manager` must outlive it.
  AddressedMemory(ExportedManager& manager, int device) noexcept
      : manager_(manager), device_(device) {}

  Result<DevicePtr> take(std::uint64_t size, StreamHandle stream);
  /// In the order of the stream that it was taken on. `size` is what the caller knows of it. What
  /// is wrong with that, where something is; nothing is counted here.
  std::optional<WrongFree> give_back(DevicePtr ptr, std::optional<std::uint64_t> size);
  bool holds(DevicePtr ptr);
  /// `ptr`, which is alive, is used on `stream` too.
  void record_stream(DevicePtr ptr, StreamHandle stream);
  /// Rows for what lives and has none in the trace that is written now.
  void record_alive();
  /// What may be alive at a time; a request beyond it is out of memory.
  void set_limit(std::uint64_t bytes) { limit_.store(bytes); }
  /// Until everything that was given back is the manager's again.
  void wait();
  /// Nothing is taken, kept or waiting.
  bool is_idle();

  // Captures into CUDA graphs; see PrivatePools.
  void begin_private(const PrivatePools::Id& id, PrivatePools::Filter takes);
  void end_private(const PrivatePools::Id& id);
  /// Waits for the device where memory is given back.
  void release_private(const PrivatePools::Id& id);

 private:
  struct Block {
    Lifetime lifetime;
    std::uint64_t size = 0;      ///< As it was asked for.
    std::uint64_t capacity = 0;  ///< Not less: what was kept in a private pool may be larger.
    std::uint64_t number = 0;    ///< In the recording; 0 where it was made before.
    std::uint64_t pool = 0;      ///< Private; 0 where of none.
    StreamHandle stream;
    std::vector<StreamHandle> others;
  };
  struct Waiting {
    Lifetime lifetime;
    StreamHandle stream;
    std::vector<EventHandle> events;
  };
  struct Postponed {
    Lifetime lifetime;
    StreamHandle stream;
    std::vector<StreamHandle> others;
  };
  /// Requests of many threads seldom meet in one.
  struct alignas(64) Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, Block> blocks;  // by address; its order reaches no output
  };
  static constexpr std::size_t kShards = 16;

  Shard& shard_of(DevicePtr ptr) noexcept { return shards_[(ptr.value >> 9) % kShards]; }
  Result<MemoryPointer> request(std::uint64_t size, StreamHandle stream);
  Result<Block> made(std::uint64_t size, StreamHandle stream, DevicePtr& ptr);
  bool is_capturing() const noexcept { return capturing_.load(std::memory_order_acquire); }
  void end(Block block, DevicePtr ptr);
  /// Of an address at which no memory that is alive begins.
  WrongFree not_alive(DevicePtr ptr);
  /// `error`, where there was no memory, with the state then.
  Error with_state(Error error);
  static void end(Lifetime& lifetime, StreamHandle stream) noexcept;
  /// Gives it back to the manager when the others have come as far as they are now.
  void end_after(Lifetime lifetime, StreamHandle stream, const std::vector<StreamHandle>& others);
  /// Of those that wait, oldest first: all that are done, or, where `all`, all of them.
  void reap(bool all);
  bool is_done(const Waiting& waiting);
  void end_unused_pools();

  ExportedManager& manager_;
  const int device_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> live_bytes_{0};
  static constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();
  std::atomic<std::uint64_t> limit_{kNoLimit};

  std::mutex waits_;  ///< Of the next two.
  std::deque<Waiting> waiting_;
  std::atomic<bool> some_wait_{false};

  std::mutex captures_;  ///< Of the next two; before waits_.
  PrivatePools pools_;
  std::vector<Postponed> postponed_;  ///< Freed in a capture, used on other streams.
  std::atomic<bool> capturing_{false};
};

}  // namespace emm::libemm
