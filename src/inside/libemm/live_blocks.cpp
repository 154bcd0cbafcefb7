#include "libemm/live_blocks.hpp"

#include <numeric>

namespace emm::libemm {

std::optional<LiveBlock> LiveBlocks::replace(LiveBlock& former, LiveBlock&& block) {
  set_bytes(bytes() - former.size);
  return std::exchange(former, std::move(block));
}

void LiveBlocks::grow() {
  constexpr std::size_t kLeast = 16;
  std::vector<Place> larger(places_.empty() ? kLeast : 2 * places_.size());
  blocks_.resize(larger.size() / 2);
  idle_.resize(blocks_.size());
  std::iota(idle_.begin() + static_cast<std::ptrdiff_t>(count_), idle_.end(),
            static_cast<std::uint32_t>(count_));
  std::swap(places_, larger);
  mask_ = places_.size() - 1;
  for (const auto& place : larger) {
    if (place.address == kNone) continue;
    auto at = home_of(place.address);
    while (places_[at].address != kNone) at = (at + 1) & mask_;
    places_[at] = place;
  }
}

}  // namespace emm::libemm
