#pragma once

#include <cstdint>
#include <vector>

namespace emm::standin {

/// A tensor of a convolution, as its descriptor says: batch, channels, then space. Of the weights
/// the first two are the channels of y and those of x, by group.
struct ConvolutionTensor {
  std::vector<std::int64_t> sizes{};
  std::int64_t element_bytes = 0;
  bool channels_last = false;  ///< In memory, as in PyTorch's channels_last.

  std::int64_t bytes() const noexcept;
};

/// What an operation of cuDNN's graph computes of a convolution's three tensors.
enum class ConvolutionPart { y, x_gradient, w_gradient };

struct Convolution {
  ConvolutionPart part = ConvolutionPart::y;
  ConvolutionTensor x{}, w{}, y{};
};

/// Returns the bytes of workspace that cuDNN's first plan for `of` takes, by a rule that was fitted
/// on an H200 with cuDNN 9.19, over 102 layers of six networks, in batches of 1 to 64, in float32
/// and bfloat16. docs/without-a-gpu.md says how far it is off.
std::int64_t workspace_of(const Convolution& of) noexcept;

}  // namespace emm::standin
