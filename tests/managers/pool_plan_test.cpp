// A pool that follows a plan: where memory lies, what a request that deviates meets, and when the
// plan is followed again.
#include "pool_plan.hpp"

#include <array>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/prng.hpp"
#include "pool_rig.hpp"
#include "pool_sound.hpp"
#include "stream_order/checker.hpp"

namespace emm::test {
namespace {

/// What a pool's report says of its plan.
struct Followed {
  unsigned long served = 0;
  unsigned long left = 0;
};
Followed followed(const MemoryManager& manager) {
  Followed of;
  const auto report = manager.report();
  const auto at = report.find(" requests served as planned");
  EXPECT_NE(at, std::string::npos) << report;
  const auto line = report.rfind('\n', at) + 1;
  EXPECT_EQ(std::sscanf(report.c_str() + line,
                        "pool: %lu requests served as planned; the plan was left %lu times",
                        &of.served, &of.left),
            2)
      << report;
  return of;
}

class PoolPlanned : public PoolOverVirtualMemory {
 protected:
  void plan(const std::vector<PlannedRequest>& requests, const std::string& more = "",
            std::uint32_t period_begin = PoolPlan::kNever) {
    PoolPlan planned;
    planned.streams.push_back(lay_out(requests));
    if (period_begin != PoolPlan::kNever) planned.streams[0].period_begin = period_begin;
    stream_plan = planned.streams[0];
    make("pool:plan=" + written(planned) + more);
  }
  /// Where the memory lies in the plan's span, if `first` is the first request's.
  std::uint64_t offset(const MemoryPointer& memory, const MemoryPointer& first) {
    return memory.device_pointer().value - first.device_pointer().value + stream_plan.offsets[0];
  }
  Followed followed() { return test::followed(*manager); }

