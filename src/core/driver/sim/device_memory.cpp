#include "driver/sim/device_memory.hpp"

#include <algorithm>
#include <bit>

namespace emm::sim {
namespace {

// A device has eight times as many addresses as memory, so that the lowest fit runs out of memory
// before addresses, except in contrived cases.
constexpr std::uint32_t kMostPages = 1u << 22;

std::uint32_t address_pages(std::uint32_t pages) {
  return std::min(std::bit_ceil(pages) * 8, kMostPages);
}

std::uint32_t units_of(std::uint64_t size) {
  return static_cast<std::uint32_t>((size + Chunk::kUnitBytes - 1) / Chunk::kUnitBytes);
}

std::uint64_t pages_of(std::uint64_t size) {
  return size / kPageBytes + (size % kPageBytes != 0 ? 1 : 0);
}

}  // namespace

DeviceMemory::DeviceMemory(std::uint64_t base, std::uint32_t pages)
    : base_(base),
      pages_(pages),
      tree_(address_pages(pages)),
      longest_free_(address_pages(pages)) {}

std::uint64_t DeviceMemory::allocate(std::uint64_t size) {
  std::uint64_t address = 0;
  if (size > kLargestShared) {
    if (size > free_bytes()) return 0;
    address = take_pages(static_cast<std::uint32_t>(pages_of(size)));
  } else {
    const auto units = units_of(size);
    auto page = longest_free_.find(static_cast<std::uint16_t>(units));
    if (!page) {
      const auto fresh = take_pages(1);
      if (fresh == 0) return 0;
      page = static_cast<std::uint32_t>((fresh - base_) / kPageBytes);
      if (chunks_.size() <= *page)
        chunks_.resize(std::max<std::size_t>(*page + 1, chunks_.size() * 2));
      chunks_[*page] = std::make_unique<Chunk>();
    }
    auto& chunk = *chunks_[*page];
    address = address_of(*page) + chunk.take(units) * Chunk::kUnitBytes;
    longest_free_.set(*page, chunk.longest());
  }
  if (address != 0) blocks_.try_emplace(address, DeviceBlock{.size = size, .content = nullptr});
  return address;
}

std::uint64_t DeviceMemory::free(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return 0;
  const auto size = found->second.size;
  blocks_.erase(found);
  const auto page = static_cast<std::uint32_t>((address - base_) / kPageBytes);
  if (size > kLargestShared) {
    release_pages(page, static_cast<std::uint32_t>(pages_of(size)));
    return size;
  }
  auto& chunk = chunks_[page];
  chunk->release(static_cast<std::uint32_t>((address - address_of(page)) / Chunk::kUnitBytes),
                 units_of(size));
  longest_free_.set(page, chunk->empty() ? std::uint16_t{0} : chunk->longest());
  if (chunk->empty()) {
    chunk.reset();
    release_pages(page, 1);
  }
  return size;
}

bool DeviceMemory::take_unplaced(std::uint64_t pages) noexcept {
  if (pages > pages_ - taken_) return false;
  taken_ += static_cast<std::uint32_t>(pages);
  return true;
}

DeviceMemory::Found DeviceMemory::find(std::uint64_t address) noexcept {
  if (address < base_) return {};
  const auto page = (address - base_) / kPageBytes;
  auto word = std::min<std::uint64_t>(page / 64, begins_.size());
  auto bits = word == begins_.size() ? 0 : begins_[word] & (~std::uint64_t{0} >> (63 - page % 64));
  while (bits == 0) {
    if (word == 0) return {};
    bits = begins_[--word];
  }
  const auto first = static_cast<std::uint32_t>(
      word * 64 + static_cast<std::uint64_t>(63 - std::countl_zero(bits)));
  auto base = address_of(first);
  if (first < chunks_.size() && chunks_[first] != nullptr) {
    if (first != page) return {};
    const auto unit = static_cast<std::uint32_t>((address - base) / Chunk::kUnitBytes);
    const auto begin = chunks_[first]->begin_at_or_below(unit);
    if (begin == Chunk::kUnits) return {};
    base += begin * Chunk::kUnitBytes;
  }
  auto& block = blocks_.find(base)->second;
  if (address - base >= block.size) return {};
  return {.base = base, .block = &block};
}

void DeviceMemory::clear() { *this = DeviceMemory(base_, pages_); }

std::uint64_t DeviceMemory::largest_free_bytes() const noexcept {
  if (const auto run = std::min(pages_ - taken_, tree_.longest()); run > 0) return run * kPageBytes;
  return std::min(longest_free_.max() * Chunk::kUnitBytes, kLargestShared);
}

std::uint64_t DeviceMemory::take_pages(std::uint32_t count) {
  if (count > pages_ - taken_) return 0;
  const auto first = tree_.find(count);
  if (!first) return 0;
  tree_.take(*first, count);
  taken_ += count;
  mark(*first, true);
  return address_of(*first);
}

void DeviceMemory::release_pages(std::uint32_t first, std::uint32_t count) {
  tree_.release(first, count);
  taken_ -= count;
  mark(first, false);
}

void DeviceMemory::mark(std::uint32_t page, bool begins) {
  if (begins_.size() <= page / 64)
    begins_.resize(std::max<std::size_t>(page / 64 + 1, begins_.size() * 2));
  const auto bit = std::uint64_t{1} << (page % 64);
  begins_[page / 64] = begins ? begins_[page / 64] | bit : begins_[page / 64] & ~bit;
}

}  // namespace emm::sim
