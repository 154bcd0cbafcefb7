#pragma once

#include <cstdint>
#include <vector>

#include "managers/pool/address_ranges.hpp"
#include "managers/pool/backing.hpp"

namespace emm::pool {

/// The spans of an arena, in the order in which the driver gave them.
///
/// The first of them are active: their addresses are in the block map. The others are reserved, but
/// this generation has not needed them yet. They become active in their order, so that the same
/// requests find the same addresses. A span keeps its index until spans are erased. Knows no
/// driver.
class SpanList {
 public:
  /// A run of addresses that has become active.
  struct Run {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
  };

  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(spans_.size()); }
  bool is_empty() const noexcept { return spans_.empty(); }
  const Span& operator[](std::uint32_t span) const noexcept { return spans_[span]; }
  const std::vector<Span>& all() const noexcept { return spans_; }

  std::uint32_t active_count() const noexcept { return active_; }
  std::uint64_t active_bytes() const noexcept { return active_bytes_; }
  bool is_active(std::uint32_t span) const noexcept { return span < active_; }
  bool all_are_active() const noexcept { return active_ == spans_.size(); }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t inactive_bytes() const noexcept { return bytes_ - active_bytes_; }
  /// The bytes of as many of the next inactive spans as reach `needed`, or of all inactive spans.
  std::uint64_t next_inactive_bytes(std::uint64_t needed) const noexcept;
  /// Activates the next span. With `join` it also activates the spans whose addresses follow, until
  /// `bytes` are reached or no such span is left. REQUIRES: a span is inactive.
  Run activate_next(std::uint64_t bytes, bool join) noexcept;
  /// The bytes of the next inactive span and of the spans behind it, up to the index `end`, whose
  /// addresses follow.
  std::uint64_t next_run_before(std::uint32_t end) const noexcept;
  void deactivate_all() noexcept {
    active_ = 0;
    active_bytes_ = 0;
  }

  /// Makes the active spans of `idle` inactive, behind the other spans. Returns the new index of
  /// each span.
  std::vector<std::uint32_t> deactivate(const std::vector<std::uint32_t>& idle);

  /// Adds a span behind the others, inactive.
  void add(const Span& span);
  /// Erases the spans of `gone`. Returns the new index of each former span, kNone for the erased
  /// ones.
  std::vector<std::uint32_t> erase(const std::vector<std::uint32_t>& gone);

  /// The indexes of all spans, by address.
  const std::vector<std::uint32_t>& by_address() const noexcept { return by_address_; }
  /// The place in by_address() of the first span at or above `address`.
  std::size_t place_from(std::uint64_t address) const noexcept;
  /// Calls visit(index) for the spans that lie in [start, end), the lowest first.
  template <class Visit>
  void for_each_within(std::uint64_t start, std::uint64_t end, Visit&& visit) const {
    for (auto place = place_from(start); place < by_address_.size(); ++place) {
      const auto span = by_address_[place];
      if (spans_[span].end() > end) return;
      visit(span);
    }
  }
  /// The span that `address` is in. REQUIRES: there is one.
  std::uint32_t at(std::uint64_t address) const noexcept {
    if (addresses_.holds(address)) return addresses_.span_at(address);
    return by_address_[place_from(address + 1) - 1];  // a span that another arena has lent
  }
  /// The number of contiguous address runs that the spans form.
  std::uint64_t segment_count() const noexcept;
  /// Answers whether the span continues a segment that ends at `end`. A slab from cuMemAlloc is a
  /// segment by itself, wherever it lies.
  static bool continues(const Span& span, std::uint64_t end) noexcept {
    return span.address == end && span.handle != PhysicalHandle{};
  }

  AddressRanges& addresses() noexcept { return addresses_; }
  const AddressRanges& addresses() const noexcept { return addresses_; }
  std::uint64_t metadata_bytes() const noexcept;

 private:
  void name_all_pages();

  std::vector<Span> spans_;
  std::uint64_t bytes_ = 0;  ///< The sum of all spans.
  std::uint32_t active_ = 0;
  std::uint64_t active_bytes_ = 0;
  std::vector<std::uint32_t> by_address_;
  AddressRanges addresses_;
};

}  // namespace emm::pool