  PoolPlan::Stream stream_plan;
  std::vector<StreamHandle> streams;
};

const std::vector<PlannedRequest> kThree{{1_MiB, 3}, {3_MiB, 2}, {2_MiB, 3}};

TEST_F(PoolPlanned, RequestsThatComeAsPlannedLieWhereThePlanSaysInMemoryMappedInAFewCalls) {
  plan(kThree);
  const auto before = hook.calls;

  for (int pass = 0; pass < 3; ++pass) {
    SCOPED_TRACE(pass);
    auto first = memory(1_MiB);
    auto second = memory(3_MiB);
    EXPECT_EQ(offset(second, first), stream_plan.offsets[1]);
    ASSERT_TRUE(second.free());
    auto third = memory(2_MiB);
    EXPECT_EQ(offset(third, first), stream_plan.offsets[2]);
  }

  EXPECT_LE(hook.calls - before, 8);
  EXPECT_EQ(driver().held_bytes(), stream_plan.bytes);
  EXPECT_EQ(followed().served, 9u);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, ADeviationIsServedAsWithoutAPlanUntilNothingIsHeld) {
  plan(kThree);
  {
    const auto first = memory(1_MiB);
    fill(first, 7);
    const auto other = memory(3_MiB + 1);
    fill(other, 8);
    const auto third = memory(2_MiB);
    fill(third, 9);
    expect_filled(first, 7);
    expect_filled(other, 8);
    EXPECT_EQ(followed().served, 1u);
    EXPECT_EQ(followed().left, 1u);
    EXPECT_LE(driver().held_bytes(), 16_MiB) << "what the plan left free is used";
  }

  const auto first = memory(1_MiB);
  const auto second = memory(3_MiB);
  EXPECT_EQ(offset(second, first), stream_plan.offsets[1]);
  EXPECT_EQ(followed().served, 3u);
}

TEST_F(PoolPlanned, APlaceThatIsStillInUseIsNotHandedOut) {
  plan({{4_MiB, 1}, {4_MiB, 2}});
  ASSERT_EQ(stream_plan.offsets[1], 0u);

  const auto kept = memory(4_MiB);
  fill(kept, 1);
  const auto next = memory(4_MiB);
  fill(next, 2);

  expect_filled(kept, 1);
  EXPECT_EQ(followed().left, 1u);
}

TEST_F(PoolPlanned, TheNextGenerationFollowsThePlanWhereTheProgramNowIs) {
  plan({{1_MiB, 2}, {2_MiB, 2}, {3_MiB, 4}, {4_MiB, 4}, {5_MiB, 6}, {6_MiB, 6}});
  const auto generation = [&](std::uint64_t one, std::uint64_t two) {
    const auto a = memory(one);
    const auto b = memory(two);
  };
  generation(1_MiB, 2_MiB);
  generation(3_MiB, 4_MiB + 512);  // deviates
  generation(5_MiB, 6_MiB);
  EXPECT_EQ(followed().served, 5u);
  generation(1_MiB, 2_MiB);
  generation(5_MiB, 6_MiB);  // leaves a generation out
  EXPECT_EQ(followed().served, 9u);
  EXPECT_EQ(followed().left, 1u);
}

TEST_F(PoolPlanned, APeriodComesAgainAndAgainOnWhatLivesOn) {
  plan({{8_MiB}, {1_MiB, 3}, {2_MiB, 3}}, "", 1);
  const auto weights = memory(8_MiB);
  fill(weights, 5);
  for (int step = 0; step < 4; ++step) {
    const auto a = memory(1_MiB);
    const auto b = memory(2_MiB);
    fill(a, 1);
    fill(b, 2);
    EXPECT_EQ(offset(a, weights), stream_plan.offsets[1]);
    EXPECT_EQ(offset(b, weights), stream_plan.offsets[2]);
  }
  EXPECT_EQ(followed().served, 9u);
  EXPECT_EQ(followed().left, 0u);
  {
    const auto a = memory(1_MiB);
    const auto evaluation = memory(7_MiB);
    fill(evaluation, 3);
    EXPECT_EQ(followed().left, 1u);
  }
  expect_filled(weights, 5);

  const auto a = memory(1_MiB);
  EXPECT_EQ(offset(a, weights), stream_plan.offsets[1])
      << "the arena holds what a period begins with";
  EXPECT_EQ(followed().served, 11u);
  expect_filled(weights, 5);
}

TEST_F(PoolPlanned, WhatOutlivesItsPeriodLiesBesideThePlan) {
  plan({{8_MiB}, {4}, {1_MiB, 4}, {2_MiB, 4}}, "", 1);
  const auto weights = memory(8_MiB);
  std::vector<MemoryPointer> losses;
  for (std::uint8_t step = 0; step < 40; ++step) {
    losses.push_back(memory(4));
    fill(losses.back(), step);
    const auto a = memory(1_MiB);
    const auto b = memory(2_MiB);
    fill(a, 101);
    fill(b, 102);
    EXPECT_EQ(offset(a, weights), stream_plan.offsets[2]);
    EXPECT_EQ(offset(b, weights), stream_plan.offsets[3]);
    if (step == 20) losses.erase(losses.begin(), losses.begin() + 5);
  }
  for (std::size_t at = 0; at < losses.size(); ++at)
    expect_filled(losses[at], static_cast<std::uint8_t>(at + 5));
  EXPECT_EQ(followed().served, 81u);
  EXPECT_EQ(followed().left, 0u);
  EXPECT_LE(driver().held_bytes(), stream_plan.bytes + 2_MiB);
  {
    const auto other = memory(7_MiB);
    EXPECT_EQ(followed().left, 1u);
  }
  losses.push_back(memory(4));
  const auto a = memory(1_MiB);
  EXPECT_EQ(offset(a, weights), stream_plan.offsets[2])
      << "the plan is followed again, whatever lies beside it";
}

TEST_F(PoolPlanned, AStepThatDeviatesLeavesThePlanForItselfAloneWhereEachStepKeepsALittle) {
  plan({{8_MiB}, {4}, {1_MiB, 4}, {2_MiB, 4}}, "", 1);
  const auto weights = memory(8_MiB);
  std::vector<MemoryPointer> losses;
  const auto step = [&](std::uint64_t one, std::uint64_t two) {
    losses.push_back(memory(4));
    const auto a = memory(one);
    losses.push_back(memory(4));  // this one is not in the plan
    const auto b = memory(two);
  };
  step(1_MiB, 2_MiB);
  EXPECT_EQ(followed().served, 3u);
  EXPECT_EQ(followed().left, 0u);
  step(512_KiB, 1_MiB);
  EXPECT_EQ(followed().left, 1u);
  losses.push_back(memory(4));
  const auto a = memory(1_MiB);
  const auto b = memory(2_MiB);
  EXPECT_EQ(offset(b, weights), stream_plan.offsets[3]);
  EXPECT_EQ(followed().served, 5u);
}

TEST_F(PoolPlanned, ADeviationTakesNoMemoryThatThePlanHasIdleWhereTheSizeIsNotRare) {
  plan({{8_MiB}, {1_MiB}, {1_MiB, 6}, {1_MiB, 6}, {1_MiB, 6}, {1_MiB, 6}}, "", 1);
  const auto weights = memory(8_MiB);
  std::vector<MemoryPointer> step;
  step.push_back(memory(2_MiB));  // deviates
  const auto before = driver().held_bytes();
  for (int request = 0; request < 3; ++request) step.push_back(memory(1_MiB));
  EXPECT_EQ(driver().held_bytes(), before);
}

TEST_F(PoolPlanned, EachOfManyStreamsHasItsPlanAndWhatLiesBesideIt) {
  constexpr std::size_t kStreams = 24;
  PoolPlan planned;
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    planned.streams.push_back(lay_out({{1_MiB, 3}, {4}, {1_MiB, 3}}, 512, false));
    planned.streams.back().period_begin = 0;
  }
  make("pool:plan=" + written(planned));
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t at = 0; at < kStreams; ++at) {
      if (pass == 0) streams.push_back(*driver().stream_create(StreamKind::non_blocking));
      const auto first = *manager->memalloc(1_MiB, streams[at]);
      const auto beside = *manager->memalloc(4, streams[at]);
      const auto last = *manager->memalloc(1_MiB, streams[at]);
    }
  }
  EXPECT_EQ(followed().served, 3 * 2 * kStreams);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, WhatHasNoRoomBesideThePlanIsServedFromWhatThePlanLeavesFree) {
  const std::vector<PlannedRequest> requests{{4_MiB}, {4}, {4_MiB, 3}};
  plan(requests, ",max=" + std::to_string(lay_out(requests).bytes), 1);
  ASSERT_EQ(stream_plan.bytes % 2_MiB, 0u);
  const auto weights = memory(4_MiB);
  std::vector<MemoryPointer> losses;
  for (std::uint8_t step = 0; step < 3; ++step) {
    losses.push_back(memory(4));
    fill(losses.back(), step);
    const auto a = memory(4_MiB);
    fill(a, 100);
  }
  for (std::uint8_t step = 0; step < 3; ++step) expect_filled(losses[step], step);
  EXPECT_EQ(followed().left, 1u);
  EXPECT_EQ(manager->statistics().num_ooms, 0u);
}

