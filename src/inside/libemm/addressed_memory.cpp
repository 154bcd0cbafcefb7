#include "libemm/addressed_memory.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "driver/call.hpp"
#include "libemm/capture_mode.hpp"
#include "libemm/recording.hpp"
#include "libemm/shortage.hpp"

namespace emm::libemm {
namespace {

/// CUDA has two handles for its default stream; managers know one.
StreamHandle as_managers_say(StreamHandle stream) noexcept {
  return stream == kLegacyStream ? StreamHandle{} : stream;
}

}  // namespace

Result<MemoryPointer> AddressedMemory::request(std::uint64_t size, StreamHandle stream) {
  const bool capturing = is_capturing();
  if (!capturing && some_wait_.load(std::memory_order_acquire)) reap(false);
  const RelaxedCapture relaxed(capturing);
  auto made = manager_.manager().memalloc(size, stream);
  if (made || made.error().code != Errc::out_of_memory || capturing ||
      !some_wait_.load(std::memory_order_acquire))
    return made;
  reap(true);
  return manager_.manager().memalloc(size, stream);
}

Result<AddressedMemory::LiveBlock> AddressedMemory::made(std::uint64_t size, StreamHandle stream,
                                                         DevicePtr& ptr) {
  std::uint64_t pool = 0;
  if (is_capturing()) {
    const std::lock_guard lock(captures_);
    pool = pools_.of(stream);
    if (auto kept = pools_.take(pool, size, stream); kept.size != 0) {
      ptr = kept.address;
      return LiveBlock{.lifetime = std::move(kept.lifetime),
                       .size = size,
                       .capacity = kept.size,
                       .pool = pool,
                       .stream = stream,
                       .others = {}};
    }
  }
  auto made = request(size, as_managers_say(stream));
  if (!made) return std::move(made).error();
  ptr = made->device_pointer();
  return LiveBlock{.lifetime = (*std::move(made)).take_lifetime(),
                   .size = size,
                   .capacity = size,
                   .pool = pool,
                   .stream = stream,
                   .others = {}};
}

Result<DevicePtr> AddressedMemory::take(std::uint64_t size, StreamHandle stream) {
  auto& recording = Recording::of_process();
  const auto began_ns = recording.now_ns();
  const auto limit = limit_.load(std::memory_order_relaxed);
  const auto live = live_bytes_.fetch_add(size, std::memory_order_relaxed);
  DevicePtr ptr;
  auto block = size > limit || live > limit - size ? driver_error(Call::mem_alloc, 2)
                                                   : made(size, stream, ptr);
  if (!block) {
    live_bytes_.fetch_sub(size, std::memory_order_relaxed);
    recording.refused(device_, size, stream, block.error(), began_ns);
    return with_state(std::move(block).error());
  }
  block->number = recording.made(device_, size, stream, ptr, began_ns);
  auto& shard = shard_of(ptr);
  const std::lock_guard lock(shard.mutex);
  shard.blocks.insert_or_assign(ptr.value, *std::move(block));
  return ptr;
}

Error AddressedMemory::with_state(Error error) {
  if (error.code != Errc::out_of_memory) return error;
  auto words = describe(error) + shortage(manager_.manager());
  const auto limit = limit_.load(std::memory_order_relaxed);
  if (limit != kNoLimit) words += text::format(", limited to {}", units::bytes(limit));
  if (const auto info = is_capturing() ? Result<MemoryInfo>(Error{.code = Errc::not_supported})
                                       : manager_.driver().mem_get_info()) {
    words += text::format(", free on the device {} of {}", units::bytes(info->free),
                          units::bytes(info->total));
  }
  error.message = std::move(words);
  return error;
}

WrongFree AddressedMemory::not_alive(DevicePtr ptr) {
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    for (const auto& [base, block] : shard.blocks) {
      if (ptr.value <= base || ptr.value - base >= block.size) continue;
      return {.kind = WrongFree::Kind::inside,
              .words = text::format("{} is inside of the {} bytes at {}, which stay",
                                    text::hex(ptr.value), block.size, text::hex(base))};
    }
  }
  return {.kind = WrongFree::Kind::not_alive,
          .words = text::format("no memory begins at {}: it was freed before, or is another's",
                                text::hex(ptr.value))};
}

std::optional<WrongFree> AddressedMemory::free(DevicePtr ptr, std::optional<std::uint64_t> size) {
  std::optional<LiveBlock> block;
  {
    auto& shard = shard_of(ptr);
    const std::lock_guard lock(shard.mutex);
    if (const auto found = shard.blocks.find(ptr.value); found != shard.blocks.end()) {
      block = std::move(found->second);
      shard.blocks.erase(found);
    }
  }
  if (!block) return not_alive(ptr);
  const auto was = block->size;
  end(*std::move(block), ptr);
  if (size.value_or(was) == was) return {};
  return WrongFree{.kind = WrongFree::Kind::size,
                   .words = text::format("the memory at {} has {} bytes, not {}: it is freed",
                                         text::hex(ptr.value), was, *size)};
}

