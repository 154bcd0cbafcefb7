#include "managers/pool/growth_policy.hpp"

#include <algorithm>

#include "managers/pool/backing.hpp"

namespace emm::pool::growth {
namespace {

constexpr auto k = kConstants;

constexpr std::uint64_t whole_pages(std::uint64_t size) noexcept {
  return size & ~(Backing::kPage - 1);
}

std::uint64_t peak_with(const Usage& usage, std::uint64_t wanted) noexcept {
  return std::max(usage.peak, usage.allocated + wanted);
}

}  // namespace

std::uint64_t slack(const Usage& usage) noexcept {
  const auto now = usage.stitched_spans / (k.slack_rounds * usage.active_spans + k.slack_extra);
  const auto in_vain =
      usage.stitched_in_vain / (k.slack_vain_rounds * usage.spans + k.slack_vain_extra);
  const auto doublings = std::min(now + in_vain, k.slack_doublings_most);
  const auto most = usage.peak < k.small_pool ? k.slack_small_pool : k.slack_least;
  const auto fixed = std::clamp(usage.peak / 4, k.slack_least, most);
  return (usage.peak / k.slack_divisor + fixed) << doublings;
}

bool affords(const Usage& usage, std::uint64_t bytes, std::uint64_t wanted) noexcept {
  return usage.active_bytes + bytes <= peak_with(usage, wanted) + slack(usage);
}

bool stitches_often(const Usage& usage) noexcept {
  return k.requests_per_mapped_span * usage.stitched_spans > usage.requests;
}

std::uint64_t span_size(const Usage& usage) noexcept {
  if (stitches_often(usage)) {
    const auto least = std::max(k.span_least, whole_pages(k.large_span_least / usage.sharers));
    return std::clamp(whole_pages(usage.active_bytes / k.large_span_divisor), least,
                      k.large_span_most);
  }
  return std::clamp(whole_pages(usage.active_bytes / k.span_divisor), k.span_least, k.span_most);
}

std::uint64_t single_span_limit(const Usage& usage) noexcept {
  const bool is_small = usage.active_bytes < k.small_pool;
  const auto of_small_pool = is_small ? k.single_span_of_small_pool / usage.sharers : 0;
  const auto of_large_pool =
      std::min(whole_pages(usage.active_bytes / k.single_span_divisor), k.span_most);
  return std::max({span_size(usage), of_small_pool, of_large_pool});
}

std::vector<std::uint64_t> span_sizes(const Usage& usage, std::uint64_t bytes,
                                      std::uint64_t single_span_limit) {
  if (bytes <= single_span_limit) return {bytes};
  const auto least = span_size(usage);
  const auto most = std::max(2 * least, whole_pages(bytes / k.inner_span_divisor));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t done = 0; done < bytes; done += sizes.back()) {
    const auto left = bytes - done;
    const auto near_start = std::max(least, done);
    const auto near_end = std::max(least, whole_pages(left / 2));
    sizes.push_back(std::min({left, most, near_start, near_end}));
  }
  return sizes;
}

std::uint64_t slab_size(const Usage& usage) noexcept {
  const auto while_small = std::clamp(usage.active_bytes, Backing::kPage, k.slab_most_while_small);
  return std::max(Backing::in_pages(usage.active_bytes / k.slab_divisor), while_small);
}

std::uint64_t slab_limit(const Usage& usage, std::uint64_t wanted) noexcept {
  const auto peak = peak_with(usage, wanted);
  return peak + peak / k.slab_excess_divisor;
}

std::uint64_t address_range_size(std::uint64_t bytes, std::uint64_t sharers) noexcept {
  return std::max(whole_pages(k.address_range / (1 + sharers / k.arenas_with_wide_ranges)), bytes);
}

}  // namespace emm::pool::growth