TEST_F(PoolPlanned, APlanThatGivesWhatItCarriesAwayServesNothingTwice) {
  PoolPlan planned;
  planned.streams.push_back(
      {.name = "0", .is_default = true, .bytes = 2_MiB, .peak_live_bytes = 2_MiB});
  auto& stream = planned.streams[0];
  stream.sizes = {1_MiB, 1_MiB};
  stream.offsets = {0, 0};
  stream.ends = {3, 2};
  make("pool:plan=" + written(planned));
  const auto first = memory(1_MiB);
  fill(first, 1);
  { const auto other = memory(3_MiB); }
  const auto second = memory(1_MiB);
  fill(second, 2);
  expect_filled(first, 1);
}

TEST_F(PoolPlanned, NoPlaceIsAsLargeAsCanBeAsked) {
  plan({{8_MiB}, {4}, {1_MiB, 3}}, "", 1);
  const auto weights = memory(8_MiB);
  fill(weights, 1);
  EXPECT_FALSE(manager->memalloc(~std::uint64_t{0}, {}));
  const auto loss = memory(4);
  fill(loss, 2);
  expect_filled(weights, 1);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, MemoryFreedOnAnotherStreamIsWaitedForInTheStream) {
  plan({{4_MiB, 1}, {4_MiB, 2}});
  const auto other = *driver().stream_create(StreamKind::non_blocking);
  auto first = memory(4_MiB);
  const auto address = first.device_pointer();
  hook.of_streams = 0;
  ASSERT_TRUE(first.free(other));

  const auto second = memory(4_MiB);

  EXPECT_EQ(second.device_pointer(), address);
  EXPECT_EQ(hook.of_streams, 2) << "the event is recorded, and this stream waits for it";
  EXPECT_EQ(followed().served, 2u);
}

