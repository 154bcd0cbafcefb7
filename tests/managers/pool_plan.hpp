#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "allocators/pool_plan.hpp"

namespace emm::test {

using allocators::PoolPlan;

/// A request of a plan: its size, and the number of requests before its memory is freed.
struct PlannedRequest {
  std::uint64_t size = 0;
  std::uint32_t end = PoolPlan::kNever;
};

/// Places each request at the lowest offset that is free while it lives. Knows no solver.
inline PoolPlan::Stream lay_out(const std::vector<PlannedRequest>& requests,
                                std::uint64_t alignment = 512, bool is_default = true) {
  PoolPlan::Stream stream;
  stream.name = is_default ? "0" : "a";
  stream.is_default = is_default;
  stream.period_begin = static_cast<std::uint32_t>(requests.size());
  const auto rounded = [](std::uint64_t size, std::uint64_t unit) {
    return (size + unit - 1) / unit * unit;
  };
  std::uint64_t height = 1;
  for (std::uint32_t at = 0; at < requests.size(); ++at) {
    const auto size = rounded(requests[at].size, alignment);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
    for (std::uint32_t before = 0; before < at; ++before) {
      const auto begin = stream.offsets[before];
      if (requests[before].end > at)
        taken.emplace_back(begin, begin + rounded(requests[before].size, alignment));
    }
    std::sort(taken.begin(), taken.end());
    std::uint64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + size <= begin) break;
      offset = std::max(offset, end);
    }
    stream.sizes.push_back(requests[at].size);
    stream.offsets.push_back(offset);
    stream.ends.push_back(requests[at].end);
    height = std::max(height, offset + size);
  }
  stream.bytes = rounded(height, PoolPlan::kPage);
  return stream;
}

/// Writes a plan where this test alone writes, and returns the path.
inline std::string written(const PoolPlan& plan) {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto path =
      ::testing::TempDir() + "emm_" + test->test_suite_name() + "_" + test->name() + ".plan.json";
  std::ofstream(path, std::ios::binary) << allocators::to_json(plan);
  return path;
}

}  // namespace emm::test
