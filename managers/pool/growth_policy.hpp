#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"

/// When an arena may ask the driver for more memory, and in which sizes: pure functions of what the
/// arena has seen. They know no driver, no lock and no block. Sizes are bytes.
namespace emm::pool::growth {

/// Every number that decides what the pool holds, stitches and gives up. On an H200, mapping a span
/// takes 22 us whatever its size, each growth another 15 us, and the bookkeeping of a request 30
/// ns. So few large spans are fast. Many small spans save memory, since free memory in the middle
/// of a span cannot be stitched. The measurements that chose the numbers are in docs/notes/pool.md.
struct Constants {
  // How much may be reserved beyond the peak.
  std::uint64_t slack_divisor = 64;        ///< The slack is a 64th of that peak, plus slack_least.
  std::uint64_t slack_least = 4_MiB;       ///< Added to the 64th.
  std::uint64_t slack_small_pool = 7_MiB;  ///< While the peak is small, the slack is up to this.
  std::uint64_t small_pool = 384_MiB;      ///< Below, a pool is small.
  // While stitching goes on, the slack doubles after a number of rounds. In a round every span is
  // stitched once. A fixed number of stitched spans comes on top, so that small arenas do not
  // double soon. The first line is for what this generation stitched of the active spans, the
  // second for what was stitched in vain of all spans.
  std::uint64_t slack_rounds = 2, slack_extra = 16;
  std::uint64_t slack_vain_rounds = 4, slack_vain_extra = 64;
  std::uint64_t slack_doublings_most = 5;

  // How large a span is.
  std::uint64_t span_least = 8_MiB;
  std::uint64_t span_most = 64_MiB;
  std::uint64_t span_divisor = 128;  ///< A span is a 128th of the active bytes.
  // The same for an arena that stitches often: mapping is then most of what its requests cost.
  std::uint64_t requests_per_mapped_span =
      8;                                    ///< Often is more than one span for this many requests.
  std::uint64_t large_span_least = 64_MiB;  ///< Shared by all arenas.
  std::uint64_t large_span_most = 96_MiB;
  std::uint64_t large_span_divisor = 24;

  // How large a growth may come as one span.
  std::uint64_t single_span_of_small_pool = 128_MiB;  ///< Shared by all arenas.
  std::uint64_t single_span_divisor = 50;
  std::uint64_t inner_span_divisor = 16;  ///< In the middle of a large growth: a 16th of it.

  // backing=cumem: slabs that cannot be stitched.
  std::uint64_t slab_divisor = 10;
  std::uint64_t slab_most_while_small = 16_MiB;
  std::uint64_t slabs_left_least =
      8;  ///< With room for fewer slabs, a slab is as large as the request.
  std::uint64_t slab_excess_divisor =
      16;  ///< Idle slabs are released first if slabs exceed the peak by a 16th.

  // When free pieces are stitched. A mapping costs 22 us for each span, and memory of the driver.
  std::uint64_t stitch_from = 1_MiB;           ///< A smaller request is not worth a mapping.
  std::uint64_t stitched_part_least = 64_KiB;  ///< Nor is a smaller piece, until memory runs out.
  std::uint64_t mapped_spans_most = 65536;     ///< All alias mappings together have no more.
  std::uint64_t requests_remembered = 1024;    ///< The next generation may repeat so many.

  std::uint64_t deferred_frees_at_once =
      64;  ///< The most events that a stream waits for at a time.
  std::uint64_t ask_device_from =
      256_MiB;  ///< cuMemGetInfo takes 4 us: smaller growths do without it.

  // Memory that passes between streams.
  std::uint64_t arenas_kept = 16;          ///< With so many, a new stream is given an idle one.
  std::uint64_t ends_always_noted = 8;     ///< How often an arena notes that it is empty at first.
  std::uint64_t requests_per_note = 64;    ///< Later it does after so many: a note takes 325 ns.
  std::uint64_t requests_lending = 4096;   ///< An arena lends for so many after it was asked.
  std::uint64_t bytes_per_note = 256_KiB;  ///< While it lends, it notes when so much was freed.
  std::uint64_t frees_tracked = 64;        ///< After more frees without a note nothing is lent.
  std::uint64_t wait_excess_divisor = 10;  ///< Above the sum of the arenas' peaks and a tenth of
                                           ///< it, a stream waits before the pool grows.
  /// How many spans may be unmapped for one arena: so many, and one for so many of its requests.
  /// Beyond, the others keep their peak, a 64th of it and 2 MiB.
  std::uint64_t borrowing_calls_at_first = 128;
  std::uint64_t requests_per_borrowing_call = 2048;
  std::uint64_t kept_divisor = 64;
  std::uint64_t kept_least = 2_MiB;

  // Addresses are plentiful, but limited.
  std::uint64_t address_range = 64_GiB;
  std::uint64_t arenas_with_wide_ranges = 64;  ///< Beyond this, arenas reserve less at a time.
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
  /// Spans of the alias mappings that this generation has used. Mappings of earlier generations
  /// count, so that repeated requests meet the same decisions.
  std::uint64_t stitched_spans = 0;
  /// Spans of alias mappings made in vain: by generations that reached no higher peak than an
  /// earlier one.
  std::uint64_t stitched_in_vain = 0;
  std::uint64_t sharers = 1;  ///< Arenas that have addresses; at least 1.
};

/// How much an arena may hold beyond its peak; small, so that reserved stays near live. A program
/// whose requests never repeat would stitch for ever. So the slack doubles each time the active
/// spans have been stitched twice in this generation, and each time all spans have been stitched
/// four times in vain.
std::uint64_t slack(const Usage& usage) noexcept;

/// Answers whether the arena may hold `bytes` more to serve a request for `wanted`.
bool affords(const Usage& usage, std::uint64_t bytes, std::uint64_t wanted) noexcept;

/// Answers whether stitching is most of what this arena's requests cost.
bool stitches_often(const Usage& usage) noexcept;

/// The size of a span, in whole pages.
std::uint64_t span_size(const Usage& usage) noexcept;

/// A growth up to this size comes as one span.
std::uint64_t single_span_limit(const Usage& usage) noexcept;

/// The span sizes for a growth of `bytes`, which are whole pages. Up to `single_span_limit` it is
/// one span; else spans get smaller towards both ends, where blocks of other sizes will begin and
/// end.
std::vector<std::uint64_t> span_sizes(const Usage& usage, std::uint64_t bytes,
                                      std::uint64_t single_span_limit);

/// backing=cumem: the size of a slab that serves more than one request.
std::uint64_t slab_size(const Usage& usage) noexcept;

/// backing=cumem: the most that the arena may hold while it serves `wanted`. Above it, the arena
/// releases idle slabs.
std::uint64_t slab_limit(const Usage& usage, std::uint64_t wanted) noexcept;

/// The size of the address range that an arena reserves to hold `bytes`.
std::uint64_t address_range_size(std::uint64_t bytes, std::uint64_t sharers) noexcept;

}  // namespace emm::pool::growth