TEST_F(PoolPlanned, MemoryFreedByAnotherThreadIsBackWhenItsPlaceIsNeeded) {
  plan({{4_MiB, 1}, {4_MiB, 2}});
  auto first = memory(4_MiB);
  std::thread([&] { EXPECT_TRUE(first.free()); }).join();
  const auto second = memory(4_MiB);
  EXPECT_EQ(followed().served, 2u);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, ReportsShowWhatThePlanHoldsAndChangeNothing) {
  plan(kThree);
  auto first = memory(1_MiB);
  auto second = memory(3_MiB);
  const auto address = second.device_pointer().value;
  expect_sound(*manager, {{first.device_pointer().value, 1_MiB}, {address, 3_MiB}});
  ASSERT_TRUE(second.free());
  expect_sound(*manager, {{first.device_pointer().value, 1_MiB}});
  ASSERT_TRUE(manager->trim(0));
  const auto third = memory(2_MiB);
  EXPECT_EQ(offset(third, first), stream_plan.offsets[2]);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, ResetReleasesThePlansMemoryAndThePlanBeginsAgain) {
  plan(kThree);
  auto first = memory(1_MiB);
  const auto second = memory(3_MiB);
  manager->reset();
  EXPECT_FALSE(first.free());
  EXPECT_EQ(driver().held_bytes(), 0u);

  const auto again = memory(1_MiB);
  EXPECT_EQ(driver().held_bytes(), stream_plan.bytes);
  EXPECT_EQ(followed().served, 3u);
  EXPECT_EQ(followed().left, 0u);
}

TEST_F(PoolPlanned, WhereThePlanDoesNotFitThePoolServesWithoutIt) {
  plan(kThree, ",max=2MiB");
  const auto first = memory(1_MiB);
  EXPECT_EQ(followed().served, 0u);
  EXPECT_EQ(driver().held_bytes(), 2_MiB);
}

TEST_F(PoolPlanned, EachStreamTakesThePlanThatBeginsAsItDoes) {
  PoolPlan planned;
  planned.streams.push_back(lay_out({{1_MiB, 1}}, 512, false));
  planned.streams.push_back(lay_out({{2_MiB, 1}}, 512, false));
  planned.streams.push_back(lay_out({{3_MiB, 1}}, 512, true));
  make("pool:plan=" + written(planned));
  const auto two = memory(2_MiB, *driver().stream_create(StreamKind::non_blocking));
  const auto other = memory(2_MiB, *driver().stream_create(StreamKind::non_blocking));
  const auto own = memory(3_MiB);
  EXPECT_EQ(followed().served, 2u) << "the second stream of 2 MiB has none";
}

TEST_F(PoolPlanned, AFinalizerThatRunsAgainEndsNoLaterUseOfThePlace) {
  plan({{4_MiB, 1}, {4_MiB, 2}});
  auto first = memory(4_MiB);
  ASSERT_TRUE(first.free());
  const auto second = memory(4_MiB);
  EXPECT_FALSE(first.free());
  const auto third = memory(4_MiB);
  EXPECT_NE(third.device_pointer(), second.device_pointer());
}

