#include "allocators/rmm_arena.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace emm::allocators {
namespace {

template <class Map>
auto first_fit(Map& superblocks, std::uint64_t size) {
  return std::find_if(superblocks.begin(), superblocks.end(),
                      [&](const auto& each) { return each.second.fits(size); });
}

/// Returns the superblock that holds the address, or the end.
Superblocks::iterator holder(Superblocks& superblocks, std::uint64_t address) {
  auto at = superblocks.upper_bound(address);
  if (at == superblocks.begin()) return superblocks.end();
  --at;
  return at->second.holds(address) ? at : superblocks.end();
}

}  // namespace

bool Superblock::fits(std::uint64_t size) const noexcept {
  return std::any_of(free_.begin(), free_.end(),
                     [&](const auto& each) { return each.second >= size; });
}

std::optional<std::uint64_t> Superblock::take(std::uint64_t size) {
  const auto first = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& each) { return each.second >= size; });
  if (first == free_.end()) return std::nullopt;
  const auto [address, room] = *first;
  free_.erase(first);
  if (room > size) free_[address + size] = room - size;
  return address;
}

void Superblock::release(std::uint64_t address, std::uint64_t size) {
  auto at = free_.emplace(address, size).first;
  if (const auto next = std::next(at); next != free_.end() && address + size == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == address) {
    before->second += at->second;
    free_.erase(at);
  }
}

bool RmmArena::begin(const std::function<Room()>& room) {
  const auto size = (arena_size_ ? *arena_size_ : room().free / 2) / kRmmAlignment * kRmmAlignment;
  const auto address = memory_.ask(std::max(size, kSuperblock));
  if (!address) return false;
  address_ = *address;
  global_[address_] = Superblock(address_, std::max(size, kSuperblock));
  return true;
}

std::optional<PoolModel::Block> RmmArena::allocate(std::uint64_t size, std::uint64_t stream) {
  const auto rounded = std::max(round_up(size, kRmmAlignment), kRmmAlignment);
  auto address = find(rounded, stream);
  if (!address) {
    ++memory_.counts.retries;
    memory_->synchronize_device();
    defragment();
    address = find(rounded, stream);
  }
  if (!address) {
    ++memory_.counts.ooms;
    return std::nullopt;
  }
  memory_.taken(rounded);
  return Block{.address = *address, .size = rounded, .stream = stream, .handle = nullptr};
}

std::optional<std::uint64_t> RmmArena::find(std::uint64_t size, std::uint64_t stream) {
  auto& home = size > kSuperblock ? global_ : own_[stream];
  if (&home != &global_) {
    if (const auto at = first_fit(home, size); at != home.end()) return at->second.take(size);
  }
  auto superblock = acquire(size);
  if (!superblock) return std::nullopt;
  const auto address = superblock->take(size);
  auto& kept = home[superblock->address()];
  kept = *std::move(superblock);
  return address;
}

/// Takes a superblock with room for `size` bytes. A free one is split if the rest makes a
/// superblock of its own. Otherwise all of it is taken.
std::optional<Superblock> RmmArena::acquire(std::uint64_t size) {
  const auto at = first_fit(global_, size);
  if (at == global_.end()) return std::nullopt;
  auto found = std::move(at->second);
  global_.erase(at);
  const auto least = std::max(kSuperblock, size);
  if (!found.is_free() || found.size() < least + kSuperblock) return found;
  const auto rest = found.address() + least;
  global_[rest] = Superblock(rest, found.size() - least);
  return Superblock(found.address(), least);
}

/// Returns the superblock to the global arena and merges it with its free neighbours there.
void RmmArena::give(Superblock superblock) {
  if (superblock.is_free()) {
    const auto next = global_.find(superblock.address() + superblock.size());
    if (next != global_.end() && next->second.is_free()) {
      superblock = Superblock(superblock.address(), superblock.size() + next->second.size());
      global_.erase(next);
    }
    const auto after = global_.lower_bound(superblock.address());
    if (after != global_.begin()) {
      const auto before = std::prev(after);
      if (before->second.is_free() &&
          before->first + before->second.size() == superblock.address()) {
        superblock = Superblock(before->first, before->second.size() + superblock.size());
        global_.erase(before);
      }
    }
  }
  const auto address = superblock.address();
  global_[address] = std::move(superblock);
}

void RmmArena::defragment() {
  for (auto& [stream, superblocks] : own_) {
    for (auto& [address, superblock] : std::exchange(superblocks, {})) give(std::move(superblock));
  }
}

bool RmmArena::release(Superblocks& among, std::uint64_t address, std::uint64_t size) {
  const auto at = holder(among, address);
  if (at == among.end()) return false;
  at->second.release(address, size);
  if (&among == &global_ && at->second.is_free()) {
    auto freed = std::move(at->second);
    global_.erase(at);
    give(std::move(freed));
  }
  return true;
}

void RmmArena::free(const Block& block, std::uint64_t, std::uint64_t stream) {
  memory_.freed(block.size);
  if (block.size <= kSuperblock && block.stream == stream &&
      release(own_[stream], block.address, block.size))
    return;
  memory_->synchronize_stream(stream);
  // RMM relies on the program to have finished the work of the request's stream.
  if (block.stream != stream) memory_->synchronize_stream(block.stream);
  for (auto& [other, superblocks] : own_) {
    if (release(superblocks, block.address, block.size)) return;
  }
  release(global_, block.address, block.size);
}

void RmmArena::end() {
  own_.clear();
  if (global_.empty() && address_ == 0) return;
  global_.clear();
  if (address_ != 0) memory_.release(address_, memory_.counts.reserved);
  address_ = 0;
}

}  // namespace emm::allocators
