#include "inspect/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bounds/validate.hpp"
#include "random_recording.hpp"
#include "recorded.hpp"

namespace emm::inspect {
namespace {

using allocators::PoolPlan;

std::string alloc(int id, std::uint64_t size, std::string_view stream = "0") {
  return "{\"op\":\"memalloc\",\"id\":" + std::to_string(id) + ",\"size\":" + std::to_string(size) +
         ",\"stream\":\"" + std::string(stream) + "\"}\n";
}
std::string free(int id) { return "{\"op\":\"free\",\"id\":" + std::to_string(id) + "}\n"; }

Planned plan_of(const std::string& lines,
                trace::CountedRequests asked = trace::CountedRequests::all) {
  const auto recording = recorded(lines);
  return plan(trace::Lifetimes(recording->trace()), ManualClock(), 1, 512, asked);
}

/// The requests of a plan as they come: a period again and again. No two that live together may
/// share a byte, and a place that comes again must be free.
void expect_sound(const PoolPlan::Stream& stream, std::uint32_t passes = 3) {
  const auto count = stream.count();
  const auto length = count - stream.period_begin;
  std::vector<bounds::Buffer> buffers;
  bounds::Layout layout;
  const auto last = count + (passes - 1) * length;
  for (std::uint32_t at = 0; at < last; ++at) {
    const auto slot = at < count ? at : stream.period_begin + (at - count) % length;
    if (stream.lies_elsewhere(slot)) continue;
    const auto end = stream.ends[slot];
    bounds::Buffer buffer{
        .lower = at, .upper = last, .size = (stream.sizes[slot] + 511) / 512 * 512};
    buffer.alignment = 512;
    if (end != PoolPlan::kNever) {
      buffer.upper = at + (end - slot);
      if (slot >= stream.period_begin) {
        EXPECT_LE(end - slot, length);
      }
    }
    buffers.push_back(buffer);
    layout.offsets.push_back(stream.offsets[slot]);
    layout.height = std::max(layout.height, stream.offsets[slot] + buffer.size);
  }
  EXPECT_EQ(bounds::first_violation(buffers, layout, stream.bytes), std::nullopt);
}

TEST(Plan, PlacesEachStreamByItselfInThePeakOfItsOwn) {
  const auto planned = plan_of(alloc(1, 3 << 20, "a") + alloc(2, 1 << 20, "b") + free(1) +
                               alloc(3, 2 << 20, "a") + alloc(4, 1 << 20, "a"));
  const auto& streams = planned.plan.streams;
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0].name, "a");
  EXPECT_EQ(streams[0].sizes, (std::vector<std::uint64_t>{3 << 20, 2 << 20, 1 << 20}));
  EXPECT_EQ(streams[0].ends, (std::vector<std::uint32_t>{1, PoolPlan::kNever, PoolPlan::kNever}));
  EXPECT_EQ(streams[0].bytes, 4u << 20);
  EXPECT_EQ(streams[0].peak_live_bytes, 3u << 20);
  EXPECT_EQ(streams[1].bytes, 2u << 20);
  for (const auto& stream : streams) expect_sound(stream);
}

TEST(Plan, OfAnyRecordingIsSoundAndThrifty) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    const auto planned = plan_of(random_recording(seed, 400).lines);
    for (const auto& stream : planned.plan.streams) expect_sound(stream);
  }
}

/// Weights, then `steps` times the same three requests, of which one lives into the next step.
std::string training(int steps) {
  auto lines = alloc(1, 8 << 20);
  for (int step = 0; step < steps; ++step) {
    const auto id = 10 * (step + 1);
    lines += alloc(id, 1 << 20) + alloc(id + 1, 4 << 20);
    if (step > 0) lines += free(id - 10 + 2);
    lines += alloc(id + 2, 2 << 20) + free(id) + free(id + 1);
  }
  return lines;
}

