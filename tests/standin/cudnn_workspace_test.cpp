#include "standin/libraries/cudnn_workspace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>

namespace emm::standin {
namespace {

/// What PyTorch 2.11 took on an H200 with cuDNN 9.19 for one layer, beside its output.
struct Measured {
  std::int64_t batch, in, size, out, taps_of_side, out_size, element_bytes;
  bool channels_last;
  std::int64_t y, x_gradient, w_gradient;
};
std::ostream& operator<<(std::ostream& out, const Measured& of) {
  return out << of.batch << "x" << of.in << "x" << of.size << " to " << of.out << ", "
             << of.taps_of_side << " taps, " << of.element_bytes << " bytes"
             << (of.channels_last ? ", channels last" : "");
}

class Workspaces : public testing::TestWithParam<Measured> {};

TEST_P(Workspaces, AreWhatTheCardTookWithin5MiBOrATenth) {
  const auto& of = GetParam();
  const auto tensor = [&](std::int64_t first, std::int64_t channels, std::int64_t side) {
    return ConvolutionTensor{.sizes = {first, channels, side, side},
                             .element_bytes = of.element_bytes,
                             .channels_last = of.channels_last};
  };
  const auto found = [&](ConvolutionPart part) {
    return workspace_of({.part = part,
                         .x = tensor(of.batch, of.in, of.size),
                         .w = tensor(of.out, of.in, of.taps_of_side),
                         .y = tensor(of.batch, of.out, of.out_size)});
  };
  const auto off = [&](ConvolutionPart part, std::int64_t measured) {
    return std::abs(found(part) - measured);
  };
  const auto near = [](std::int64_t measured) {
    return std::max(std::int64_t{5} << 20, measured / 10);
  };
  EXPECT_LE(off(ConvolutionPart::y, of.y), near(of.y));
  EXPECT_LE(off(ConvolutionPart::x_gradient, of.x_gradient), near(of.x_gradient));
  EXPECT_LE(off(ConvolutionPart::w_gradient, of.w_gradient), near(of.w_gradient));
}

INSTANTIATE_TEST_SUITE_P(
    OfLayers, Workspaces,
    testing::Values(Measured{32, 256, 56, 512, 1, 28, 2, false, 77070848, 77070848, 78119424},
                    Measured{32, 128, 28, 128, 3, 28, 2, false, 13140480, 13140480, 15499776},
                    Measured{32, 64, 56, 256, 1, 56, 2, false, 0, 0, 3145728},
                    Measured{32, 512, 28, 1024, 1, 14, 2, true, 512, 512, 0},
                    Measured{32, 256, 28, 256, 3, 14, 2, true, 0, 512, 0},
                    Measured{32, 3, 224, 64, 7, 112, 2, false, 77121024, 77324288, 83242496},
                    Measured{32, 128, 28, 512, 1, 28, 4, false, 0, 0, 8388608},
                    Measured{32, 256, 28, 256, 3, 14, 4, false, 34472448, 34472448, 41550848},
                    Measured{32, 512, 28, 1024, 1, 14, 4, false, 77070848, 77070848, 81265152},
                    Measured{32, 128, 28, 128, 3, 28, 4, true, 0, 0, 8258560}));

TEST(Workspaces, OfWhatIsNoConvolutionAreNone) { EXPECT_EQ(workspace_of({}), 0); }

}  // namespace
}  // namespace emm::standin
