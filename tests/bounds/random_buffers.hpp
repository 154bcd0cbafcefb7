#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/prng.hpp"
#include "bounds/buffer.hpp"

namespace emm::bounds {

struct BufferShape {
  std::size_t count;
  std::uint64_t time_max;
  std::uint64_t size_max;
  bool aligned = false;  ///< Some buffers have an alignment of 2 to 8.
};

/// Buffers that need memory: sizes and lifetimes uniform within the shape.
std::vector<Buffer> random_buffers(Prng& random, const BufferShape& shape);
std::vector<Buffer> shuffled(std::vector<Buffer> buffers, Prng& random);
/// Time turned round: what began last ends first.
std::vector<Buffer> reversed_in_time(std::vector<Buffer> buffers);

/// The least height of any layout, by trying every order in which the buffers can be stacked.
/// For a handful of buffers only.
std::uint64_t least_height_of_all_orders(const std::vector<Buffer>& buffers);

}  // namespace emm::bounds
