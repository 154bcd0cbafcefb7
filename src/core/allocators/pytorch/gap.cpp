#include "allocators/pytorch/gap.hpp"

#include <array>
#include <unordered_map>

#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/policy.hpp"

namespace emm::allocators::pytorch {
namespace {

GapCause cause_of_free(const Settings& settings, const Block& block, const Wanted& wanted) {
  const auto& pool = *block.pool;
  if (pool.id != wanted.pool->id) {
    if (!pool.id.is_default()) return GapCause::private_pool;
    return pool.small ? GapCause::small_pool : GapCause::large_pool;
  }
  if (block.stream != wanted.stream) return GapCause::other_stream;
  if (pool.small != wanted.pool->small)
    return pool.small ? GapCause::small_pool : GapCause::large_pool;
  if (block.size < wanted.size) return GapCause::too_small;
  return settings.max_split_size != kNoLimit ? GapCause::kept_whole : GapCause::too_small;
}

/// The requests of a recording, by allocation.
class Requests {
 public:
  explicit Requests(const Recording& recording) : all_(recording.allocations()) {
    for (const auto& step : recording.steps()) {
      if (step.kind == Step::Kind::alloc)
        all_[step.allocation] = {.size = step.size, .event = step.event};
    }
  }

  Gap gap(const Settings& settings, const Step& step, const Heap& heap,
          const Wanted& wanted) const {
    Gap gap{.event = step.event, .reserved = heap.reserved(), .live = 0, .parts = {}};
    std::array<GapPart, kGapCauses> whole{};
    const auto add = [&](GapCause cause, std::uint64_t bytes) {
      auto& part = whole[static_cast<std::size_t>(cause)];
      part.bytes += bytes;
      ++part.blocks;
    };
    const auto add_of = [&](GapCause cause, std::uint64_t bytes, std::uint64_t of) {
      if (bytes != 0)
        gap.parts.push_back({.cause = cause, .bytes = bytes, .blocks = 1, .event = of});
    };
    for (const auto& [address, segment] : heap.segments()) {
      for (const auto* block = segment->first; block != nullptr; block = block->after) {
        if (!block->mapped) continue;
        if (block->state == Block::State::pending) {
          add(GapCause::waiting_for_event, block->size);
        } else if (block->state == Block::State::free) {
          add(cause_of_free(settings, *block, wanted), block->size);
        } else {
          const auto& request = all_[block->owner];
          const auto rounded = std::min(round_size(settings, request.size), block->size);
          gap.live += request.size;
          add_of(GapCause::rounding, rounded - request.size, request.event);
          add_of(GapCause::unsplit_remainder, block->size - rounded, request.event);
        }
      }
    }
    for (std::size_t i = 0; i < kGapCauses; ++i) {
      if (whole[i].bytes == 0) continue;
      whole[i].cause = static_cast<GapCause>(i);
      gap.parts.push_back(whole[i]);
    }
    return gap;
  }

 private:
  struct Request {
    std::uint64_t size = 0, event = 0;
  };
  std::vector<Request> all_;
};

}  // namespace

std::string_view name(GapCause cause) noexcept {
  constexpr std::array<std::string_view, kGapCauses> kNames{
      "rounding",
      "unsplit remainder",
      "waiting for an event",
      "free in a private pool",
      "free on another stream",
      "free in the small pool",
      "free in the large pool",
      "free, in smaller pieces",
      "free, and kept whole by max_split_size_mb"};
  return kNames[static_cast<std::size_t>(cause)];
}

std::optional<Gap> gap_at(const Recording& recording, const Settings& settings,
                          std::uint64_t event) {
  const Requests requests(recording);
  std::optional<Gap> found;
  const HeapProbe look{.event = event,
                       .at = [&](const Step& step, const Heap& heap, const Wanted& wanted) {
                         found = requests.gap(settings, step, heap, wanted);
                       }};
  check_one_step(recording, settings, &look);
  return found;
}

void each_gap(const Recording& recording, const Settings& settings,
              const std::function<void(const Gap&)>& found) {
  const Requests requests(recording);
  const HeapProbe look{.event = {},
                       .at = [&](const Step& step, const Heap& heap, const Wanted& wanted) {
                         found(requests.gap(settings, step, heap, wanted));
                       }};
  check_one_step(recording, settings, &look);
}

}  // namespace emm::allocators::pytorch
