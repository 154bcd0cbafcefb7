#include "standin/libraries/cudnn_workspace.hpp"

#include <algorithm>
#include <tuple>

namespace emm::standin {
namespace {

// A filter of 7 x 7 has so many: from there on, an H200 was measured to take other workspaces.
constexpr std::int64_t kManyTaps = 49;
constexpr std::int64_t kProcessors = 132;     // of an H200
constexpr std::int64_t kChannelsAligned = 8;  // that tensor cores read at once, of 16 bits
/// Returns what the copies of a split take at most.
constexpr std::int64_t split_most(std::int64_t element_bytes) { return element_bytes << 21; }

/// Returns how many pieces of this size hold `count`.
std::int64_t pieces(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::int64_t tiles(std::int64_t channels) {
  // Channels of a tile; few channels take the small one.
  constexpr std::int64_t kTile = 128, kSmall = 64;
  const auto tile = std::clamp(channels, kSmall, kTile);
  return pieces(channels, tile);
}

/// A gradient of weights is summed over batch and space, in float32. Where its tiles leave
/// processors without work, each of them sums a part into a tile of its own.
std::int64_t split_bytes(std::int64_t in, std::int64_t out, std::int64_t taps,
                         std::int64_t sums_bytes, std::int64_t element_bytes, std::int64_t points) {
  constexpr std::int64_t kTile = 128, kSmall = 64;
  constexpr std::int64_t kTapsSideBySide = 9;
  if (element_bytes == 4 && taps >= kTapsSideBySide && in > kSmall && out > kSmall) {
    // The taps of all channels lie side by side, in whole tiles.
    const auto whole = pieces(in * taps, kTile) * pieces(out, kTile);
    const auto parts = kProcessors / whole;
    constexpr auto kTileBytes = kTile * kTile * 4;
    // The last wave is divided, if there is enough to sum.
    constexpr std::int64_t kPointsMany = 2'000;
    if (whole > kProcessors) return points < kPointsMany ? 0 : kProcessors * kTileBytes;
    return parts < 2 ? 0 : parts * whole * kTileBytes;
  }
  const auto parts = kProcessors / std::max<std::int64_t>(1, tiles(in) * tiles(out) * taps);
  return parts < 2 ? 0 : std::min(parts * sums_bytes, split_most(element_bytes));
}

/// Returns the bytes of a copy of `of` whose channels are last, and as many as tensor cores read.
std::int64_t copy_bytes(const ConvolutionTensor& of) {
  const auto channels = of.sizes[1];
  if (of.element_bytes != 2) return of.bytes();
  const auto aligned = pieces(channels, kChannelsAligned) * kChannelsAligned;
  return of.bytes() / channels * aligned;
}

constexpr std::int64_t kPixelsOfSeven = 7 * 7;
constexpr std::int64_t kPixelsOfFew = 14 * 14;  // up to here, groups take no workspace

// The few channels of an image have kernels of their own, which read them where they are.
constexpr std::int64_t kFewChannels = 8;

/// What the rules ask of a convolution.
struct Layer {
  explicit Layer(const Convolution& of)
      : part(of.part),
        x(of.x),
        w(of.w),
        y(of.y),
        batch(x.sizes[0]),
        in(x.sizes[1]),
        out(y.sizes[1]),
        taps(w.bytes() / w.element_bytes / w.sizes[0] / w.sizes[1]),
        sums(w.bytes() / w.element_bytes * 4),
        of_weights(part == ConvolutionPart::w_gradient),
        split(of_weights ? split_bytes(in, out, taps, sums, w.element_bytes, batch * pixels())
                         : 0) {}

  bool is_half() const { return w.element_bytes == 2; }
  bool is_image() const { return in < kFewChannels; }
  bool has_groups() const { return w.sizes[1] != in; }
  /// A product of matrices: one tap, and each point of x is one of y.
  bool is_product() const {
    return taps == 1 &&
           std::equal(x.sizes.begin() + 2, x.sizes.end(), y.sizes.begin() + 2, y.sizes.end());
  }
  /// Returns the numbers that one channel of y has for one picture.
  std::int64_t pixels() const { return y.bytes() / y.element_bytes / batch / out; }
  /// A kernel that writes y as it is to be takes the place of a copy. That was so for 64 channels,
  /// a whole tile, where y is not much larger than x; for 48 where y is large; and for one tap.
  bool writes_as_asked() const {
    constexpr std::int64_t kPixelsMost = 56 * 56, kPixelsLarge = 28 * 28, kBatchMost = 32,
                           kBatchOfSmall = 20, kPointsMany = 400'000;
    if (taps == 1) return out > in && pixels() >= kPixelsLarge && in <= 256;
    if (in == 48 && out > in) return batch * pixels() >= kPointsMany;
    if (in != 64 || out < in) return false;
    if (out > in) return true;
    return pixels() <= kPixelsMost &&
           batch <= (pixels() >= kPixelsLarge ? kBatchMost : kBatchOfSmall);
  }
  std::int64_t copies() const { return copy_bytes(x) + copy_bytes(y) + (taps > 1 ? w.bytes() : 0); }

  ConvolutionPart part;
  const ConvolutionTensor &x, &w, &y;
  std::int64_t batch, in, out;
  std::int64_t taps;   ///< Weights of one channel in and one out.
  std::int64_t sums;   ///< Bytes of a gradient of all weights in float32.
  bool of_weights;     ///< Whether it is the gradient of the weights.
  std::int64_t split;  ///< Bytes of its partial sums.
};

std::int64_t bytes_with_groups(const Layer& of) {
  if (!of.of_weights || !of.x.channels_last) return 0;
  if (of.is_half()) return 8 * of.batch * of.sums;
  if (of.taps < kManyTaps || of.pixels() <= kPixelsOfFew) return 0;
  // x and y for groups of eight channels, and the sums of four or two waves of processors.
  constexpr std::int64_t kChannelsOfFour = 4'608;  // of all pictures
  const auto waves = of.batch * of.in <= kChannelsOfFour ? 4 : 2;
  return 8 * of.x.bytes() + waves * kProcessors * of.sums;
}

/// The gradient of one tap's weights in float32, in tiles of 256 by 128.
std::int64_t split_of_wide_tiles(const Layer& of) {
  constexpr std::int64_t kWide = 256, kTile = 128;
  if (!of.of_weights || of.pixels() < kPixelsOfSeven) return 0;
  const auto whole =
      pieces(std::max(of.in, of.out), kWide) * pieces(std::min(of.in, of.out), kTile);
  const auto parts = kProcessors / whole;
  return parts < 2 ? 0 : parts * of.sums;
}

std::int64_t bytes_of_product(const Layer& of) {
  const auto copies = of.x.bytes() + of.y.bytes();
  if (of.x.channels_last) return of.is_half() ? of.split : split_of_wide_tiles(of);
  // Rows of seven numbers do not begin where they can be read at once; many channels make up for a
  // copy.
  constexpr std::int64_t kChannelsMany = 512;
  if (!of.is_half() && of.pixels() <= kPixelsOfSeven && std::min(of.in, of.out) >= kChannelsMany)
    return copies;
  if (!of.of_weights) return of.split;
  if (of.is_half() || of.pixels() == 1) return std::min(of.batch * of.sums, copies);
  constexpr std::int64_t kChannelsFew = 32;  // of x: it is copied
  if (of.in < kChannelsFew) return copies + of.w.bytes() + of.split;
  // Each picture has sums of its own, while these are small.
  constexpr std::int64_t kSumsMost = std::int64_t{64} << 20;
  return of.batch * of.sums < kSumsMost ? of.batch * of.sums : copies + of.w.bytes() + of.split;
}

std::int64_t bytes_of_small_image(const Layer& of) {
  const auto& x = of.x;
  if (of.part == ConvolutionPart::y)
    return !of.is_half() && x.channels_last ? x.bytes() + of.w.bytes() : 0;
  if (!of.is_half()) return 0;
  return (x.channels_last ? copy_bytes(x) : of.copies()) + of.split;
}

std::int64_t bytes_of_large_image(const Layer& of) {
  const auto& x = of.x;
  if (of.part == ConvolutionPart::x_gradient) return x.channels_last ? of.copies() : 0;
  if (of.of_weights) {
    // A picture's three channels are read as four, and so are the weights, of which many parts have
    // a copy.
    constexpr std::int64_t kRead = 4, kBatchOfMany = 20, kMany = 120, kFew = 56;
    const auto parts = of.batch >= kBatchOfMany ? kMany : kFew;
    return x.bytes() / of.in * kRead + of.y.bytes() + (1 + parts) * (of.w.bytes() / of.in * kRead);
  }
  return x.channels_last ? x.bytes() + of.w.bytes() : of.copies();
}

std::int64_t bytes_in_float(const Layer& of) {
  const auto& [x, w, y] = std::tie(of.x, of.w, of.y);
  // 32 channels are half of a tile: there is a kernel for x as PyTorch has it.
  if (of.part == ConvolutionPart::y && of.in == 32)
    return x.channels_last ? x.bytes() + w.bytes() : 0;
  if (x.channels_last) return of.split;
  if (of.taps == 1 && !of.of_weights && (of.in == 64 || of.in == 128)) return 0;
  if (of.part == ConvolutionPart::y && of.writes_as_asked()) return x.bytes() + w.bytes();
  return of.copies() + of.split;
}

std::int64_t bytes_in_half(const Layer& of) {
  if (!of.x.channels_last) return of.copies() + of.split;
  return (of.in % kChannelsAligned != 0 ? copy_bytes(of.x) : 0) + of.split;
}

}  // namespace

std::int64_t ConvolutionTensor::bytes() const noexcept {
  auto product = element_bytes;
  for (const auto size : sizes) product *= size;
  return product;
}

std::int64_t workspace_of(const Convolution& convolution) noexcept {
  const auto is_whole = [](const ConvolutionTensor& each) {
    return each.sizes.size() >= 3 && each.bytes() > 0;
  };
  if (!is_whole(convolution.x) || !is_whole(convolution.w) || !is_whole(convolution.y)) return 0;
  const Layer of(convolution);
  if (of.has_groups()) return bytes_with_groups(of);
  if (of.is_product()) return bytes_of_product(of);
  if (of.is_image() && of.taps < kManyTaps) return bytes_of_small_image(of);
  if (of.is_half()) return bytes_in_half(of);
  return of.is_image() ? bytes_of_large_image(of) : bytes_in_float(of);
}

}  // namespace emm::standin
