#include "replay/content.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace emm::replay {
namespace {

// Memory of up to kWhole bytes is filled whole. Larger memory is filled at both edges, and in
// between at kProbes places of kProbe bytes.
constexpr std::uint64_t kWhole = 65'536;
constexpr std::uint64_t kEdge = 4096;
constexpr std::uint64_t kProbes = 64;
constexpr std::uint64_t kProbe = 64;

/// The inverse of an odd number modulo 2^32, by Newton's iteration.
constexpr std::uint32_t inverse(std::uint32_t odd) {
  std::uint32_t x = odd;
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
  return x;
}

Difference difference_at(std::span<const std::byte> bytes, std::uint64_t offset, std::size_t at,
                         Pattern pattern) {
  Difference difference{.offset = offset + at,
                        .found = bytes[at],
                        .expected = pattern.at(offset + at),
                        .refused = {}};
  const auto begin = (offset + at) / 4 * 4;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto place = begin + i;
    if (place < offset || place - offset >= bytes.size()) continue;
    difference.word |= std::to_integer<std::uint32_t>(bytes[place - offset]) << (8 * i);
  }
  return difference;
}

}  // namespace

Pattern Pattern::of_peer(AllocId id) noexcept {
  Pattern pattern(id);
  pattern.word_ = ~pattern.word_;
  return pattern;
}

AllocId Pattern::owner(std::uint32_t word) noexcept { return AllocId{word * inverse(kFactor) - 1}; }

void Pattern::fill(std::span<std::byte> bytes, std::uint64_t offset) const noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = at(offset + i);
}

std::optional<std::size_t> Pattern::mismatch(std::span<const std::byte> bytes,
                                             std::uint64_t offset) const noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != at(offset + i)) return i;
  }
  return std::nullopt;
}

void for_each_probe(std::uint64_t size,
                    const std::function<bool(std::uint64_t, std::uint64_t)>& each) {
  if (size == 0) return;
  if (size <= kWhole) {
    each(0, size);
    return;
  }
  if (!each(0, kEdge)) return;
  const auto between = size - 2 * kEdge - kProbe;
  for (std::uint64_t i = 0; i < kProbes; ++i) {
    const auto offset = kEdge + (between / kProbes * i + between % kProbes * i / kProbes) / 4 * 4;
    if (!each(offset, kProbe)) return;
  }
  each(size - kEdge, kEdge);
}

Status fill_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size, Pattern pattern) {
  if (auto filled = driver.memset_d32(ptr, pattern.word(), size / 4); !filled && size >= 4)
    return filled;
  const auto rest = size % 4;
  if (rest == 0) return {};
  std::byte tail[3];
  pattern.fill({tail, rest}, size - rest);
  return driver.memcpy_htod(ptr + (size - rest), {tail, rest});
}

std::optional<Difference> check_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size,
                                       Pattern pattern) {
  std::optional<Difference> found;
  std::vector<std::byte> bytes;
  for_each_probe(size, [&](std::uint64_t offset, std::uint64_t count) {
    bytes.resize(count);
    if (auto read = driver.memcpy_dtoh(bytes, ptr + offset); !read) {
      found = Difference{.offset = offset, .refused = describe(read.error())};
    } else if (const auto at = pattern.mismatch(bytes, offset)) {
      found = difference_at(bytes, offset, *at, pattern);
    }
    return !found;
  });
  return found;
}

void fill_host(HostPtr ptr, std::uint64_t size, Pattern pattern) noexcept {
  for_each_probe(size, [&](std::uint64_t offset, std::uint64_t count) {
    pattern.fill({ptr + offset, count}, offset);
    return true;
  });
}

std::optional<Difference> check_host(HostPtr ptr, std::uint64_t size, Pattern pattern) {
  std::optional<Difference> found;
  for_each_probe(size, [&](std::uint64_t offset, std::uint64_t count) {
    const std::span<const std::byte> bytes{ptr + offset, count};
    if (const auto at = pattern.mismatch(bytes, offset))
      found = difference_at(bytes, offset, *at, pattern);
    return !found;
  });
  return found;
}

}  // namespace emm::replay
