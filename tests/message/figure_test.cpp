#include <cinttypes>
#include <cstdio>
#include <random>

#include "base/text.hpp"
#include "said.hpp"

namespace emm::message {
namespace {

using text::format;

// The printing of each framework, from what its sources do.

std::string torch(std::uint64_t bytes) {
  char out[64];
  const auto of = static_cast<double>(bytes);
  if (bytes <= 1024) {
    std::snprintf(out, sizeof out, "%" PRIu64 " bytes", bytes);
  } else if (bytes <= 1048576) {
    std::snprintf(out, sizeof out, "%.2f KiB", of / 1024);
  } else if (bytes <= 1073741824) {
    std::snprintf(out, sizeof out, "%.2f MiB", of / 1048576);
  } else {
    std::snprintf(out, sizeof out, "%.2f GiB", of / 1073741824);
  }
  return out;
}

std::string tensorflow(std::uint64_t bytes) {
  char out[64];
  if (bytes < 1024) {
    std::snprintf(out, sizeof out, "%" PRIu64 "B", bytes);
    return out;
  }
  const char* unit = "KMGTPE";
  for (; bytes >= 1024 * 1024; bytes /= 1024) ++unit;
  std::snprintf(out, sizeof out, *unit == 'K' ? "%.1f%ciB" : "%.2f%ciB",
                static_cast<double>(bytes) / 1024, *unit);
  return out;
}

std::string rmm(std::uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < 4; value /= 1024) ++unit;
  return std::to_string(value) + " " + units[unit];
}

class Figures : public testing::Test {
 protected:
  /// Sizes of all magnitudes, and what PyTorch asks for: multiples of 2 MiB.
  std::uint64_t bytes() {
    const auto value = random_() >> (24 + random_() % 39);
    return random_() % 3 == 0 ? value / 2097152 * 2097152 + 2097152 : value + 1;
  }
  static void expect_holds(const Message& message, Meaning what, std::uint64_t truth) {
    const auto range = message.bytes(what);
    ASSERT_TRUE(range) << name(what) << " of " << message.text;
    EXPECT_LE(range->least, truth) << name(what);
    EXPECT_GE(range->most, truth) << name(what);
    EXPECT_LE(static_cast<double>(range->most - range->least),
              static_cast<double>(truth) * 0.02 + 11.0 + 1.1e7)
        << name(what) << ": a range that says nothing";
  }

