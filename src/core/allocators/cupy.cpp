#include "allocators/cupy.hpp"

#include <utility>

namespace emm::allocators {

bool CupyPool::begin(const std::function<Room()>& room) {
  if (settings_.limit_fraction > 0)
    settings_.limit =
        static_cast<std::uint64_t>(static_cast<double>(room().total) * settings_.limit_fraction);
  return true;
}

std::optional<PoolModel::Block> CupyPool::allocate(std::uint64_t size, std::uint64_t stream) {
  const auto rounded = round_size(size);
  auto* chunk = heap_.best_fit(stream, rounded);
  if (const auto address = std::exchange(preferred_, std::nullopt); chunk != nullptr && address) {
    auto* const there = heap_.at(*address);
    if (there != nullptr && there->is_free && there->list == stream && there->size == chunk->size)
      chunk = there;
  }
  if (chunk == nullptr) chunk = grow(rounded, stream);
  if (chunk == nullptr) {
    ++memory_.counts.ooms;
    return std::nullopt;
  }
  chunk = heap_.take(chunk, rounded, true);
  freed_on_.wait(stream, stream, *memory_);
  memory_.taken(rounded);
  return Block{.address = chunk->address, .size = rounded, .stream = stream, .handle = chunk};
}

/// Asks the device up to three times. Before the third attempt, CuPy runs Python's garbage
/// collector, which may free arrays. A trace does not show that, so the model leaves it out.
Chunk* CupyPool::grow(std::uint64_t size, std::uint64_t stream) {
  const auto limit = settings_.limit;
  const auto over = [&] { return limit != 0 && memory_.counts.reserved + size > limit; };
  if (over()) {
    if (size > limit && !settings_.flushes_too_large) return nullptr;
    ++memory_.counts.retries;
    release_idle();
    if (over()) return nullptr;
  }
  auto address = memory_.ask(size);
  for (auto again = 0; !address && again < 2; ++again) {
    ++memory_.counts.retries;
    release_idle();
    address = memory_.ask(size);
  }
  return address ? heap_.add_region(*address, size, stream) : nullptr;
}

void CupyPool::free(const Block& block, std::uint64_t, std::uint64_t stream) {
  auto* const chunk = static_cast<Chunk*>(block.handle);
  if (chunk->list != stream) freed_on_.note(chunk->list, stream, stream, *memory_);
  memory_.freed(chunk->size);
  heap_.release(chunk, chunk->list);
}

void CupyPool::release_idle() {
  for (auto* chunk : heap_.idle_regions()) {
    memory_.release(chunk->address, chunk->size);
    heap_.remove_region(chunk);
  }
}

}  // namespace emm::allocators
