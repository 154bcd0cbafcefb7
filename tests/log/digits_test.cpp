#include "log/digits.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <vector>

#include "base/prng.hpp"

namespace emm::log {
namespace {

template <class Put>
std::string text_of(Put put, std::uint64_t value) {
  char text[2 * kNumber];
  return {text, put(text, value)};
}

/// Every power of ten and of two, and what is next to them.
std::vector<std::uint64_t> edges() {
  std::vector<std::uint64_t> values{0, 1, std::numeric_limits<std::uint64_t>::max()};
  const auto around = [&](std::uint64_t value) {
    for (const std::uint64_t by : {0, 1, 2, 5, 50, 500}) {
      values.push_back(value - by);
      values.push_back(value + by);
    }
  };
  for (std::uint64_t power = 10; power < 10'000'000'000'000'000'000u; power *= 10) around(power);
  for (int bit = 0; bit < 64; ++bit) around(std::uint64_t{1} << bit);
  return values;
}

void expect_as_streamed(std::uint64_t ns, std::ostringstream& stream) {
  stream.str({});
  stream << static_cast<double>(ns) * 1e-9;
  ASSERT_EQ(text_of(put_seconds, ns), stream.view()) << ns << " ns";
}

TEST(Digits, NumbersAreAsAnOstreamPrintsThem) {
  auto values = edges();
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);
  for (int i = 0; i < 100'000; ++i)
    values.push_back(random.log_uniform(1, std::numeric_limits<std::uint64_t>::max() / 2));

  std::ostringstream decimal, hex;
  decimal.imbue(std::locale::classic());
  hex.imbue(std::locale::classic());
  hex << std::hex;
  for (const auto value : values) {
    decimal.str({});
    decimal << value;
    ASSERT_EQ(text_of(put_decimal, value), decimal.view());
    hex.str({});
    hex << "0x" << value;
    ASSERT_EQ(text_of(put_hex, value), hex.view());
  }
}

TEST(Digits, SecondsAreAsAnOstreamPrintsTheDouble) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  for (const auto ns : edges()) ASSERT_NO_FATAL_FAILURE(expect_as_streamed(ns, stream));
  constexpr std::uint64_t kSeed = 12;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Prng random(kSeed);

  for (int i = 0; i < 1'000'000; ++i) {
    auto ns = random.log_uniform(1, 10'000'000'000'000'000);
    if (i % 4 == 0) ns = ns / 1000 * 1000 + 500;  // ties among them
    if (i % 4 == 1) ns = ns / 100'000 * 100'000;  // and zeros at the end
    ASSERT_NO_FATAL_FAILURE(expect_as_streamed(ns, stream));
  }
}

}  // namespace
}  // namespace emm::log
