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
  if (!capturing && is(kWaits)) reap(false);
  const RelaxedCapture relaxed(capturing);
  auto made = manager_.manager().memalloc(size, stream);
  if (made || made.error().code != Errc::out_of_memory || capturing || !is(kWaits)) return made;
  reap(true);
  return manager_.manager().memalloc(size, stream);
}

Result<LiveBlock> AddressedMemory::made(std::uint64_t size, StreamHandle stream, DevicePtr& ptr) {
  std::uint64_t pool = 0;
  if (is_capturing()) {
    const std::lock_guard lock(captures_);
    pool = pools_.of(stream);
    if (auto kept = pools_.take(pool, size, stream); kept.size != 0) {
      ptr = kept.address;
      LiveBlock block{
          .lifetime = std::move(kept.lifetime), .size = size, .stream = stream, .rest = {}};
      block.with_rest().capacity = kept.size;
      block.rest->pool = pool;
      return block;
    }
  }
  auto made = request(size, as_managers_say(stream));
  if (!made) return std::move(made).error();
  ptr = made->device_pointer();
  LiveBlock block{
      .lifetime = (*std::move(made)).take_lifetime(), .size = size, .stream = stream, .rest = {}};
  if (pool != 0) {
    block.with_rest().capacity = size;
    block.rest->pool = pool;
  }
  return block;
}

void AddressedMemory::keep(DevicePtr ptr, LiveBlock&& block) {
  std::optional<LiveBlock> former;  // ends after the lock
  auto& shard = shard_of(ptr);
  const std::lock_guard lock(shard.lock);
  former = shard.blocks.insert(ptr.value, std::move(block));
}

Result<DevicePtr> AddressedMemory::take(std::uint64_t size, StreamHandle stream) {
  if (special_.load(std::memory_order_acquire) != 0 || Recording::is_on()) [[unlikely]]
    return take_slowly(size, stream);
  auto made = manager_.manager().memalloc(size, as_managers_say(stream));
  if (!made) [[unlikely]] {
    const bool another_waits = made.error().code == Errc::out_of_memory && is(kWaits);
    return another_waits ? take_slowly(size, stream) : with_state(std::move(made).error());
  }
  const auto ptr = made->device_pointer();
  keep(
      ptr,
      {.lifetime = (*std::move(made)).take_lifetime(), .size = size, .stream = stream, .rest = {}});
  return ptr;
}

Result<DevicePtr> AddressedMemory::take_slowly(std::uint64_t size, StreamHandle stream) {
  auto& recording = Recording::of_process();
  const auto began_ns = recording.now_ns();
  DevicePtr ptr;
  const bool may = expect(size);
  auto block = may ? made(size, stream, ptr) : driver_error(Call::mem_alloc, 2);
  if (!block) {
    if (may) expect_no_more(size);
    recording.refused(device_, size, stream, block.error(), began_ns);
    return with_state(std::move(block).error());
  }
  if (const auto number = recording.made(device_, size, stream, ptr, began_ns); number != 0)
    block->with_rest().number = number;
  const std::lock_guard lock(limits_);
  expected_bytes_ -= size;
  keep(ptr, *std::move(block));
  return ptr;
}

void AddressedMemory::set_limit(std::uint64_t bytes) {
  const std::lock_guard lock(limits_);
  limit_ = bytes;
  set(kIsLimited, bytes != kNoLimit);
}

bool AddressedMemory::expect(std::uint64_t size) {
  const std::lock_guard lock(limits_);
  auto live = expected_bytes_;
  if (limit_ != kNoLimit) {
    for (const auto& shard : shards_) live += shard.blocks.bytes();
  }
  if (size > limit_ || live > limit_ - size) return false;
  expected_bytes_ += size;
  return true;
}

void AddressedMemory::expect_no_more(std::uint64_t size) {
  const std::lock_guard lock(limits_);
  expected_bytes_ -= size;
}

Error AddressedMemory::with_state(Error error) {
  if (error.code != Errc::out_of_memory) return error;
  auto words = describe(error) + shortage(manager_.manager());
  const auto limit = [&] {
    const std::lock_guard lock(limits_);
    return limit_;
  }();
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
  std::uint64_t around = 0, size = 0;
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    shard.blocks.for_each([&](std::uint64_t base, const LiveBlock& block) {
      if (ptr.value <= base || ptr.value - base >= block.size) return;
      around = base;
      size = block.size;
    });
  }
  if (around != 0) {
    return {.kind = WrongFree::Kind::inside,
            .words = text::format("{} is inside of the {} bytes at {}, which stay",
                                  text::hex(ptr.value), size, text::hex(around))};
  }
  return {.kind = WrongFree::Kind::not_alive,
          .words = text::format("no memory begins at {}: it was freed before, or is another's",
                                text::hex(ptr.value))};
}

