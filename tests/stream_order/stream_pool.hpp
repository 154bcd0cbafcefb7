#pragma once

#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "driver/driver.hpp"
#include "emm/epoch.hpp"
#include "emm/memory_manager.hpp"

namespace emm::stream_order {

/// What a manager that reuses memory across streams may get wrong.
enum class Haste : std::uint8_t {
  none,             ///< It is right.
  no_event,         ///< Another stream has the memory at once.
  wrong_stream,     ///< Waits for an event of the stream that wants the memory.
  event_too_early,  ///< Its event is recorded when memory is handed out, not when it comes back.
  unmap_without_order,       ///< Unmaps what is idle without a wait.
  cross_thread_free,         ///< Takes the freeing stream to be the only one that worked there.
  async_free_without_order,  ///< Gives memory to the driver's pool on a stream that did not wait.
  other_address,             ///< Takes memory at its other address to be other memory.
};
inline constexpr std::string_view kHasteNames[]{"none",
                                                "no_event",
                                                "wrong_stream",
                                                "event_too_early",
                                                "unmap_without_order",
                                                "cross_thread_free",
                                                "async_free_without_order",
                                                "other_address"};

/// A small caching manager in the order of streams. A block is cached with an event on each stream
/// that may use it; the same stream has it again at once, another waits for those events, or finds
/// by asking that they have come. Half of the blocks are mapped at two addresses, which take turns.
/// Every so often it gives idle blocks back to the device: in one half of them after a wait for
/// their events, by mem_free in the other. Calls from several threads take turns.
class StreamPool final : public MemoryManager {
 public:
  StreamPool(Driver& driver, Haste haste) : driver_(driver), haste_(haste) {}
  ~StreamPool() override {
    for (auto& block : idle_) release(block);
  }

  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (size == 0) return Error{.code = Errc::invalid_value, .native = 1};
    const std::lock_guard hold(mutex_);
    const auto bytes = (size + kStep - 1) / kStep * kStep;
    if (++asked_ % 16 == 0) release_idle();
    auto block = take(bytes, stream);
    if (!block) {
      auto made = grow(bytes, stream);
      if (!made && made.error().code == Errc::out_of_memory) {
        release_idle();
        made = grow(bytes, stream);
      }
      if (!made) return std::move(made).error();
      block = *made;
    }
    block->stream = stream;
    if (haste_ == Haste::event_too_early) record(*block, stream);
    const auto cookie = ++handed_out_;
    live_[cookie] = *block;
    return MemoryPointer(
        block->ptr, size,
        Lifetime({.run = &StreamPool::finalize, .self = this, .cookie = cookie}, epoch_.mark()));
  }
  Result<HostMemory> memhostalloc(std::uint64_t, HostAllocFlags) override { return no(); }
  Result<HostMemory> mempin(HostRange, HostRegisterFlags, std::shared_ptr<const void>) override {
    return no();
  }
  Result<IpcHandle> get_ipc_handle(MemoryView) override { return no(); }
  Result<MemoryInfo> get_memory_info() override { return driver_.mem_get_info(); }
  void reset() noexcept override {
    const std::lock_guard hold(mutex_);
    epoch_.advance();
    for (auto& [cookie, block] : live_) free_block(block);
    live_.clear();
  }
  DeferCleanup defer_cleanup() override { return {}; }

