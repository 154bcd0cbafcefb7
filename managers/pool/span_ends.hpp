#pragma once

#include <cstdint>
#include <vector>

#include "managers/pool/block_map.hpp"
#include "managers/pool/span_list.hpp"

namespace emm::pool {

/// What is free at the ends of an arena's active spans. Only that can be stitched, since an alias
/// mapping maps whole spans, one behind the other. A free block in the middle of a span cannot be
/// stitched.
///
/// Holds the result of the last scan() and of each add() since. It keeps its capacity, so that warm
/// scans take nothing from the heap.
class SpanEnds {
 public:
  struct Ends {
    std::uint64_t low = 0;   ///< Bytes that are free from the start of the span on.
    std::uint64_t high = 0;  ///< Bytes that are free up to the end of the span.
    std::uint32_t low_block = kNone;
    std::uint32_t high_block = kNone;
  };
  /// A free block that reaches an end of a span, and the spans that it begins and ends in.
  struct FreeRun {
    std::uint32_t block = kNone;
    std::uint32_t first_span = kNone;
    std::uint32_t last_span = kNone;
  };

  /// Looks at all free blocks of `least` bytes or more.
  void scan(const BlockMap& blocks, const SpanList& spans, std::uint64_t least);
  /// Looks at one more free block.
  void add(const BlockMap& blocks, const SpanList& spans, std::uint32_t block);
  /// Forgets everything. To be called when spans get new indexes.
  void clear() noexcept;

  const Ends& of(std::uint32_t span) const noexcept { return ends_[span]; }
  /// The free runs that scan() found.
  const std::vector<FreeRun>& runs() const noexcept { return runs_; }
  std::uint64_t metadata_bytes() const noexcept;

 private:
  FreeRun look_at(const BlockMap& blocks, const SpanList& spans, std::uint32_t block);

  std::vector<Ends> ends_;  ///< By span.
  std::vector<FreeRun> runs_;
  std::vector<std::uint32_t> touched_;  ///< The spans whose ends_ the next scan() must clear.
};

}  // namespace emm::pool
