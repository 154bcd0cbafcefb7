#include "driver/sim/memory_access.hpp"

#include <algorithm>
#include <cstring>

namespace emm::sim {

// Devices are locked in the order of their addresses, host memory after them, so that two accesses
// cannot wait for each other.
MemoryAccess::MemoryAccess(SimPlatform& platform, DevicePtr first, DevicePtr second)
    : platform_(platform) {
  auto* lower = platform.device_at(std::min(first, second).value);
  auto* higher = platform.device_at(std::max(first, second).value);
  if (lower != nullptr) lower_ = std::unique_lock(lower->mutex());
  if (higher != nullptr && higher != lower) higher_ = std::unique_lock(higher->mutex());
  if (lower == nullptr || higher == nullptr) host_ = std::unique_lock(platform.host().mutex());
}

MemoryAccess::Spot MemoryAccess::find(DevicePtr at, std::uint64_t size) {
  if (auto* device = platform_.device_at(at.value)) {
    if (device_ >= 0 && !platform_.device(device_).reaches(device->ordinal())) return {};
    const auto place = device->place(at.value, size);
    return {.content = place.content, .offset = place.offset, .bytes = nullptr};
  }
  return {.content = nullptr, .offset = 0, .bytes = platform_.host().bytes(at.value, size, host_)};
}

bool MemoryAccess::holds(DevicePtr at, std::uint64_t size) {
  const auto spot = find(at, size);
  return spot.content != nullptr || spot.bytes != nullptr;
}

std::int32_t MemoryAccess::fill(DevicePtr at, std::uint32_t value, std::uint64_t size) {
  const auto spot = find(at, size);
  if (spot.content != nullptr) {
    spot.content->fill(spot.offset, size, pattern_at(spot.offset, value));
  } else if (spot.bytes != nullptr) {
    repeat(std::span(spot.bytes, size), value);
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

std::int32_t MemoryAccess::write(DevicePtr at, std::span<const std::byte> bytes) {
  const auto spot = find(at, bytes.size());
  if (spot.content != nullptr) {
    spot.content->write(spot.offset, bytes);
  } else if (spot.bytes != nullptr) {
    std::memmove(spot.bytes, bytes.data(), bytes.size());
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

std::int32_t MemoryAccess::read(DevicePtr at, std::span<std::byte> bytes) {
  const auto spot = find(at, bytes.size());
  if (spot.content != nullptr) {
    spot.content->read(spot.offset, bytes);
  } else if (spot.bytes != nullptr) {
    std::memmove(bytes.data(), spot.bytes, bytes.size());
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

std::int32_t MemoryAccess::copy(DevicePtr to, DevicePtr from, std::uint64_t size) {
  const auto target = find(to, size);
  const auto source = find(from, size);
  if (target.bytes != nullptr) return read(from, std::span(target.bytes, size));
  if (source.bytes != nullptr) return write(to, std::span<const std::byte>(source.bytes, size));
  if (target.content == nullptr || source.content == nullptr) return kInvalidValue;
  Content::copy({*target.content, target.offset}, {*source.content, source.offset}, size);
  return kSuccess;
}

}  // namespace emm::sim