TEST(Plan, OfAProgramThatRepeatsHasOnePeriod) {
  const auto planned = plan_of(training(20));
  ASSERT_EQ(planned.plan.streams.size(), 1u);
  const auto& stream = planned.plan.streams[0];
  EXPECT_EQ(planned.streams[0].requests, 61u);
  EXPECT_TRUE(stream.repeats());
  EXPECT_EQ(stream.count() - stream.period_begin, 3u);
  EXPECT_LE(stream.count(), 7u);
  EXPECT_LE(stream.bytes, stream.peak_live_bytes + (2u << 20));
  expect_sound(stream, 6);
}

TEST(Plan, OfTwoStepsOrOfStepsThatLeakHasAllRequests) {
  EXPECT_FALSE(plan_of(training(1)).plan.streams[0].repeats());
  std::string leaking;
  for (int step = 0; step < 20; ++step) leaking += alloc(step, 1 << 20);
  EXPECT_FALSE(plan_of(leaking).plan.streams[0].repeats());
}

/// Weights and a first step that makes as much state; then steps in which gradients live until
/// after the next forward pass, and something of each step is kept for ever, or for some steps.
std::string real_training(int steps, std::uint64_t kept, const std::string& after = "",
                          std::size_t keeps_last = ~std::size_t{0}) {
  constexpr int kLayers = 6;
  int id = 1;
  std::string lines;
  const auto ask = [&](std::uint64_t size) {
    lines += alloc(id, size);
    return id++;
  };
  for (int layer = 0; layer < kLayers; ++layer) ask(4 << 20);
  std::vector<int> gradients, losses;
  for (int step = 0; step < steps; ++step) {
    std::vector<int> activations;
    for (int layer = 0; layer < kLayers; ++layer) activations.push_back(ask(3 << 20));
    losses.push_back(ask(kept));
    if (losses.size() > keeps_last) {
      lines += free(losses.front());
      losses.erase(losses.begin());
    }
    for (const auto gradient : gradients) lines += free(gradient);
    gradients.clear();
    for (int layer = 0; layer < kLayers; ++layer) {
      gradients.push_back(ask(4 << 20));
      lines += free(activations.back());
      activations.pop_back();
    }
    for (int layer = 0; step == 0 && layer < kLayers; ++layer) ask(4 << 20);
    lines += free(ask(2 << 20));
  }
  return lines + after;
}

TEST(Plan, OfATrainingThatKeepsALittleOfEachStepHasOnePeriodWithoutIt) {
  const auto planned = plan_of(real_training(6, 4));
  const auto& stream = planned.plan.streams[0];
  ASSERT_TRUE(stream.repeats());
  ASSERT_EQ(stream.count() - stream.period_begin, 14u);
  auto elsewhere = 0;
  for (auto request = stream.period_begin; request < stream.count(); ++request) {
    elsewhere += stream.lies_elsewhere(request);
    EXPECT_EQ(stream.lies_elsewhere(request), stream.sizes[request] == 4);
  }
  EXPECT_EQ(elsewhere, 1);
  EXPECT_LE(stream.bytes, stream.peak_live_bytes + stream.peak_live_bytes / 100 + (2u << 20))
      << "gradients have the places of those of the step before, and no others";
  expect_sound(stream, 6);
}

TEST(Plan, OfFiveStepsIsThatOfManyWhereTheFirstIsNotLikeTheOthers) {
  const auto five = plan_of(real_training(5, 4)), many = plan_of(real_training(20, 4));
  ASSERT_TRUE(five.plan.streams[0].repeats());
  EXPECT_EQ(five.plan.streams[0].sizes, many.plan.streams[0].sizes);
  EXPECT_EQ(five.plan.streams[0].ends, many.plan.streams[0].ends);
}

