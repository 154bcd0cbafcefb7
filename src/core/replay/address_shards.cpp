#include "replay/address_shards.hpp"

#include <algorithm>
#include <mutex>

namespace emm::replay {

template <class Each>
std::uint64_t AddressShards::for_each_part(std::uint64_t begin, std::uint64_t size, Each each) {
  // A range that would exceed 2^64 ends there.
  const auto last = begin + (size - 1) < begin ? ~std::uint64_t{0} : begin + (size - 1);
  for (auto at = begin;;) {
    const auto window = at >> kWindowBits;
    const auto part_last = std::min(last, at | ((std::uint64_t{1} << kWindowBits) - 1));
    if (!each(shard_of(window), at, part_last - at + 1) || part_last == last) return at;
    at = part_last + 1;
  }
}

std::optional<std::uint32_t> AddressShards::insert(std::uint64_t begin, std::uint64_t size,
                                                   std::uint32_t number) {
  std::optional<std::uint32_t> other;
  const auto reached =
      for_each_part(begin, size, [&](Shard& shard, std::uint64_t at, std::uint64_t count) {
        const std::lock_guard lock(shard.mutex);
        for (std::uint64_t its_begin = 0;;) {
          other = shard.map.insert(at, count, number, &its_begin);
          if (!other || !live_.has_ended(AllocId{*other})) return !other;
          shard.map.erase(its_begin);
        }
      });
  if (other && reached > begin) erase(begin, reached - begin, number);
  return other;
}

void AddressShards::erase(std::uint64_t begin, std::uint64_t size, std::uint32_t number) {
  for_each_part(begin, size, [number](Shard& shard, std::uint64_t at, std::uint64_t) {
    const std::lock_guard lock(shard.mutex);
    shard.map.erase(at, number);
    return true;
  });
}

}  // namespace emm::replay
