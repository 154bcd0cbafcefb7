#include "allocators/rmm_pool.hpp"

#include <algorithm>

namespace emm::allocators {

void StreamOrder::see(std::uint64_t stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end())
    streams_.push_back(stream);
}

bool RmmPool::begin(const std::function<Room()>& room) {
  const auto initial = settings_.initial_size ? *settings_.initial_size
                                              : room().free / 2 / kRmmAlignment * kRmmAlignment;
  if (initial == 0) return true;
  streams_.see(0);
  const auto address = memory_.ask(initial);
  if (address) heap_.add_region(*address, initial, 0);
  return address.has_value();
}

std::optional<PoolModel::Block> RmmPool::allocate(std::uint64_t size, std::uint64_t stream) {
  const auto rounded = round_up(size, kRmmAlignment);
  streams_.see(stream);
  auto* chunk = find(rounded, stream);
  if (chunk == nullptr) chunk = grow(rounded, stream);
  if (chunk == nullptr) {
    ++memory_.counts.ooms;
    return std::nullopt;
  }
  chunk = heap_.take(chunk, rounded, true);
  memory_.taken(chunk->size);
  return Block{.address = chunk->address, .size = chunk->size, .stream = stream, .handle = chunk};
}

/// Looks into the stream's own list. Then takes from the first other list with a fit, which keeps
/// the remainder. Then merges the other lists into its own, one by one, until its own has a fit.
Chunk* RmmPool::find(std::uint64_t size, std::uint64_t stream) {
  if (auto* own = heap_.best_fit(stream, size)) return own;
  for (const auto other : streams_.all()) {
    if (other == stream) continue;
    if (auto* chunk = heap_.best_fit(other, size)) {
      memory_->order(stream, other);
      return chunk;
    }
  }
  for (const auto other : streams_.all()) {
    if (other == stream || heap_.is_empty(other)) continue;
    memory_->order(stream, other);
    heap_.move_all(other, stream);
    // RMM does not do this. Without it, a third stream that takes from this list would not wait for
    // `other`.
    memory_->freed(stream, stream);
    if (auto* merged = heap_.best_fit(stream, size)) return merged;
  }
  return nullptr;
}

Chunk* RmmPool::grow(std::uint64_t size, std::uint64_t stream) {
  const auto held = memory_.counts.reserved;
  if (!settings_.maximum_size) return ask(std::max(size, held), size, stream);
  const auto most = std::max(*settings_.maximum_size, held);
  const auto remaining = round_up(most - held, kRmmAlignment);
  return size > remaining ? nullptr : ask(std::max(size, remaining / 2), size, stream);
}

/// Asks for `most` bytes. Halves what is refused, without aligning it again, down to `least`.
Chunk* RmmPool::ask(std::uint64_t most, std::uint64_t least, std::uint64_t stream) {
  for (auto size = most;; size = std::max(least, size / 2)) {
    if (const auto address = memory_.ask(size)) return heap_.add_region(*address, size, stream);
    if (size == least) return nullptr;
    ++memory_.counts.retries;
  }
}

void RmmPool::free(const Block& block, std::uint64_t, std::uint64_t stream) {
  streams_.see(stream);
  auto* const chunk = static_cast<Chunk*>(block.handle);
  memory_.freed(chunk->size);
  memory_->freed(stream, block.stream);
  heap_.release(chunk, stream);
}

void RmmPool::end() {
  for (const auto stream : streams_.all()) {
    if (stream != streams_.all().front()) heap_.move_all(stream, streams_.all().front());
  }
  for (auto* chunk : heap_.idle_regions()) {
    memory_.release(chunk->address, chunk->size);
    heap_.remove_region(chunk);
  }
}

}  // namespace emm::allocators
