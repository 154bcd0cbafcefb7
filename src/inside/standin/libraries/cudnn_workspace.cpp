#include "standin/libraries/cudnn_workspace.hpp"

#include <algorithm>

namespace emm::standin {
namespace {

// Of a filter of 7 x 7: from it on, other workspaces were measured on an H200.
constexpr std::int64_t kManyTaps = 49;
constexpr std::int64_t kProcessors = 132;     // of an H200
constexpr std::int64_t kChannelsAligned = 8;  // that tensor cores read at once, of 16 bits
/// Returns what the copies of a split take at most.
constexpr std::int64_t split_most(std::int64_t element_bytes) { return element_bytes << 21; }

std::int64_t tiles(std::int64_t channels) {
  // Channels of a tile; few channels take the small one.
  constexpr std::int64_t kTile = 128, kSmall = 64;
  const auto tile = std::clamp(channels, kSmall, kTile);
  return (channels + tile - 1) / tile;
}

/// A gradient of weights is summed over batch and space, in float32. Where its tiles leave
/// processors without work, each of them sums a part into a copy of its own.
std::int64_t split_bytes(std::int64_t in, std::int64_t out, std::int64_t taps,
                         std::int64_t sums_bytes, std::int64_t element_bytes) {
  const auto parts = kProcessors / std::max<std::int64_t>(1, tiles(in) * tiles(out) * taps);
  return parts < 2 ? 0 : std::min(parts * sums_bytes, split_most(element_bytes));
}

/// Returns the bytes of a copy of `of` whose channels are last, and as many as tensor cores read.
std::int64_t copy_bytes(const ConvolutionTensor& of) {
  const auto channels = of.sizes[1];
  if (of.element_bytes != 2) return of.bytes();
  const auto aligned = (channels + kChannelsAligned - 1) / kChannelsAligned * kChannelsAligned;
  return of.bytes() / channels * aligned;
}

}  // namespace

std::int64_t ConvolutionTensor::bytes() const noexcept {
  auto product = element_bytes;
  for (const auto size : sizes) product *= size;
  return product;
}

std::int64_t workspace_of(const Convolution& of) noexcept {
  const auto& [part, x, w, y] = of;
  const auto are_whole = [](const ConvolutionTensor& each) {
    return each.sizes.size() >= 3 && each.bytes() > 0;
  };
  if (!are_whole(x) || !are_whole(w) || !are_whole(y)) return 0;
  const auto batch = x.sizes[0], in = x.sizes[1], out = y.sizes[1];
  const auto taps = w.bytes() / w.element_bytes / w.sizes[0] / w.sizes[1];
  const auto sums = w.bytes() / w.element_bytes * 4;
  const bool of_weights = part == ConvolutionPart::w_gradient;
  const bool is_half = w.element_bytes == 2;
  if (w.sizes[1] != in) {  // groups
    if (!of_weights || !x.channels_last) return 0;
    return is_half ? 8 * batch * sums : taps < kManyTaps ? 0 : 8 * x.bytes();
  }
  const auto split = of_weights ? split_bytes(in, out, taps, sums, w.element_bytes) : 0;
  const bool is_product = taps == 1 && std::equal(x.sizes.begin() + 2, x.sizes.end(),
                                                  y.sizes.begin() + 2, y.sizes.end());
  if (is_product) {
    if (!of_weights || x.channels_last) return split;
    return std::min(batch * sums, x.bytes() + y.bytes());
  }
  // The few channels of an image have kernels of their own, which read them where they are.
  constexpr std::int64_t kFewChannels = 8;
  const bool is_image = in < kFewChannels;
  const auto copies = copy_bytes(x) + copy_bytes(y) + (taps > 1 ? w.bytes() : 0);
  if (is_image && taps < kManyTaps) {
    if (part == ConvolutionPart::y && !is_half && x.channels_last) return x.bytes() + w.bytes();
    if (part == ConvolutionPart::y || !is_half) return 0;
    return (x.channels_last ? copy_bytes(x) : copies) + split;
  }
  if (!is_half) {
    if (is_image && part == ConvolutionPart::x_gradient) return x.channels_last ? copies : 0;
    if (is_image && of_weights) return copies + split;
    if (is_image && x.channels_last) return x.bytes() + w.bytes();
    if (x.channels_last) return split;
    if (taps == 1 && !of_weights && (in == 64 || in == 128)) return 0;
    // What writes y as it is to be takes the place of a copy where tiles of 32 channels, or of 64,
    // are whole, and y is not much larger than x.
    constexpr std::int64_t kPixelsMost = 56 * 56;
    const auto pixels = y.bytes() / y.element_bytes / batch / out;
    if (part == ConvolutionPart::y && (in == 32 || in == 64) && out >= in &&
        (out > in || pixels <= kPixelsMost))
      return x.bytes() + w.bytes();
    return copies + split;
  }
  if (x.channels_last) return (in % kChannelsAligned != 0 ? copy_bytes(x) : 0) + split;
  return copies + split;
}

}  // namespace emm::standin
