#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"

/// When an arena may ask the driver for more memory, and in which sizes: pure functions of what the
/// arena has seen. They know no driver, no lock and no block. Sizes are bytes.
namespace emm::pool::growth {

/// Every number that decides about growth. Measured on an H200: mapping a span takes 22 us whatever
/// its size and each growth 15 us besides, while the bookkeeping of a request takes 30 ns. So few
/// large spans are fast, and many small ones are thrifty: what is free in the middle of a span can
/// be stitched to nothing. The scans that chose the numbers are in docs/notes/pool.md.
struct Constants {
  // How much may be reserved beyond the most that was in use.
  std::uint64_t slack_divisor = 64;        ///< The slack is a 64th of that peak, plus slack_least.
  std::uint64_t slack_least = 4_MiB;       ///< Added to the 64th.
  std::uint64_t slack_small_pool = 7_MiB;  ///< While the peak is small, the slack is up to this.
  std::uint64_t small_pool = 384_MiB;      ///< Below, a pool is small.
  // While stitching goes on, the slack doubles after so many rounds, in each of which every span is
  // stitched once, and a fixed number of stitched spans besides, so that small arenas do not double
  // soon.
  std::uint64_t slack_rounds = 2, slack_extra = 16;  ///< Of active spans, in this generation.
  std::uint64_t slack_vain_rounds = 4, slack_vain_extra = 64;  ///< Of all spans, in vain.
  std::uint64_t slack_doublings_most = 5;

  // How large a span is.
  std::uint64_t span_least = 8_MiB;
  std::uint64_t span_most = 64_MiB;
  std::uint64_t span_divisor = 128;  ///< A span is a 128th of the active bytes.
  // The same for an arena that stitches often: mapping is then most of what its requests cost.
  std::uint64_t requests_per_mapped_span = 8;  ///< More than one span for so many: it does.
  std::uint64_t large_span_least = 64_MiB;     ///< Shared by all arenas.
  std::uint64_t large_span_most = 96_MiB;
  std::uint64_t large_span_divisor = 24;

  // How much comes as one span, whatever its size.
  std::uint64_t single_span_of_small_pool = 128_MiB;  ///< Shared by all arenas.
  std::uint64_t single_span_divisor = 50;
  std::uint64_t inner_span_divisor = 16;  ///< In the middle of a large growth: a 16th of it.

  // backing=cumem: slabs that cannot be stitched.
  std::uint64_t slab_divisor = 10;
  std::uint64_t slab_most_while_small = 16_MiB;
  std::uint64_t slabs_left_least = 8;  ///< With room for fewer, a slab is as large as the request.
  std::uint64_t slab_excess_divisor = 16;  ///< Beyond a 16th above the peak, idle slabs go first.

  // Addresses are plentiful, but not endless.
  std::uint64_t address_range = 64_GiB;
  std::uint64_t arenas_with_wide_ranges = 64;  ///< With more arenas, each reserves less at a time.
};
inline constexpr Constants kConstants{};

/// What the policy knows of an arena. A generation is the time from one moment at which the arena
/// holds no allocation to the next such moment.
struct Usage {
  std::uint64_t allocated = 0;     ///< Bytes in blocks that are handed out now.
  std::uint64_t peak = 0;          ///< The most that `allocated` was in this generation.
  std::uint64_t active_bytes = 0;  ///< Bytes of the spans that requests are served from.
  std::uint64_t active_spans = 0;  ///< The number of those spans.
  std::uint64_t spans = 0;         ///< The number of all spans.
  std::uint64_t requests = 0;      ///< Served in this generation.
  /// Spans of the alias mappings that this generation has used, not only of those that it made: so
  /// the same requests meet the same decisions when they come again.
  std::uint64_t stitched_spans = 0;
  /// Spans of the alias mappings that were made by generations which reached no higher peak than
  /// one before them.
  std::uint64_t stitched_in_vain = 0;
  std::uint64_t sharers = 1;  ///< Arenas that have addresses; at least 1.
};

/// How much an arena may hold beyond its peak, so that reserved stays near live. Where requests
/// never repeat, stitching would go on for ever: the slack doubles for every two times that each
/// active span has been stitched in this generation, and for every four times that each span was
/// in vain.
std::uint64_t slack(const Usage& usage) noexcept;

/// May the arena hold `bytes` more in order to serve a request for `wanted`?
bool affords(const Usage& usage, std::uint64_t bytes, std::uint64_t wanted) noexcept;

/// Is stitching most of what this arena's requests cost?
bool stitches_often(const Usage& usage) noexcept;

/// The size of a span, in whole pages.
std::uint64_t span_size(const Usage& usage) noexcept;

/// A growth of no more than this comes as one span.
std::uint64_t single_span_limit(const Usage& usage) noexcept;

/// The spans that a growth of `bytes`, in whole pages, consists of: one up to `single_span_limit`,
/// else smaller spans towards both ends, where blocks of other sizes will begin and end.
std::vector<std::uint64_t> span_sizes(const Usage& usage, std::uint64_t bytes,
                                      std::uint64_t single_span_limit);

/// backing=cumem: the size of a slab that serves more than one request.
std::uint64_t slab_size(const Usage& usage) noexcept;

/// backing=cumem: what the arena may hold while it serves `wanted`. Beyond, it releases idle slabs.
std::uint64_t slab_limit(const Usage& usage, std::uint64_t wanted) noexcept;

/// How many addresses an arena reserves for a range that is to hold `bytes`.
std::uint64_t address_range_size(std::uint64_t bytes, std::uint64_t sharers) noexcept;

}  // namespace emm::pool::growth
