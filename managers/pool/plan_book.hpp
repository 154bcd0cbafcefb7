#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "allocators/pool_plan.hpp"
#include "managers/pool/plan_follower.hpp"

namespace emm::pool {

/// The plan that a pool was given, by stream. A recording names streams by other names than the
/// program does now, so an arena takes the first stream whose first request is its own first
/// request.
///
/// Any thread may call.
class PlanBook {
 public:
  /// Holds the streams of one device of the plan. A plan of one device is for any device. What a
  /// stream needs is made here, so that the first request need not wait for it.
  PlanBook(std::shared_ptr<const allocators::PoolPlan> plan, std::uint32_t device)
      : plan_(std::move(plan)) {
    const auto& all = plan_->streams;
    const bool is_of_one = std::all_of(all.begin(), all.end(), [&](const auto& stream) {
      return stream.device == all.front().device;
    });
    for (const auto& stream : all) {
      if (is_of_one || stream.device == device)
        left_.push_back(std::make_unique<PlanFollower>(stream, plan_->alignment));
    }
  }

  /// The way along the plan for an arena whose first request is for `size` bytes. Null if there is
  /// none left.
  std::unique_ptr<PlanFollower> take(bool is_default_stream, std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    for (auto& follower : left_) {
      if (follower == nullptr || follower->is_of_default_stream() != is_default_stream ||
          follower->first_size() != size)
        continue;
      return std::exchange(follower, nullptr);
    }
    return nullptr;
  }

 private:
  const std::shared_ptr<const allocators::PoolPlan> plan_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PlanFollower>> left_;  // null once taken
};

}  // namespace emm::pool