  std::mt19937_64 random_{7};
  static constexpr int kTimes = 300;
};

TEST_F(Figures, OfPyTorchSince20HoldWhatWasPrinted) {
  for (int i = 0; i < kTimes; ++i) {
    const auto a = bytes(), b = bytes(), c = bytes(), d = bytes(), e = bytes(), f = bytes(),
               g = bytes();
    const auto message = only_in(format(
        "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} "
        "is "
        "free. Process 77 has {} memory in use. Including non-PyTorch memory, this process has {} "
        "memory in use. {} allowed; Of the allocated memory {} is allocated by PyTorch, with {} "
        "allocated in private pools (e.g., CUDA Graphs), and {} is reserved by PyTorch but "
        "unallocated.",
        torch(a), i % 16, torch(b), torch(c), torch(d), torch(e), torch(f), torch(g), torch(a),
        torch(b)));
    expect_holds(message, Meaning::asked, a);
    expect_holds(message, Meaning::total, b);
    expect_holds(message, Meaning::free, c);
    ASSERT_EQ(message.processes.size(), 1u);
    EXPECT_EQ(message.processes[0].pid, 77u);
    EXPECT_LE(message.processes[0].held.bytes.least, d);
    EXPECT_GE(message.processes[0].held.bytes.most, d);
    expect_holds(message, Meaning::process, e);
    expect_holds(message, Meaning::allowed, f);
    expect_holds(message, Meaning::allocated, g);
    expect_holds(message, Meaning::private_pools, a);
    expect_holds(message, Meaning::idle, b);
    EXPECT_EQ(message.device, static_cast<std::uint32_t>(i % 16));
  }
}

TEST_F(Figures, OfPyTorchBefore20HoldWhatWasPrinted) {
  for (int i = 0; i < kTimes; ++i) {
    const auto a = bytes(), b = bytes(), c = bytes(), d = bytes(), e = bytes();
    const auto begin = format(
        "CUDA out of memory. Tried to allocate {} (GPU {}; {} total capacity; {} already "
        "allocated; "
        "{} free; ",
        torch(a), i % 16, torch(b), torch(c), torch(d));
    auto message = only_in(begin + torch(e) + " reserved in total by PyTorch)");
    expect_holds(message, Meaning::asked, a);
    expect_holds(message, Meaning::total, b);
    expect_holds(message, Meaning::allocated, c);
    expect_holds(message, Meaning::free, d);
    expect_holds(message, Meaning::reserved, e);
    message = only_in(begin + torch(e) + " cached)");
    expect_holds(message, Meaning::idle, e);
    EXPECT_FALSE(message[Meaning::reserved]);
  }
}

TEST_F(Figures, OfTensorFlowAndXlaHoldWhatWasPrinted) {
  for (int i = 0; i < kTimes; ++i) {
    const auto a = bytes(), b = bytes(), c = bytes(), d = bytes();
    auto message =
        only_in(format("Allocator (GPU_0_bfc) ran out of memory trying to allocate {}.  Current "
                       "allocation summary follows.",
                       tensorflow(a)));
    expect_holds(message, Meaning::asked, a);
    message =
        only_in(format("RESOURCE_EXHAUSTED: Out of memory while trying to allocate {}.\n"
                       "BufferAssignment stats:\n   parameter allocation:  {}\n"
                       "   preallocated temp allocation:  {}\n   total allocation:  {}\n",
                       tensorflow(a), tensorflow(b), tensorflow(c), tensorflow(d)));
    expect_holds(message, Meaning::asked, a);
    expect_holds(message, Meaning::parameters, b);
    expect_holds(message, Meaning::temporaries, c);
    expect_holds(message, Meaning::program, d);
  }
}

TEST_F(Figures, OfRmmCuPyAndOthersHoldWhatWasPrinted) {
  for (int i = 0; i < kTimes; ++i) {
    const auto a = bytes(), b = bytes(), c = bytes();
    auto message = only_in(format(
        "std::bad_alloc: out_of_memory: RMM failure at:x.hpp:73: Maximum pool size exceeded "
        "(failed to allocate {}): Not enough room to grow, current/max/try size = {}, {}, {}",
        rmm(a), rmm(b), rmm(c), rmm(a)));
    expect_holds(message, Meaning::asked, a);
    expect_holds(message, Meaning::reserved, b);
    expect_holds(message, Meaning::allowed, c);
    message =
        only_in(format("Out of memory allocating {} bytes (allocated so far: {} bytes, limit "
                       "set to: {} bytes).",
                       text::grouped(a), text::grouped(b), text::grouped(c)));
    EXPECT_EQ(message.bytes(Meaning::asked), (Range{a, a}));
    EXPECT_EQ(message.bytes(Meaning::reserved), (Range{b, b}));
    EXPECT_EQ(message.bytes(Meaning::allowed), (Range{c, c}));
    message = only_in(format("NCCL WARN Failed to CUDA calloc {} bytes", a));
    EXPECT_EQ(message.bytes(Meaning::asked), (Range{a, a}));
  }
}

TEST_F(Figures, OfDifferencesHoldTheDifference) {
  for (int i = 0; i < kTimes; ++i) {
    const auto allocated = bytes(), idle = bytes(), free = bytes(), outside = bytes();
    const auto asked = bytes();
    const auto total = allocated + idle + free + outside;
    const auto found = answer(only_in(format(
        "CUDA out of memory. Tried to allocate {} (GPU 0; {} total capacity; {} already allocated; "
        "{} free; {} reserved in total by PyTorch)",
        torch(asked), torch(total), torch(allocated), torch(free), torch(allocated + idle))));
    const auto holds = [](const std::optional<Range>& range, std::uint64_t truth) {
      return range && range->least <= truth && truth <= range->most;
    };
    EXPECT_TRUE(holds(found.idle, idle));
    EXPECT_TRUE(holds(found.available, idle + free));
    EXPECT_TRUE(holds(found.outside, outside));
    EXPECT_TRUE(holds(found.lacking, asked - std::min(asked, idle + free)));
    EXPECT_TRUE(holds(found.spare, idle + free - std::min(asked, idle + free)));
    // What is said as certain is so.
    if (!found.is_certain) continue;
    if (found.cause == inspect::Cause::waste) {
      EXPECT_GE(idle + free, asked);
    }
    if (found.cause == inspect::Cause::others) {
      EXPECT_LT(idle + free, asked);
    }
  }
}

TEST(Figure, OfDigitsFinerThanAByteIsARangeAllTheSame) {
  const auto found = figure("1.2345678", "KiB", Rounding::nearest);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, (Range{1264, 1265}));
}

TEST(Figure, OfACommaIsAFractionOrGroupsDigits) {
  EXPECT_EQ(number_at("1,70GiB.")->digits, 4u);
  EXPECT_EQ(figure("1,70", "GiB", Rounding::nearest)->bytes,
            figure("1.70", "GiB", Rounding::nearest)->bytes);
  EXPECT_EQ(number_at("8,589,934,592bytes")->digits, 13u);
  EXPECT_EQ(figure("8,589,934,592", "bytes", Rounding::nearest)->bytes.least, 8589934592u);
  EXPECT_EQ(number_at("64,256,56,56]")->digits, 6u) << "a shape";
  EXPECT_EQ(number_at("3,12]")->digits, 1u);
}

TEST(Figure, OfAFractionWithoutAUnitIsNone) { EXPECT_FALSE(figure("1.70", "", Rounding::nearest)); }

}  // namespace
}  // namespace emm::message
