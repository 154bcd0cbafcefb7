#include "allocators/bfc.hpp"

#include <algorithm>

namespace emm::allocators {
namespace {

constexpr std::uint64_t kMinimum = 256;  // bytes: kMinAllocationSize of TensorFlow's BFCAllocator

/// Twice the size, but at most 2^63: a trace may make a region double any number of times.
constexpr std::uint64_t twice(std::uint64_t size) noexcept {
  constexpr auto kMost = std::uint64_t{1} << 63;
  return size < kMost / 2 ? size * 2 : kMost;
}

}  // namespace

bool BfcPool::begin(const std::function<Room()>& room) {
  limit_ = settings_.limit ? *settings_.limit
                           : static_cast<std::uint64_t>(static_cast<double>(room().total) *
                                                        settings_.memory_fraction);
  const auto first = settings_.preallocate ? limit_ : std::min(limit_, settings_.first_region);
  region_ = round_up(first, kMinimum);
  return true;
}

std::optional<PoolModel::Block> BfcPool::allocate(std::uint64_t size, std::uint64_t stream) {
  const auto rounded = round_up(size, kMinimum);
  auto* chunk = heap_.best_fit(0, rounded);
  if (chunk == nullptr && extend(rounded)) chunk = heap_.best_fit(0, rounded);
  if (chunk == nullptr && collect(rounded)) {
    ++memory_.counts.retries;
    if (extend(rounded)) chunk = heap_.best_fit(0, rounded);
  }
  if (chunk == nullptr) {
    ++memory_.counts.ooms;
    return std::nullopt;
  }
  chunk = heap_.take(chunk, rounded, splits(*chunk, rounded));
  memory_.taken(chunk->size);
  freed_on_.wait(0, stream, *memory_);
  return Block{.address = chunk->address, .size = chunk->size, .stream = stream, .handle = chunk};
}

bool BfcPool::splits(const Chunk& chunk, std::uint64_t size) const noexcept {
  const auto waste = settings_.fragmentation_fraction > 0
                         ? static_cast<std::uint64_t>(settings_.fragmentation_fraction *
                                                      static_cast<double>(limit_))
                         : settings_.dead_bytes;
  return chunk.size / 2 >= size || chunk.size - size >= waste;
}

/// Allocates a region of `region_` bytes from the device, or of what the limit leaves if that is
/// less. `region_` first doubles until the request fits; if it fits at once, `region_` doubles
/// afterwards. Where regions grow as asked, `region_` does not count. If the device refuses, each
/// further attempt asks for nine tenths of the size before.
bool BfcPool::extend(std::uint64_t size) {
  const auto held = memory_.counts.reserved;
  const auto available = (limit_ - std::min(limit_, held)) / kMinimum * kMinimum;
  if (size > available) return false;
  bool doubled = false;
  for (; !settings_.grows_as_asked && size > region_ && region_ != twice(region_); doubled = true)
    region_ = twice(region_);
  auto bytes = settings_.grows_as_asked ? size : std::min(region_, available);
  auto address = memory_.ask(bytes);
  while (!address) {
    const auto less =
        round_up(static_cast<std::uint64_t>(static_cast<double>(bytes) * 0.9), kMinimum);
    bytes = less < bytes ? less : bytes - std::min(bytes, kMinimum);
    if (bytes < size || bytes == 0) return false;
    ++memory_.counts.retries;
    address = memory_.ask(bytes);
  }
  if (!doubled && region_ < settings_.largest_doubled)
    region_ = std::min(twice(region_), settings_.largest_doubled);
  heap_.add_region(*address, bytes, 0);
  return true;
}

/// Releases all free regions if the request then fits below the limit. Returns whether it did.
bool BfcPool::collect(std::uint64_t size) {
  if (!settings_.garbage_collection) return false;
  const auto idle = heap_.idle_regions();
  std::uint64_t bytes = 0;
  for (const auto* chunk : idle) bytes += chunk->size;
  if (idle.empty() || size > limit_ - std::min(limit_, memory_.counts.reserved) + bytes)
    return false;
  for (auto* chunk : idle) {
    memory_.release(chunk->address, chunk->size);
    heap_.remove_region(chunk);
  }
  return true;
}

void BfcPool::free(const Block& block, std::uint64_t, std::uint64_t stream) {
  auto* const chunk = static_cast<Chunk*>(block.handle);
  freed_on_.note(0, stream, block.stream, *memory_);
  memory_.freed(chunk->size);
  heap_.release(chunk, 0);
}

void BfcPool::end() {
  for (auto* chunk : heap_.idle_regions()) {
    memory_.release(chunk->address, chunk->size);
    heap_.remove_region(chunk);
  }
}

}  // namespace emm::allocators