 private:
  static constexpr std::uint64_t kStep = 2 << 20;
  struct Wait {
    StreamHandle stream;
    EventHandle event;
  };
  struct Block {
    DevicePtr ptr;
    std::uint64_t size = 0;
    StreamHandle stream;  ///< That has it, or had it.
    std::vector<Wait> waits;
    PhysicalHandle physical;  ///< 0: of mem_alloc.
    DevicePtr other;          ///< It is mapped here besides.
    bool asynchronous = false;
  };
  static Error no() { return Error{.code = Errc::not_supported}; }
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& pool = *static_cast<StreamPool*>(self);
    const std::lock_guard hold(pool.mutex_);
    pool.freed(pool.live_.extract(cookie).mapped(), stream);
  }

  void record(Block& block, StreamHandle stream) {
    const auto event = driver_.event_create();
    if (event && driver_.event_record(*event, stream)) {
      block.waits.push_back({stream, *event});
      return;
    }
    if (event && !driver_.event_destroy(*event)) return;
    if (!driver_.ctx_synchronize()) return;
  }
  void freed(Block block, StreamHandle stream) {
    const bool other = stream.value != 0 && stream != block.stream;
    if (haste_ == Haste::async_free_without_order && block.asynchronous) {
      if (!driver_.mem_free_async(block.ptr, {})) return;
      return;
    }
    switch (haste_) {
      case Haste::event_too_early:
        break;
      case Haste::no_event:
        break;
      case Haste::cross_thread_free:
        if (other) block.stream = stream;
        record(block, block.stream);
        break;
      default:
        record(block, block.stream);
        if (other) {
          record(block, stream);
          block.stream = {~std::uint64_t{0}};  // nobody's: even its own waits
        }
        break;
    }
    idle_.push_back(std::move(block));
  }

  void forget(Block& block) {
    for (const auto& wait : block.waits) {
      if (!driver_.event_destroy(wait.event)) continue;
    }
    block.waits.clear();
  }
  bool over(const Block& block) {
    for (const auto& wait : block.waits) {
      const auto over = driver_.event_query(wait.event);
      if (!over || !*over) return false;
    }
    return true;
  }
  std::optional<Block> take(std::uint64_t size, StreamHandle stream) {
    for (auto at = idle_.begin(); at != idle_.end(); ++at) {
      if (at->size != size) continue;
      if (at->stream != stream && !order(*at, stream)) continue;
      auto block = std::move(*at);
      idle_.erase(at);
      forget(block);
      if (block.other) std::swap(block.ptr, block.other);
      return block;
    }
    return std::nullopt;
  }
  bool order(Block& block, StreamHandle stream) {
    if (haste_ == Haste::other_address && block.other) return true;
    if (haste_ == Haste::no_event || (!block.waits.empty() && over(block))) return true;
    for (auto& wait : block.waits) {
      if (haste_ == Haste::wrong_stream && !driver_.event_record(wait.event, stream)) return false;
      if (!driver_.stream_wait_event(stream, wait.event)) return false;
    }
    return true;
  }

  Result<Block> grow(std::uint64_t size, StreamHandle stream) {
    Block block{
        .ptr = {}, .size = size, .stream = stream, .waits = {}, .physical = {}, .other = {}};
    if (++grown_ % 2 == 0 && haste_ == Haste::async_free_without_order) {
      auto ptr = driver_.mem_alloc_async(size, stream);
      if (!ptr) return std::move(ptr).error();
      block.ptr = *ptr;
      block.asynchronous = true;
      return block;
    }
    if (grown_ % 2 == 0) {
      auto physical = driver_.mem_create(size);
      if (!physical) return std::move(physical).error();
      block.physical = *physical;
      for (auto* address : {&block.ptr, &block.other}) {
        auto ptr = driver_.mem_address_reserve(size);
        if (!ptr || !driver_.mem_map(*ptr, size, 0, *physical)) return no();
        if (!driver_.mem_set_access(*ptr, size, AccessFlags::read_write)) return no();
        *address = *ptr;
      }
      return block;
    }
    auto ptr = driver_.mem_alloc(size);
    if (!ptr) return std::move(ptr).error();
    block.ptr = *ptr;
    return block;
  }
  void release_idle() {
    for (auto& block : idle_) release(block);
    idle_.clear();
  }
  void free_block(Block& block) {
    record(block, block.stream);
    release(block);
  }
  void release(Block& block) {
    if (block.physical.value != 0) {
      if (haste_ != Haste::unmap_without_order) {
        bool waited = !block.waits.empty();
        for (const auto& wait : block.waits)
          waited = waited && driver_.event_synchronize(wait.event).has_value();
        if (!waited && !driver_.ctx_synchronize()) return;
      }
      for (const auto address : {block.ptr, block.other}) {
        if (!driver_.mem_unmap(address, block.size)) return;
        if (!driver_.mem_address_free(address, block.size)) return;
      }
      if (!driver_.mem_release(block.physical)) return;
    } else if (!driver_.mem_free(block.ptr)) {
      return;
    }
    forget(block);
  }

  Driver& driver_;
  const Haste haste_;
  std::mutex mutex_;  // Held over all below.
  Epoch epoch_;
  std::map<std::uint64_t, Block> live_;
  std::list<Block> idle_;
  std::uint64_t handed_out_ = 0;
  std::uint64_t asked_ = 0;
  std::uint64_t grown_ = 0;
};

}  // namespace emm::stream_order
