#include "libemm/addressed_memory.hpp"

#include <algorithm>
#include <utility>

#include "libemm/recording.hpp"

namespace emm::libemm {

Result<MemoryPointer> AddressedMemory::request(std::uint64_t size, StreamHandle stream) {
  bool some_wait = false;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) reap(false);
    if (size > limit_ || live_bytes_ > limit_ - size) return driver_error(Call::mem_alloc, 2);
    some_wait = !waiting_.empty();
  }
  auto made = manager_.manager().memalloc(size, stream);
  if (made || made.error().code != Errc::out_of_memory || !some_wait) return made;
  wait();
  return manager_.manager().memalloc(size, stream);
}

Result<DevicePtr> AddressedMemory::take(std::uint64_t size, StreamHandle stream) {
  auto made = request(size, stream);
  auto& recording = Recording::of_process();
  if (!made) {
    recording.refused(device_, size, stream, made.error());
    return std::move(made).error();
  }
  const auto ptr = made->device_pointer();
  const auto token = manager_.hold((*std::move(made)).take_lifetime());
  const auto number = recording.made(device_, size, stream, ptr);
  const std::lock_guard lock(mutex_);
  blocks_[ptr.value] = {
      .token = token, .size = size, .number = number, .stream = stream, .others = {}};
  live_bytes_ += size;
  return ptr;
}

void AddressedMemory::give_back(DevicePtr ptr) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(ptr.value);
    if (found == blocks_.end()) return;
    block = std::move(found->second);
    blocks_.erase(found);
    live_bytes_ -= block.size;
  }
  Recording::of_process().freed(block.number, device_, block.stream);
  auto& driver = manager_.driver();
  std::vector<EventHandle> events;
  for (const auto stream : block.others) {
    const auto event = driver.event_create();
    if (event && driver.event_record(*event, stream)) {
      events.push_back(*event);
      continue;
    }
    if (event) static_cast<void>(driver.event_destroy(*event));
    static_cast<void>(driver.ctx_synchronize());  // a stream that is gone has work all the same
  }
  if (events.empty()) {
    static_cast<void>(manager_.free(block.token, block.stream));
    return;
  }
  const std::lock_guard lock(mutex_);
  waiting_.push_back({.token = block.token, .stream = block.stream, .events = std::move(events)});
}

bool AddressedMemory::holds(DevicePtr ptr) {
  const std::lock_guard lock(mutex_);
  return blocks_.count(ptr.value) != 0;
}

void AddressedMemory::record_stream(DevicePtr ptr, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(ptr.value);
  if (found == blocks_.end() || found->second.stream == stream) return;
  auto& others = found->second.others;
  if (std::find(others.begin(), others.end(), stream) != others.end()) return;
  others.push_back(stream);
  Recording::of_process().used_on(found->second.number, device_, stream);
}

void AddressedMemory::set_limit(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void AddressedMemory::wait() {
  const std::lock_guard lock(mutex_);
  reap(true);
}

bool AddressedMemory::is_done(const Waiting& waiting) {
  return std::all_of(waiting.events.begin(), waiting.events.end(), [&](EventHandle event) {
    const auto done = manager_.driver().event_query(event);
    return !done || *done;
  });
}

void AddressedMemory::reap(bool all) {
  auto& driver = manager_.driver();
  while (!waiting_.empty() && (all || is_done(waiting_.front()))) {
    const auto first = std::move(waiting_.front());
    waiting_.pop_front();
    for (const auto event : first.events) {
      if (all) static_cast<void>(driver.event_synchronize(event));
      static_cast<void>(driver.event_destroy(event));
    }
    static_cast<void>(manager_.free(first.token, first.stream));
  }
}

}  // namespace emm::libemm