bool AddressedMemory::free_plain(DevicePtr ptr, std::optional<std::uint64_t> size) noexcept {
  LiveBlock block;
  auto& shard = shard_of(ptr);
  std::unique_lock lock(shard.lock);
  if (!shard.blocks.take(ptr.value, block, [&](const LiveBlock& there) {
        return there.rest == nullptr && size.value_or(there.size) == there.size;
      })) [[unlikely]]
    return false;
  lock.unlock();
  end(block.lifetime, block.stream);
  return true;
}

std::optional<WrongFree> AddressedMemory::free(DevicePtr ptr, std::optional<std::uint64_t> size) {
  LiveBlock block;
  auto& shard = shard_of(ptr);
  std::unique_lock lock(shard.lock);
  const bool was_alive = shard.blocks.take(ptr.value, block, [](const LiveBlock&) { return true; });
  lock.unlock();
  if (!was_alive) return not_alive(ptr);
  const auto was = block.size;
  end(std::move(block), ptr);
  if (size.value_or(was) == was) return {};
  return WrongFree{.kind = WrongFree::Kind::size,
                   .words = text::format("the memory at {} has {} bytes, not {}: it is freed",
                                         text::hex(ptr.value), was, *size)};
}

void AddressedMemory::end(LiveBlock block, DevicePtr ptr) {
  if (block.rest == nullptr) return end(block.lifetime, block.stream);
  auto& rest = *block.rest;
  Recording::of_process().freed(rest.number, device_, block.stream);
  if (rest.pool != 0) {
    const std::lock_guard lock(captures_);
    PrivatePools::KeptMemory memory{ptr, rest.capacity, block.stream, std::move(block.lifetime)};
    if (pools_.keep(rest.pool, memory, rest.others.empty())) return;
    block.lifetime = std::move(memory.lifetime);
  }
  if (rest.others.empty()) return end(block.lifetime, block.stream);
  if (is_capturing()) {
    const std::lock_guard lock(captures_);
    if (pools_.open() > 0) {
      postponed_.push_back({std::move(block.lifetime), block.stream, std::move(rest.others)});
      return;
    }
  }
  end_after(std::move(block.lifetime), block.stream, rest.others);
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
  set(kWaits, true);
}

bool AddressedMemory::holds(DevicePtr ptr) {
  auto& shard = shard_of(ptr);
  const std::lock_guard lock(shard.lock);
  return shard.blocks.find(ptr.value) != nullptr;
}

void AddressedMemory::record_stream(DevicePtr ptr, StreamHandle stream) {
  std::uint64_t number = 0;
  {
    auto& shard = shard_of(ptr);
    const std::lock_guard lock(shard.lock);
    auto* const found = shard.blocks.find(ptr.value);
    if (found == nullptr || found->stream == stream) return;
    auto& rest = found->with_rest();
    if (std::find(rest.others.begin(), rest.others.end(), stream) != rest.others.end()) return;
    rest.others.push_back(stream);
    number = rest.number;
  }
  Recording::of_process().used_on(number, device_, stream);
}

void AddressedMemory::record_alive() {
  std::vector<std::uint64_t> addresses;
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    addresses.clear();
    shard.blocks.for_each(
        [&](std::uint64_t address, const LiveBlock&) { addresses.push_back(address); });
    std::sort(addresses.begin(), addresses.end());
    for (const auto address : addresses) {
      auto& block = *shard.blocks.find(address);
      auto& rest = block.with_rest();
      rest.number = Recording::of_process().alive(rest.number, device_, block.size, block.stream,
                                                  DevicePtr{address});
    }
  }
}

void AddressedMemory::wait() {
  if (!is_capturing()) reap(true);
}

bool AddressedMemory::is_idle() {
  for (auto& shard : shards_) {
    const std::lock_guard lock(shard.lock);
    if (!shard.blocks.empty()) return false;
  }
  const std::lock_guard lock(captures_);
  return pools_.empty() && postponed_.empty() && !is(kWaits);
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
  set(kWaits, !waiting_.empty());
}

void AddressedMemory::begin_private(const PrivatePools::Id& id, PrivatePools::Filter takes) {
  const std::lock_guard lock(captures_);
  pools_.begin(id, std::move(takes));
  set(kCaptures, true);
}

void AddressedMemory::end_private(const PrivatePools::Id& id) {
  const std::lock_guard lock(captures_);
  pools_.end(id);
  if (pools_.open() > 0) return;
  set(kCaptures, false);
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
