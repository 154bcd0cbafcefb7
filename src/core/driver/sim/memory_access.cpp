#include "driver/sim/memory_access.hpp"

#include <algorithm>
#include <cstring>

namespace emm::sim {

// Locks virtual memory first, then devices in the order of their addresses, then host memory. The
// fixed order prevents a deadlock of two accesses.
MemoryAccess::MemoryAccess(SimPlatform& platform, DevicePtr first, DevicePtr second)
    : platform_(platform) {
  auto* lower = platform.device_at(std::min(first, second).value);
  auto* higher = platform.device_at(std::max(first, second).value);
  if (lower == nullptr || higher == nullptr) {
    if (VirtualMemory::owns(first.value) || VirtualMemory::owns(second.value))
      virtual_ = std::unique_lock(platform.virtual_memory().mutex());
  }
  if (lower != nullptr) lower_ = std::unique_lock(lower->mutex());
  if (higher != nullptr && higher != lower) higher_ = std::unique_lock(higher->mutex());
  if (lower == nullptr || higher == nullptr) host_ = std::unique_lock(platform.host().mutex());
}

MemoryAccess::Spot MemoryAccess::find(DevicePtr at, std::uint64_t size, Use use) {
  if (auto* device = platform_.device_at(at.value)) {
    if (device_ >= 0 && !platform_.device(device_).reaches(device->ordinal())) return {};
    const auto place = device->content_at(at.value, size);
    return {place.content, place.offset, nullptr, place.content != nullptr ? size : 0};
  }
  if (VirtualMemory::owns(at.value)) {
    const auto place = platform_.virtual_memory().content_at(at.value, use, device_);
    return {place.content, place.offset, nullptr, std::min(place.left, size)};
  }
  auto* bytes = platform_.host().bytes(at.value, size, host_);
  return {nullptr, 0, bytes, bytes != nullptr ? size : 0};
}

bool MemoryAccess::holds(DevicePtr at, std::uint64_t size, Use use) {
  for (std::uint64_t done = 0; done < size;) {
    const auto spot = find(at + done, size - done, use);
    if (spot.size == 0) return false;
    done += spot.size;
  }
  return true;
}

/// Calls `act` for one spot after the other. First checks that there is memory everywhere, so that
/// a refused access changes nothing.
template <class Act>
std::int32_t MemoryAccess::each(DevicePtr at, std::uint64_t size, Use use, Act act) {
  auto spot = find(at, size, use);
  if (spot.size < size && !holds(at, size, use)) return kInvalidValue;
  for (std::uint64_t done = 0;;) {
    act(spot, done);
    done += spot.size;
    if (done == size) return kSuccess;
    spot = find(at + done, size - done, use);
  }
}

std::int32_t MemoryAccess::fill(DevicePtr at, std::uint32_t value, std::uint64_t size) {
  return each(at, size, Use::write, [&](const Spot& spot, std::uint64_t) {
    if (spot.content != nullptr) {
      spot.content->fill(spot.offset, spot.size, pattern_at(spot.offset, value));
    } else {
      repeat(std::span(spot.bytes, spot.size), value);
    }
  });
}

std::int32_t MemoryAccess::write(DevicePtr at, std::span<const std::byte> bytes) {
  return each(at, bytes.size(), Use::write, [&](const Spot& spot, std::uint64_t done) {
    const auto part = bytes.subspan(done, spot.size);
    if (spot.content != nullptr) {
      spot.content->write(spot.offset, part);
    } else {
      std::memmove(spot.bytes, part.data(), part.size());
    }
  });
}

std::int32_t MemoryAccess::read(DevicePtr at, std::span<std::byte> bytes) {
  return each(at, bytes.size(), Use::read, [&](const Spot& spot, std::uint64_t done) {
    const auto part = bytes.subspan(done, spot.size);
    if (spot.content != nullptr) {
      spot.content->read(spot.offset, part);
    } else {
      std::memmove(part.data(), spot.bytes, part.size());
    }
  });
}

void MemoryAccess::move(const Spot& to, const Spot& from, std::uint64_t size) {
  if (to.bytes != nullptr && from.bytes != nullptr) {
    std::memmove(to.bytes, from.bytes, size);
  } else if (to.bytes != nullptr) {
    from.content->read(from.offset, std::span(to.bytes, size));
  } else if (from.bytes != nullptr) {
    to.content->write(to.offset, std::span<const std::byte>(from.bytes, size));
  } else {
    Content::copy({*to.content, to.offset}, {*from.content, from.offset}, size);
  }
}

// Across several mappings the copy starts at the front and goes as far as both spots reach. If the
// target overlaps its source from above, the copy starts at the end, so that it reads the overlap
// before it writes it. It then goes page by page, since a spot can be found only by its start.
std::int32_t MemoryAccess::copy(DevicePtr to, DevicePtr from, std::uint64_t size) {
  const auto target = find(to, size, Use::write);
  const auto source = find(from, size, Use::read);
  if (target.size == size && source.size == size) {
    move(target, source, size);
    return kSuccess;
  }
  if (!holds(to, size, Use::write) || !holds(from, size, Use::read)) return kInvalidValue;
  const bool backwards = to > from && to - from < size;
  for (std::uint64_t done = 0; done < size;) {
    if (backwards) {
      const auto end = size - done;
      const auto in_page = [&](DevicePtr at) { return (at + (end - 1)).value % kPageBytes + 1; };
      const auto part = std::min({end, in_page(to), in_page(from)});
      const auto begin = end - part;
      move(find(to + begin, part, Use::write), find(from + begin, part, Use::read), part);
      done += part;
    } else {
      const auto here = find(to + done, size - done, Use::write);
      const auto there = find(from + done, size - done, Use::read);
      const auto part = std::min(here.size, there.size);
      move(here, there, part);
      done += part;
    }
  }
  return kSuccess;
}

}  // namespace emm::sim