TEST(Plan, WhatEndsSomeDayIsNotWhatEveryPeriodBeginsWith) {
  for (const std::size_t keeps_last : {3, 5}) {
    const auto planned = plan_of(real_training(24, 4, "", keeps_last));
    const auto& stream = planned.plan.streams[0];
    ASSERT_TRUE(stream.repeats());
    for (std::uint32_t request = 0; request < stream.period_begin; ++request) {
      if (stream.sizes[request] == 4) {
        EXPECT_NE(stream.ends[request], PoolPlan::kNever);
      }
    }
    expect_sound(stream, 6);
  }
}

TEST(Plan, OfATrainingThatKeepsMuchOfEachStepHasAllRequests) {
  EXPECT_FALSE(plan_of(real_training(6, 1 << 20)).plan.streams[0].repeats());
}

TEST(Plan, LeavesOutWhatAProgramAsksForAfterItsLastStep) {
  std::string after;
  for (int id = 900; id < 903; ++id) after += alloc(id, 7000 + id) + free(id);
  const auto planned = plan_of(real_training(6, 4, after));
  const auto& stream = planned.plan.streams[0];
  ASSERT_TRUE(stream.repeats());
  EXPECT_EQ(stream.count() - stream.period_begin, 14u);
  EXPECT_EQ(std::count_if(stream.sizes.begin(), stream.sizes.end(),
                          [](auto size) { return size > 7000 && size < 8000; }),
            0);
  expect_sound(stream, 6);

  std::string long_after;
  for (int id = 900; id < 1200; ++id) long_after += alloc(id, 7000 + id) + free(id);
  EXPECT_EQ(plan_of(real_training(6, 4, long_after)).plan.streams[0].count(),
            planned.streams[0].requests - 3 + 300)
      << "so many are a part of the program";
}

TEST(Plan, LeavesOutNothingThatNeedsMoreThanTheSteps) {
  std::string evaluation;
  for (int id = 900; id < 940; ++id) evaluation += alloc(id, (4 << 20) + 512 * id);
  const auto planned = plan_of(real_training(6, 4, evaluation));
  EXPECT_EQ(planned.plan.streams[0].count(), planned.streams[0].requests);
  EXPECT_LE(planned.plan.streams[0].peak_live_bytes, planned.plan.streams[0].bytes);

  // What is kept of each step is little beside what comes last, and much beside the steps.
  std::string lines;
  for (int step = 0; step < 10; ++step)
    lines += alloc(2 * step, 1 << 20) + alloc(2 * step + 1, 4 << 20) + free(2 * step);
  lines += alloc(900, std::uint64_t{10} << 30);
  EXPECT_FALSE(plan_of(lines).plan.streams[0].repeats());
}

TEST(Plan, APlaceIsFreeForAsLongAsAnyRepetitionNeedsIt) {
  std::string lines;
  for (int step = 0; step < 10; ++step) {
    const auto id = 10 * (step + 1);
    lines += alloc(id, 1 << 20) + (step == 4 ? "" : free(id)) + alloc(id + 1, 2 << 20) +
             (step == 4 ? free(id) : "") + free(id + 1);
  }
  const auto planned = plan_of(lines);
  const auto& stream = planned.plan.streams[0];
  ASSERT_EQ(stream.count(), 2u);
  EXPECT_EQ(stream.ends[0], 2u) << "once it was freed after the second request";
  expect_sound(stream, 6);
}

TEST(Plan, ARefusedRequestHasAPlaceForItsMoment) {
  const auto lines =
      alloc(1, 1 << 20) +
      "{\"op\":\"memalloc\",\"id\":2,\"size\":4194304,\"stream\":\"0\",\"result\":\"oom\"}\n" +
      alloc(3, 1 << 20);
  const auto planned = plan_of(lines);
  EXPECT_EQ(planned.plan.streams[0].sizes, (std::vector<std::uint64_t>{1 << 20, 4 << 20, 1 << 20}));
  EXPECT_EQ(planned.plan.streams[0].ends[1], 2u);
  EXPECT_EQ(plan_of(lines, trace::CountedRequests::served).plan.streams[0].count(), 2u);
}

}  // namespace
}  // namespace emm::inspect