TEST_F(PoolPlanned, OptionsThatExcludeEachOtherAndFilesThatAreNoPlanAreRefused) {
  PoolPlan planned;
  planned.streams.push_back(lay_out(kThree));
  const auto path = written(planned);
  const auto refusal = [&](const std::string& spec) {
    const auto made = find_manager(spec);
    return made ? std::string() : describe(made.error());
  };
  EXPECT_NE(refusal("pool:inactive_split=peak,plan=" + path).find("inactive_split"),
            std::string::npos);
  EXPECT_NE(refusal("pool:alignment=4096,plan=" + path).find("--alignment 4096"),
            std::string::npos);
  EXPECT_NE(refusal("pool:plan=/nowhere.json"), "");
  const auto damaged = [&](std::string_view from, std::string_view to) {
    auto text = allocators::to_json(planned);
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(path, std::ios::binary) << text;
    return refusal("pool:plan=" + path);
  };
  EXPECT_EQ(damaged("\"stream\":\"0\"", "\"stream\":\"7\",\"more\":[{\"a\":[1]}]"), "");
  for (const auto& [from, to] : {std::pair("emmctl.plan/1", "emmctl.plan/2"),
                                 {"\"sizes\":[1048576", "\"sizes\":[0"},
                                 {"\"sizes\":[1048576", "\"sizes\":[-1"},
                                 {"\"sizes\":[1048576", "\"sizes\":[99999999999"},
                                 {"\"offsets\":[0", "\"offsets\":[1"},
                                 {"\"offsets\":[0", "\"offsets\":[18446744073709551104"},
                                 {"\"offsets\":[0,", "\"offsets\":["},
                                 {"\"ends\":[3", "\"ends\":[18446744073709551615"},
                                 {"\"ends\":[3,2", "\"ends\":[3,1"},
                                 {"\"period_begin\":3", "\"period_begin\":4"},
                                 {"\"bytes\":", "\"bytes\":null,\"x\":"},
                                 {"\"alignment_bytes\":512", "\"alignment_bytes\":0"},
                                 {"]}]}", "]}"}}) {
    EXPECT_NE(damaged(from, to), "") << from << " became " << to;
  }
}

// A program of requests and frees on several streams, planned and run again: as it was, and with
// steps changed.

struct Step {
  std::uint32_t id = 0;
  std::uint64_t size = 0;  ///< 0: the free of `id`.
  std::uint32_t stream = 0;
};