void AddressedMemory::end(LiveBlock block, DevicePtr ptr) {
  live_bytes_.fetch_sub(block.size, std::memory_order_relaxed);
  Recording::of_process().freed(block.number, device_, block.stream);
  if (block.pool != 0) {
    const std::lock_guard lock(captures_);
    PrivatePools::KeptMemory memory{ptr, block.capacity, block.stream, std::move(block.lifetime)};
    if (pools_.keep(block.pool, memory, block.others.empty())) return;
    block.lifetime = std::move(memory.lifetime);
  }
  if (block.others.empty()) return end(block.lifetime, block.stream);
  if (is_capturing()) {
    const std::lock_guard lock(captures_);
    if (pools_.open() > 0) {
      postponed_.push_back({std::move(block.lifetime), block.stream, std::move(block.others)});
      return;
    }
  }
  end_after(std::move(block.lifetime), block.stream, block.others);
}

void AddressedMemory::end(Lifetime& lifetime, StreamHandle stream) noexcept {
  if (lifetime.alive()) static_cast<void>(lifetime.free(as_managers_say(stream)));
}

void AddressedMemory::end_after(Lifetime lifetime, StreamHandle stream,
                                const std::vector<StreamHandle>& others) {
  auto& driver = manager_.driver();
  std::vector<EventHandle> events;
  for (const auto other : others) {
    const auto event = driver.event_create();
    if (event && driver.event_record(*event, other)) {
      events.push_back(*event);
      continue;
    }
    if (event) static_cast<void>(driver.event_destroy(*event));
    static_cast<void>(driver.ctx_synchronize());  // a destroyed stream may still have work
  }
  if (events.empty()) return end(lifetime, stream);
  const std::lock_guard lock(waits_);
  waiting_.push_back({std::move(lifetime), stream, std::move(events)});
  some_wait_.store(true, std::memory_order_release);
}

bool AddressedMemory::holds(DevicePtr ptr) {
  auto& shard = shard_of(ptr);
  const std::lock_guard lock(shard.mutex);
  return shard.blocks.count(ptr.value) != 0;
}

void AddressedMemory::record_stream(DevicePtr ptr, StreamHandle stream) {
  auto& shard = shard_of(ptr);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.blocks.find(ptr.value);
  if (found == shard.blocks.end() || found->second.stream == stream) return;
  auto& others = found->second.others;
  if (std::find(others.begin(), others.end(), stream) != others.end()) return;
  others.push_back(stream);
  Recording::of_process().used_on(found->second.number, device_, stream);
}

void AddressedMemory::record_alive() {
  std::vector<std::uint64_t> addresses;
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    addresses.clear();
    for (const auto& [address, block] : shard.blocks) addresses.push_back(address);
    std::sort(addresses.begin(), addresses.end());
    for (const auto address : addresses) {
      auto& block = shard.blocks.at(address);
      block.number = Recording::of_process().alive(block.number, device_, block.size, block.stream,
                                                   DevicePtr{address});
    }
  }
}

void AddressedMemory::wait() {
  if (!is_capturing()) reap(true);
}

bool AddressedMemory::is_idle() {
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    if (!shard.blocks.empty()) return false;
  }
  const std::lock_guard lock(captures_);
  return pools_.empty() && postponed_.empty() && !some_wait_.load();
}

bool AddressedMemory::is_done(const DeferredFree& waiting) {
  return std::all_of(waiting.events.begin(), waiting.events.end(), [&](EventHandle event) {
    const auto done = manager_.driver().event_query(event);
    return !done || *done;
  });
}

void AddressedMemory::reap(bool all) {
  auto& driver = manager_.driver();
  const std::lock_guard lock(waits_);
  while (!waiting_.empty() && (all || is_done(waiting_.front()))) {
    auto first = std::move(waiting_.front());
    waiting_.pop_front();
    for (const auto event : first.events) {
      if (all) static_cast<void>(driver.event_synchronize(event));
      static_cast<void>(driver.event_destroy(event));
    }
    end(first.lifetime, first.stream);
  }
  some_wait_.store(!waiting_.empty(), std::memory_order_release);
}

void AddressedMemory::begin_private(const PrivatePools::Id& id, PrivatePools::Filter takes) {
  const std::lock_guard lock(captures_);
  pools_.begin(id, std::move(takes));
  capturing_.store(true, std::memory_order_release);
}

void AddressedMemory::end_private(const PrivatePools::Id& id) {
  const std::lock_guard lock(captures_);
  pools_.end(id);
  if (pools_.open() > 0) return;
  capturing_.store(false, std::memory_order_release);
  for (auto& each : std::exchange(postponed_, {}))
    end_after(std::move(each.lifetime), each.stream, each.others);
  end_unused_pools();
}

void AddressedMemory::release_private(const PrivatePools::Id& id) {
  const std::lock_guard lock(captures_);
  pools_.release(id);
  if (pools_.open() == 0) end_unused_pools();
}

// The last replay of a graph may still run on the dropped memory, so this waits for the device.
void AddressedMemory::end_unused_pools() {
  auto dropped = pools_.drop_unused();
  if (dropped.empty()) return;
  static_cast<void>(manager_.driver().ctx_synchronize());
  for (auto& memory : dropped) end(memory.lifetime, memory.stream);
}

}  // namespace emm::libemm
