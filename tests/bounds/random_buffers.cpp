#include "random_buffers.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emm::bounds {

std::vector<Buffer> random_buffers(Prng& random, const BufferShape& shape) {
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < shape.count; ++i) {
    const auto lower = random.below(shape.time_max);
    buffers.push_back(
        {.lower = lower,
         .upper = random.between(lower + 1, shape.time_max),
         .size = random.between(1, shape.size_max),
         .alignment = shape.aligned && random.chance(0.5) ? random.between(2, 8) : 1});
  }
  return buffers;
}

std::vector<Buffer> shuffled(std::vector<Buffer> buffers, Prng& random) {
  for (auto i = buffers.size(); i > 1; --i) std::swap(buffers[i - 1], buffers[random.below(i)]);
  return buffers;
}

std::vector<Buffer> reversed_in_time(std::vector<Buffer> buffers) {
  std::uint64_t end = 0;
  for (const auto& buffer : buffers) end = std::max(end, buffer.upper);
  for (auto& buffer : buffers) {
    const auto lower = end - buffer.upper;
    buffer.upper = end - buffer.lower;
    buffer.lower = lower;
  }
  return buffers;
}

std::uint64_t least_height_of_all_orders(const std::vector<Buffer>& buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::uint64_t> ends(buffers.size());
  auto least = kTooMany;
  do {
    std::uint64_t height = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& buffer = buffers[order[i]];
      std::uint64_t offset = 0;
      for (std::size_t k = 0; k < i; ++k) {
        const auto& under = buffers[order[k]];
        if (under.lower < buffer.upper && buffer.lower < under.upper)
          offset = std::max(offset, ends[order[k]]);
      }
      ends[order[i]] = align_up(offset, buffer.alignment) + buffer.size;
      height = std::max(height, ends[order[i]]);
    }
    least = std::min(least, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

}  // namespace emm::bounds
