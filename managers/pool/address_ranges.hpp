#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "managers/pool/backing.hpp"

namespace emm::pool {

/// The address ranges that an arena has reserved for its spans (backing=vmm), and the span of each
/// page. Spans are placed one behind the other in the last range. Knows no driver: the caller
/// reserves the ranges that it adds, and frees those that it takes.
class AddressRanges {
 public:
  struct Range {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    std::vector<std::uint32_t> span_of_page{};
    bool is_abandoned = false;
    /// Spans up to here belong to another arena now, so nothing else is mapped below, and the range
    /// is not freed before the pool ends. 0 if none does.
    std::uint64_t lent_up_to = 0;
    bool holds(std::uint64_t address) const noexcept { return address - base < size; }
  };

  bool is_empty() const noexcept { return ranges_.empty(); }
  void add(std::uint64_t base, std::uint64_t size) {
    ranges_.push_back({.base = base, .size = size});
    next_ = base;
  }
  /// The address of the next span, and how many bytes are left from there.
  std::uint64_t next() const noexcept { return next_; }
  std::uint64_t left() const noexcept {
    return is_empty() ? 0 : ranges_.back().base + ranges_.back().size - next_;
  }
  void advance(std::uint64_t bytes) noexcept { next_ += bytes; }
  /// Gives up the rest of the last range, where the driver may still have something mapped outside
  /// of spans. Nothing else is mapped there, and its addresses are not freed before the arena ends.
  void abandon_last() noexcept {
    ranges_.back().is_abandoned = true;
    next_ = ranges_.back().base + ranges_.back().size;
  }
  bool last_is_abandoned() const noexcept { return !is_empty() && ranges_.back().is_abandoned; }
  bool any_is_abandoned() const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [](const Range& range) { return range.is_abandoned; });
  }

  bool any_is_lent() const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [](const Range& range) { return range.lent_up_to != 0; });
  }
  /// Answers whether `address` is in a range of this arena. A span that another arena has lent is
  /// in none.
  bool holds(std::uint64_t address) const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range& range) { return range.holds(address); });
  }
  /// Notes that `span` belongs to another arena from now on. Spans of other ranges are ignored.
  void lend(const Span& span) noexcept {
    if (!holds(span.address)) return;
    auto& range = range_with(span.address);
    range.lent_up_to = std::max(range.lent_up_to, span.end());
  }

  /// Notes that the pages of `span` belong to the span `index`. Spans of other ranges are ignored.
  void name_pages(const Span& span, std::uint32_t index) {
    if (!holds(span.address)) return;
    auto& range = range_with(span.address);
    const auto first = (span.address - range.base) / Backing::kPage;
    const auto end = first + span.size / Backing::kPage;
    auto& pages = range.span_of_page;
    if (pages.size() < end) pages.resize(end, ~std::uint32_t{0});
    std::fill(pages.begin() + static_cast<std::ptrdiff_t>(first),
              pages.begin() + static_cast<std::ptrdiff_t>(end), index);
  }
  /// The index of the span that holds `address`. REQUIRES: name_pages() has named its page.
  std::uint32_t span_at(std::uint64_t address) const noexcept {
    auto range = ranges_.rbegin();
    while (!range->holds(address)) ++range;
    return range->span_of_page[(address - range->base) / Backing::kPage];
  }

  // Called after spans were released: rewind() moves the place of the next span to the base of the
  // last range, then keep_up_to() moves it behind each span that is left there.
  void rewind() noexcept { next_ = std::max(ranges_.back().base, ranges_.back().lent_up_to); }
  void keep_up_to(std::uint64_t address, std::uint64_t end) noexcept {
    if (ranges_.back().holds(address)) next_ = std::max(next_, end);
  }

  /// Takes out every range that no span lies in, except the last one and those with lent spans.
  template <class IsUsed>
  std::vector<Range> take_unused(IsUsed&& is_used) {
    std::vector<Range> taken, kept;
    for (auto& range : ranges_) {
      const bool keeps = &range == &ranges_.back() || range.lent_up_to != 0 || is_used(range);
      (keeps ? kept : taken).push_back(std::move(range));
    }
    ranges_ = std::move(kept);
    return taken;
  }
  std::vector<Range> take_all() noexcept { return std::exchange(ranges_, {}); }

  std::uint64_t metadata_bytes() const noexcept {
    auto sum = ranges_.capacity() * sizeof(Range);
    for (const auto& range : ranges_) sum += range.span_of_page.capacity() * sizeof(std::uint32_t);
    return sum;
  }

 private:
  Range& range_with(std::uint64_t address) noexcept {
    auto range = ranges_.rbegin();
    while (!range->holds(address)) ++range;
    return *range;
  }

  std::vector<Range> ranges_;  ///< The last one is being filled.
  std::uint64_t next_ = 0;
};

}  // namespace emm::pool
