// What a state holds, and what the model still serves from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/program.hpp"
#include "allocators/pytorch/state.hpp"
#include "allocators/pytorch/survivors.hpp"
#include "exchange/importer.hpp"
#include "format/byte_source.hpp"

namespace emm::allocators::pytorch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

/// Five segments of 100 MiB that are half in use, and five that are free, as segments in a state.
State half_used() {
  State state;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto address = (std::uint64_t{1} << 40) + i * 200 * kMebi;
    state.segments.push_back({.address = address, .size = 100 * kMebi});
    if (i < 5)
      state.blocks.push_back(
          {.address = address, .size = 50 * kMebi, .requested = 50 * kMebi, .allocation = i});
  }
  return state;
}

TEST(PytorchState, DividesWhatIsInactive) {
  const auto state = half_used();
  const auto parts = inactive(state, {});

  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(parts[0].small);
  EXPECT_EQ(parts[0].returnable, 500 * kMebi);
  EXPECT_EQ(parts[0].stuck, 250 * kMebi);
  EXPECT_EQ(largest_request(state, {}, 1100 * kMebi)->bytes, 600 * kMebi);
  EXPECT_FALSE(largest_request(state, {}, 900 * kMebi));  // less than it holds
}

TEST(PytorchState, KeepsWhatIsOfAPrivatePool) {
  auto state = half_used();
  for (auto& segment : state.segments) segment.pool = {0, 1};
  const auto largest = largest_request(state, {}, 1100 * kMebi);

  ASSERT_TRUE(largest);
  EXPECT_EQ(largest->bytes, 100 * kMebi);
  EXPECT_FALSE(largest->from_block);
}

TEST(PytorchState, UnmapsWholePages) {
  State state;
  const auto address = std::uint64_t{1} << 40;
  state.segments.push_back({.address = address, .size = 100 * kMebi, .mapped = true});
  state.blocks.push_back({.address = address + 10 * kMebi, .size = kMebi, .requested = kMebi});
  Settings settings;
  settings.expandable_segments = true;
  const auto parts = inactive(state, settings);

  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].returnable, 80 * kMebi);
  EXPECT_EQ(parts[0].stuck, 19 * kMebi);
  // The tail of the page in use, and the pages behind it.
  EXPECT_EQ(largest_request(state, settings, 140 * kMebi)->bytes, (9 + 120) * kMebi);
}

TEST(PytorchState, RunsBeginWithWhatWasThere) {
  Program program;
  program.before = half_used();
  program.allocations = 6;
  program.calls.push_back({.allocation = 0, .size = 50 * kMebi, .is_before = true});
  program.calls.push_back({.allocation = 5, .size = 60 * kMebi});
  const auto outcome = run(program, {});

  EXPECT_EQ(outcome.counts.peak_reserved, 1000 * kMebi);
  EXPECT_EQ(outcome.counts.device_allocs, 0u);  // a free segment has room
  EXPECT_EQ(outcome.peak_live, 310 * kMebi);
  EXPECT_TRUE(run(program, {.settings = {}, .capacity = 900 * kMebi}).fails_at);
}

/// Bisection finds no larger request than is said, in the states at the ends of all recordings.
TEST(PytorchRecordings, SayTheLargestRequestThatTheirStatesServe) {
  const auto* const said = std::getenv("EMM_EXTRA_TRACES");
  std::size_t states = 0;
  for (const auto* const folder : {"torch", "torch-settings", "torch-ranks"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(
             fs::path(said != nullptr ? said : EMM_EXTRA_TRACES) / folder, ignored)) {
      if (entry.path().string().find(".pickle.gz") == std::string::npos) continue;
      auto source = format::ByteSource::open(entry.path().string(), nullptr);
      ASSERT_TRUE(source);
      const auto importer = trace::detect(**source);
      Recording recording;
      ASSERT_TRUE(importer && (*importer)->read(**source, recording, {}));
      auto settings = recording.settings();
      settings.drop_limit();
      const auto state =
          state_at_end(recording, check_one_step(recording, settings, nullptr, 1000));
      const auto capacity = state.reserved() + 150 * kMebi;
      const auto largest = largest_request(state, settings, capacity);
      ++states;
      const auto name = entry.path().filename();
      ASSERT_TRUE(largest) << name;
      EXPECT_TRUE(serves(state, settings, capacity, largest->bytes, largest->stream)) << name;
      auto low = largest->bytes, high = std::max(capacity, low) + 1;
      while (high - low > 1) {
        const auto middle = low + (high - low) / 2;
        (serves(state, settings, capacity, middle, largest->stream) ? low : high) = middle;
      }
      EXPECT_EQ(low, largest->bytes) << name;
    }
  }
  if (states == 0) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
}

using Parts = std::vector<std::array<std::uint64_t, 6>>;
Parts parts_of(const Recording& recording) {
  const auto settings = recording.settings();
  Parts parts;
  for (const auto& each : inactive(
           state_at_end(recording, check_one_step(recording, settings, nullptr, 1000)), settings))
    parts.push_back(
        {each.pool.first, each.pool.second, each.small, each.stream, each.returnable, each.stuck});
  return parts;
}

/// What is left of a recording is the state at its end.
TEST(PytorchRecordings, HaveTheStateAtTheirEndInWhatSurvives) {
  const auto* const said = std::getenv("EMM_EXTRA_TRACES");
  std::size_t states = 0, waiting = 0;
  for (const auto* const folder : {"torch", "torch-settings", "torch-ranks"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(
             fs::path(said != nullptr ? said : EMM_EXTRA_TRACES) / folder, ignored)) {
      const auto name = entry.path().filename().string();
      const bool is_one = name.find("_default_") != name.npos || name.find("rank0") != name.npos ||
                          name.find("_expandable_") != name.npos;  // All of them take 15 s.
      if (!is_one || name.find(".pickle.gz") == name.npos) continue;
      const auto read = [&](trace::OperationSink& into) {
        auto source = format::ByteSource::open(entry.path().string(), nullptr);
        const auto importer = trace::detect(**source);
        return (*importer)->read(**source, into, {}).has_value();
      };
      Recording whole, left;
      Survivors survivors;
      ASSERT_TRUE(read(whole));
      ASSERT_TRUE(read(survivors));
      survivors.pass_to(left);
      ASSERT_TRUE(read(survivors));
      ++states;
      waiting += std::any_of(left.steps().begin(), left.steps().end(),
                             [](const Step& step) { return step.delayed; })
                     ? 1
                     : 0;
      EXPECT_TRUE(survivors.are_sized()) << entry.path();
      EXPECT_LT(left.steps().size(), whole.steps().size());
      EXPECT_EQ(parts_of(left), parts_of(whole)) << entry.path();
    }
  }
  if (states == 0) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  EXPECT_GT(waiting, 0u) << "some have blocks that wait";
}

}  // namespace
}  // namespace emm::allocators::pytorch
