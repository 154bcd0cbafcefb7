#include "bounds/stream_peak.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "base/prng.hpp"

namespace emm::bounds {
namespace {

TEST(StreamPeak, IsTheSumOfTheOwnPeaksWhereNothingOrdersTheStreams) {
  StreamPeak peak;

  peak.begins(0, 10);
  peak.ends(0, 10);
  peak.begins(1, 20);
  peak.ends(1, 20);
  peak.begins(0, 15);

  EXPECT_EQ(peak.peak(), 35u);
}

TEST(StreamPeak, IsThePeakOfWhatIsLiveWhereEachEndComesBeforeTheNextBeginning) {
  StreamPeak peak;

  peak.begins(0, 10);
  peak.ends(0, 10);
  peak.after(1, peak.upto(0));
  peak.begins(1, 20);
  peak.ends(1, 20);
  peak.after(0, peak.upto(1));
  peak.begins(0, 15);

  EXPECT_EQ(peak.peak(), 20u);
}

TEST(StreamPeak, IsNotLoweredByAnOrderThatTheEndDoesNotBelongTo) {
  StreamPeak peak;

  peak.begins(0, 10);
  const auto before_the_end = peak.upto(0);
  peak.ends(0, 10);
  peak.after(1, before_the_end);
  peak.begins(1, 20);

  EXPECT_EQ(peak.peak(), 30u);
}

TEST(StreamPeak, KnowsThatWhatTheHostWaitedForIsOverForAllStreams) {
  StreamPeak peak;

  peak.begins(0, 10);
  peak.ends(0, 10);
  peak.begins(1, 7);
  peak.all_after(peak.upto(0));
  peak.begins(2, 20);

  EXPECT_EQ(peak.peak(), 27u);
}

TEST(StreamPeak, GoesOnFromWhatIsLiveWhereAllWaitedForAll) {
  StreamPeak peak;

  peak.begins(0, 10);
  peak.begins(1, 10);
  peak.ends(1, 10);
  peak.all_after_all();
  peak.begins(1, 25);
  peak.ends(0, 10);

  EXPECT_EQ(peak.peak(), 35u);
}

TEST(StreamPeak, SaturatesWhereSumsPass64Bits) {
  StreamPeak peak;

  for (StreamPeak::Stream stream = 0; stream < 5; ++stream) {
    peak.begins(stream, std::uint64_t{1} << 63);
  }

  EXPECT_EQ(peak.peak(), kTooMany);
}

TEST(StreamPeak, IsThePeakOfWhatIsLiveWhereTooMuchIsTiedTogether) {
  StreamPeak peak;

  for (std::size_t i = 0; i < StreamPeak::kNodesMost; ++i) {
    const auto stream = static_cast<StreamPeak::Stream>(i % 2);
    peak.begins(stream, 10);
    peak.ends(stream, 10);
    peak.after(1 - stream, peak.upto(stream));
    peak.begins(2, 1);
  }

  EXPECT_EQ(peak.peak(), StreamPeak::kNodesMost + 9);
}

/// The same by brute force, from what the words say: which steps come before which, and then every
/// set of allocations of which no two may share.
class BruteForce {
 public:
  static constexpr std::size_t kHost = 3;

  std::size_t step(std::size_t line, std::vector<std::size_t> after = {}) {
    if (last_[line]) after.push_back(*last_[line]);
    if (line < kHost && last_[kHost]) after.push_back(*last_[kHost]);
    const auto at = apart(after);
    last_[line] = at;
    return at;
  }
  std::size_t apart(const std::vector<std::size_t>& after) {
    std::vector<bool> before(before_.size() + 1, false);
    for (const auto other : after) {
      before[other] = true;
      for (std::size_t i = 0; i < other; ++i) {
        if (before_[other][i]) before[i] = true;
      }
    }
    before_.push_back(std::move(before));
    return before_.size() - 1;
  }
  std::optional<std::size_t> last(std::size_t line) const { return last_[line]; }

  struct Allocation {
    std::uint64_t bytes;
    std::size_t stream;
    std::size_t begin;
    std::optional<std::size_t> end{};
  };
  std::vector<Allocation> allocations;

  std::uint64_t peak() const {
    std::uint64_t most = 0;
    for (std::uint32_t set = 0; set < (1u << allocations.size()); ++set) {
      std::uint64_t bytes = 0;
      bool apart = true;
      for (std::size_t i = 0; i < allocations.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        bytes += allocations[i].bytes;
        for (std::size_t k = 0; k < allocations.size(); ++k) {
          if ((set >> k & 1) != 0 && may_follow(allocations[k], allocations[i])) apart = false;
        }
      }
      if (apart) most = std::max(most, bytes);
    }
    return most;
  }

 private:
  bool may_follow(const Allocation& next, const Allocation& one) const {
    return one.end && *one.end < next.begin && before_[next.begin][*one.end];
  }

  std::vector<std::vector<bool>> before_;
  std::array<std::optional<std::size_t>, kHost + 1> last_;
};

TEST(StreamPeak, IsWhatBruteForceFindsOfRandomStreams) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng random(seed);
    StreamPeak peak;
    BruteForce brute;
    std::vector<StreamPeak::Point> begun;
    std::vector<std::pair<StreamPeak::Point, std::optional<std::size_t>>> records;
    const auto any_stream = [&] { return random.below(BruteForce::kHost); };
    const auto told = [](std::size_t stream) { return static_cast<StreamPeak::Stream>(stream); };
    for (int i = 0; i < 40; ++i) {
      const auto stream = any_stream();
      const auto dice = random.below(12);
      if (dice < 4 && brute.allocations.size() < 10) {
        const auto bytes = 1 + random.below(100);
        peak.begins(told(stream), bytes);
        begun.push_back(peak.upto(told(stream)));
        brute.allocations.push_back({bytes, stream, brute.step(stream)});
      } else if (dice < 8 && !brute.allocations.empty()) {
        const auto at = random.below(brute.allocations.size());
        auto& one = brute.allocations[at];
        if (one.end) continue;
        if (stream == one.stream || random.chance(0.5)) {
          peak.ends(told(one.stream), one.bytes);
          one.end = brute.step(one.stream);
        } else {
          peak.ends_apart(begun[at], one.bytes, told(one.stream), told(stream));
          one.end = brute.apart({one.begin});
          brute.step(one.stream, {*one.end});
          brute.step(stream, {*one.end});
        }
      } else if (dice == 8) {
        records.emplace_back(peak.upto(told(stream)), brute.step(stream));
      } else if (dice == 9 && !records.empty()) {
        const auto& record = records[random.below(records.size())];
        peak.after(told(stream), record.first);
        brute.step(stream, {*record.second});
      } else if (dice == 10) {
        peak.all_after(peak.upto(told(stream)));
        brute.step(BruteForce::kHost, {brute.step(stream)});
      } else if (dice == 11 && random.chance(0.2)) {
        peak.all_after_all();
        std::vector<std::size_t> all;
        for (std::size_t line = 0; line < BruteForce::kHost; ++line)
          all.push_back(brute.step(line));
        brute.step(BruteForce::kHost, all);
      }
    }

    ASSERT_EQ(peak.peak(), brute.peak());
  }
}

}  // namespace
}  // namespace emm::bounds