std::vector<Step> random_steps(Prng& random, std::uint32_t streams) {
  std::vector<Step> steps;
  std::vector<Step> live;
  const std::array<std::uint64_t, 6> sizes{512, 40'000, 300_KiB, 1_MiB, 2_MiB + 1, 5_MiB};
  for (std::uint32_t id = 0; id < 80 || !live.empty();) {
    const bool empties = !live.empty() && (id >= 80 || random.chance(0.02));
    if (!empties && (live.empty() || random.chance(0.55))) {
      live.push_back({.id = id++,
                      .size = sizes[random.below(sizes.size())],
                      .stream = static_cast<std::uint32_t>(random.below(streams))});
      steps.push_back(live.back());
      continue;
    }
    do {
      std::swap(live[random.below(live.size())], live.back());
      // One free in eight is made on some stream.
      const auto on = random.chance(0.125) ? static_cast<std::uint32_t>(random.below(streams))
                                           : live.back().stream;
      steps.push_back({.id = live.back().id, .stream = on});
      live.pop_back();
    } while (empties && !live.empty());
  }
  return steps;
}

/// Its streams are in the order of their first requests.
PoolPlan plan_of(const std::vector<Step>& steps) {
  std::vector<std::uint32_t> streams;
  for (const auto& step : steps) {
    if (step.size > 0 && std::find(streams.begin(), streams.end(), step.stream) == streams.end())
      streams.push_back(step.stream);
  }
  PoolPlan plan;
  for (const auto stream : streams) {
    std::vector<PlannedRequest> requests;
    std::map<std::uint32_t, std::size_t> live;
    for (const auto& step : steps) {
      if (step.size == 0) {
        const auto found = live.find(step.id);
        if (found != live.end())
          requests[found->second].end = static_cast<std::uint32_t>(requests.size());
      } else if (step.stream == stream) {
        live[step.id] = requests.size();
        requests.push_back({step.size});
      }
    }
    plan.streams.push_back(lay_out(requests, 512, stream == 0));
  }
  return plan;
}

std::vector<Step> mutated(Prng& random, std::vector<Step> steps) {
  for (auto changes = random.between(1, 6); changes > 0; --changes) {
    const auto at = random.below(steps.size());
    auto& step = steps[at];
    switch (random.below(4)) {
      case 0:
        if (step.size > 0) step.size += 512 * random.between(1, 9000);
        break;
      case 1:  // another stream; each id is still freed after it was made
        step.stream = static_cast<std::uint32_t>(random.below(3));
        break;
      case 2:  // a free comes later
        if (step.size == 0) {
          const auto later = step;
          steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
          steps.insert(
              steps.begin() + static_cast<std::ptrdiff_t>(random.between(at, steps.size())), later);
        }
        break;
      default:  // a request that nobody planned, freed at once
        const Step extra{.id = 1000 + static_cast<std::uint32_t>(changes), .size = 77'000};
        const Step its_free{.id = extra.id};
        const auto place = steps.begin() + static_cast<std::ptrdiff_t>(at);
        steps.insert(steps.insert(place, its_free), extra);
        break;
    }
  }
  return steps;
}

std::uint64_t no_event_here() noexcept { return 0; }

class PlannedProgram {
 public:
  PlannedProgram(const std::string& spec, std::uint64_t seed) {
    platform_ = *open_platform(
        "sim:costs=none,capacity=1GiB,order=random,seed=" + std::to_string(seed), {});
    opened_ = checker_.watch(*platform_->open(0), 0);
    driver_ = std::make_unique<ForwardingDriver>(*opened_.driver, hook_);
    EXPECT_TRUE(device().ctx_push_current());
    manager_ = *find_manager(spec)->make({.driver = driver_.get(),
                                          .runtime = nullptr,
                                          .clock = &platform_->clock(),
                                          .observer = &observer_});
    EXPECT_TRUE(manager_->initialize());
    streams_ = {{},
                *device().stream_create(StreamKind::non_blocking),
                *device().stream_create(StreamKind::non_blocking)};
  }
  ~PlannedProgram() {
    live_.clear();
    manager_.reset();
    EXPECT_TRUE(checker_.take_found().empty());
  }

  /// Runs the steps with work in all memory from its birth to its end.
  void run(const std::vector<Step>& steps, bool looks) {
    for (const auto& step : steps) {
      const auto stream = streams_[step.stream];
      if (step.size == 0) {
        end(step.id, stream);
      } else {
        begin(step.id, step.size, stream);
      }
      if (looks && !::testing::Test::HasFailure()) expect_sound(*manager_, live());
      ASSERT_TRUE(checker_.take_found().empty());
    }
    EXPECT_TRUE(live_.empty());
  }
  Followed followed() { return test::followed(*manager_); }
  std::uint64_t held() { return device().held_bytes(); }

 private:
  struct Piece {
    MemoryPointer memory;
    StreamHandle stream{};
    std::uint8_t content = 0;
    std::uint32_t number = 0;
  };
  Driver& device() { return *opened_.driver; }
  std::map<std::uint64_t, std::uint64_t> live() const {
    std::map<std::uint64_t, std::uint64_t> all;
    for (const auto& [id, piece] : live_)
      all[piece.memory.device_pointer().value] = piece.memory.size();
    return all;
  }
  void begin(std::uint32_t id, std::uint64_t size, StreamHandle stream) {
    auto made = manager_->memalloc(size, stream);
    ASSERT_TRUE(made) << describe(made.error());
    const auto number = ++made_;
    const auto content = static_cast<std::uint8_t>(number % 251 + 1);
    checker_.allocated(0, number, made->device_pointer(), size, stream);
    ASSERT_TRUE(device().memset_d8_async(made->device_pointer(), content, size, stream));
    live_[id] = {*std::move(made), stream, content, number};
  }
  void end(std::uint32_t id, StreamHandle stream) {
    auto piece = std::move(live_.at(id));
    live_.erase(id);
    if (stream != piece.stream) {  // as a program must
      const auto event = *device().event_create();
      EXPECT_TRUE(device().event_record(event, piece.stream));
      EXPECT_TRUE(device().stream_wait_event(stream, event));
      EXPECT_TRUE(device().event_destroy(event));
      checker_.used(0, piece.number, piece.memory.device_pointer(), stream);
    }
    std::array<std::byte, 1> last{};
    EXPECT_TRUE(device().stream_synchronize(piece.stream));
    EXPECT_TRUE(
        device().memcpy_dtoh(last, piece.memory.device_pointer() + (piece.memory.size() - 1)));
    EXPECT_EQ(std::to_integer<std::uint8_t>(last[0]), piece.content);
    checker_.ending(0, piece.number, piece.memory.device_pointer(), stream);
    EXPECT_TRUE(piece.memory.free(stream));
  }

  std::unique_ptr<Platform> platform_;
  stream_order::Checker checker_{&no_event_here};
  OpenedDevice opened_;
  CountingHook hook_;
  std::unique_ptr<ForwardingDriver> driver_;
  RecordingObserver observer_;
  std::unique_ptr<MemoryManager> manager_;
  std::vector<StreamHandle> streams_;
  std::map<std::uint32_t, Piece> live_;
  std::uint32_t made_ = 0;
};

TEST(PoolPlannedProperty, AnyProgramIsServedAsPlannedAndAnyOtherSoundlyWithoutHazards) {
  std::uint64_t requests = 0, served_again = 0, deviations = 0;
  for (std::uint64_t seed = 1; seed <= 120 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    const auto streams = static_cast<std::uint32_t>(random.between(1, 3));
    const auto steps = random_steps(random, streams);
    const auto plan = plan_of(steps);
    const auto* const backing = random.chance(0.3) ? ",backing=cumem" : "";
    PlannedProgram program("pool:plan=" + written(plan) + backing, seed);
    const bool looks = seed % 4 == 0;

    for (auto pass = 1u; pass <= 2; ++pass) {
      program.run(steps, looks);
      EXPECT_EQ(program.followed().served, pass * 80);
      EXPECT_EQ(program.followed().left, 0u);
    }
    std::uint64_t planned = 0;
    for (const auto& stream : plan.streams) planned += stream.bytes;
    EXPECT_EQ(program.held(), planned);

    for (int pass = 0; pass < 3; ++pass) program.run(mutated(random, steps), looks);
    const auto before = program.followed();
    program.run(steps, looks);
    requests += 80;
    served_again += program.followed().served - before.served;
    deviations += before.left;
  }
  EXPECT_GT(deviations, 200u);
  EXPECT_GT(served_again, requests * 9 / 10) << "after a deviation the plan is followed again";
}

/// Weights, then the same requests again and again; in each period some of a few bytes, which end
/// many periods later.
struct Periods {
  std::vector<Step> steps;
  PoolPlan plan;
};
Periods random_periods(Prng& random, std::uint32_t count) {
  auto period = random_steps(random, 1);
  for (auto kept = random.between(1, 3); kept > 0; --kept) {
    const auto at = period.begin() + static_cast<std::ptrdiff_t>(random.below(period.size()));
    period.insert(at, {.id = 200 + static_cast<std::uint32_t>(kept), .size = 4 * kept});
  }
  std::vector<PlannedRequest> requests{{3_MiB}};
  std::map<std::uint32_t, std::size_t> live;
  for (const auto& step : period) {
    if (step.size > 0) {
      live[step.id] = requests.size();
      requests.push_back({step.size});
    } else {
      requests[live.at(step.id)].end = static_cast<std::uint32_t>(requests.size());
    }
  }
  Periods made;
  made.plan.streams.push_back(lay_out(requests));
  made.plan.streams[0].period_begin = 1;

  std::vector<std::uint32_t> kept;
  made.steps.push_back({.id = 1, .size = 3_MiB});
  for (std::uint32_t number = 1; number <= count; ++number) {
    for (auto step : period) {
      const bool is_kept = step.id > 200;
      step.id += 1000 * number;
      if (is_kept) kept.push_back(step.id);
      made.steps.push_back(step);
      if (!kept.empty() && random.chance(0.01)) {
        std::swap(kept[random.below(kept.size())], kept.back());
        made.steps.push_back({.id = kept.back()});
        kept.pop_back();
      }
    }
  }
  for (const auto id : kept) made.steps.push_back({.id = id});
  made.steps.push_back({.id = 1});
  return made;
}

TEST(PoolPlannedProperty, AnyPeriodIsServedAsPlannedBesideWhatOutlivesIt) {
  for (std::uint64_t seed = 1; seed <= 40 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed);
    const auto made = random_periods(random, 5);
    PlannedProgram program("pool:plan=" + written(made.plan), seed);
    program.run(made.steps, seed % 4 == 0);
    EXPECT_EQ(program.followed().served, 1u + 5 * 80);
    EXPECT_EQ(program.followed().left, 0u);
    EXPECT_LE(program.held(), made.plan.streams[0].bytes + 2_MiB);
    for (int pass = 0; pass < 2; ++pass) program.run(mutated(random, made.steps), seed % 4 == 0);
  }
}

}  // namespace
}  // namespace emm::test
