#include "driver/driver_layout.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

namespace emm {
namespace {

constexpr std::uint64_t kOneMiB = std::uint64_t{1} << 20, kTop = std::uint64_t{1} << 46;

struct Taken {
  std::uint64_t size_mib, below_top_mib;
};
struct Released {
  std::size_t which;
};

// What an H200 gave to a program with torch.empty() alone (torch-settings, tight, default).
TEST(DriverLayout, GivesTheAddressesThatAnH200Gave) {
  const std::vector<std::variant<Taken, Released>> calls = {
      Taken{76, 96},   Taken{12, 20},    Taken{12, 128},   Taken{2, 116},    Taken{28, 160},
      Taken{64, 224},  Taken{24, 256},   Taken{206, 480},  Taken{2, 274},    Taken{160, 640},
      Taken{142, 800}, Taken{2, 658},    Taken{240, 1056}, Taken{2, 816},    Taken{226, 1312},
      Taken{2, 1086},  Taken{128, 1440}, Taken{2, 1084},   Taken{130, 1600}, Taken{88, 1696},
      Released{19},    Released{18},     Taken{150, 1600}, Taken{54, 1664},  Taken{52, 1728},
      Taken{66, 1824}, Released{21},     Released{23},     Released{17},     Taken{162, 1920},
      Released{4},     Released{5},      Released{16},     Released{13},     Taken{168, 2112},
      Taken{2, 1944},  Released{0},      Released{11},     Released{8},      Released{3},
      Released{20},    Released{9},      Released{25},     Released{12},     Released{22},
      Taken{2, 1942},  Taken{22, 2112},  Taken{172, 992},  Taken{190, 1504}, Taken{150, 1664},
      Taken{96, 2090}, Taken{2, 1514},   Taken{256, 2368}, Taken{2, 1512},   Taken{2, 1510},
      Released{29},    Taken{66, 96}};
  DriverLayout layout(kTop);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> given;  // address, size
  for (const auto& call : calls) {
    if (const auto* const taken = std::get_if<Taken>(&call)) {
      const auto size = taken->size_mib * kOneMiB;
      given.emplace_back(layout.take(size), size);
      EXPECT_EQ((kTop - given.back().first) / kOneMiB, taken->below_top_mib)
          << "call " << given.size();
    } else {
      const auto& [at, size] = given[std::get<Released>(call).which];
      layout.release(at, size);
    }
  }
}

TEST(DriverLayout, GoesOnBelowWhatIsRecorded) {
  DriverLayout layout(kTop);
  const auto base = kTop / 2;
  layout.take_at(base, 20 * kOneMiB);
  layout.take_at(base - 320 * kOneMiB, 40 * kOneMiB);  // Something else is in between.
  EXPECT_EQ(layout.take(12 * kOneMiB), base - 280 * kOneMiB) << "the newest region has room";
  EXPECT_EQ(layout.take(12 * kOneMiB), base - 268 * kOneMiB);
  EXPECT_EQ(layout.take(12 * kOneMiB), base + 20 * kOneMiB) << "now the older one";
  EXPECT_EQ(layout.take(32 * kOneMiB), base - 352 * kOneMiB);
  layout.take_at(base - 128 * kOneMiB, 32 * kOneMiB);  // Where nothing was known to be free.
  EXPECT_EQ(layout.take(64 * kOneMiB), base - 416 * kOneMiB);
  layout.release(base - 128 * kOneMiB, 32 * kOneMiB);
  layout.release(base - 352 * kOneMiB, 32 * kOneMiB);
  EXPECT_EQ(layout.take(32 * kOneMiB), base - 448 * kOneMiB) << "a hole of its size is too small";
}

TEST(DriverLayout, GoesOnAboveWhereNothingFitsBelow) {
  DriverLayout layout(kTop);
  const std::uint64_t low = std::uint64_t{12} << 30, range = std::uint64_t{160} << 30;
  layout.take_at(low, range);  // a range of addresses that lies low, as of expandable segments

  const auto next = layout.take(range);

  EXPECT_TRUE(next >= low + range && next + range > next) << next;
  const auto last = layout.take(range);
  EXPECT_TRUE(last >= next + range && last + range > last) << last;
}

TEST(DriverLayout, OneRegionLiesAcrossTwoThatWereTakenForTwo) {
  DriverLayout layout(kTop);
  const auto base = kTop / 2;
  layout.take_at(base, 10 * kOneMiB);
  layout.take_at(base + 64 * kOneMiB, 10 * kOneMiB);
  layout.take_at(base + 10 * kOneMiB, 54 * kOneMiB);
  EXPECT_EQ(layout.take(22 * kOneMiB), base + 74 * kOneMiB);
  EXPECT_EQ(layout.take(2 * kOneMiB), base - 32 * kOneMiB);
}

}  // namespace
}  // namespace emm
