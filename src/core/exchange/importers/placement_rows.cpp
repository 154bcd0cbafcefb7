#include "exchange/importers/placement_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "trace/operation.hpp"

namespace emm::trace {
Header placement_header() { return recording_header("DSA", {}); }

bool PlacementRows::take_id(const PlacementRow& row, Buffer& buffer) {
  const auto id = row.has_id ? row.id : Id::of(run_.next_id());
  buffer.named = !id.is_number();
  buffer.id = id.number;
  if (!buffer.named) return take_number(id.number);
  const auto [at, added] = places_.emplace(id.text, names_.size());
  if (!added) return false;
  buffer.id = names_.size();
  names_.push_back(&at->first);
  return true;
}

bool PlacementRows::take_number(std::uint64_t number) {
  if (!in_table_) {
    if (numbers_in_run_ == 0) first_number_ = number;
    if (number - first_number_ == numbers_in_run_) {
      ++numbers_in_run_;
      return true;
    }
    in_table_ = true;
    for (std::uint64_t i = 0; i < numbers_in_run_; ++i) numbers_.add(first_number_ + i, true);
  }
  return numbers_.add(number, true).second;
}

bool PlacementRows::add(const PlacementRow& row) {
  Buffer buffer{
      .size = row.size,
      .id = 0,
      .line = static_cast<std::uint32_t>(run_.line_number()),
      .align = static_cast<std::uint8_t>(row.align == 0 ? 0 : std::countr_zero(row.align)),
      .named = false};
  if (!take_id(row, buffer)) return false;
  if (row.size == 0) {
    ++no_bytes_;
    run_.other();
    return true;
  }
  run_.used();
  rows_.push_back({.lower = row.lower, .upper = row.upper, .buffer = buffer});
  return true;
}

PlacementRows::Order PlacementRows::by_time(std::uint64_t StoredRow::*time) const {
  std::uint64_t all_bits = 0, last = 0;
  bool sorted = true;
  for (const auto& row : rows_) {
    all_bits |= row.*time;
    sorted = sorted && row.*time >= last;
    last = row.*time;
  }
  constexpr unsigned kShort = 32;  // bits: such a time and a row's number share a word
  if (!sorted && std::bit_width(all_bits) <= kShort) return by_short_time(time, all_bits);
  Order order(rows_.size());
  std::iota(order.begin(), order.end(), 0u);
  if (sorted) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return rows_[a].*time < rows_[b].*time;
  });
  return order;
}

/// A radix sort by time, since files have millions of rows in any order. It moves one word per row:
/// the time above the row's number.
PlacementRows::Order PlacementRows::by_short_time(std::uint64_t StoredRow::*time,
                                                  std::uint64_t all_bits) const {
  // A radix sort: three digits of 11 bits are 32 bits.
  constexpr unsigned kTimeShift = 32, kDigitBits = 11, kMostDigits = 3;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  const auto digits =
      (static_cast<unsigned>(std::bit_width(all_bits)) + kDigitBits - 1) / kDigitBits;
  const auto place = [](std::uint64_t word, unsigned digit) {
    return static_cast<std::size_t>(word >> (kTimeShift + digit * kDigitBits)) & (kDigits - 1);
  };
  std::vector<std::uint64_t> words(rows_.size()), sorted(rows_.size());
  std::array<std::array<std::uint32_t, kDigits>, kMostDigits> begin{};
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    words[i] = (rows_[i].*time << kTimeShift) | i;
    for (unsigned digit = 0; digit < digits; ++digit) ++begin[digit][place(words[i], digit)];
  }
  for (unsigned digit = 0; digit < digits; ++digit) {
    std::exclusive_scan(begin[digit].begin(), begin[digit].end(), begin[digit].begin(), 0u);
    for (const auto word : words) sorted[begin[digit][place(word, digit)]++] = word;
    words.swap(sorted);
  }
  Order order(rows_.size());
  std::transform(words.begin(), words.end(), order.begin(),
                 [](auto word) { return static_cast<std::uint32_t>(word); });
  return order;
}

Result<ImportCounts> PlacementRows::finish() {
  // Reorders the rows by their begin. A buffer that ends soon after its begin is then still in the
  // cache.
  auto ends = by_time(&StoredRow::upper);
  {
    const auto begins = by_time(&StoredRow::lower);
    std::vector<StoredRow> in_order(rows_.size());
    Order place(rows_.size());
    for (std::uint32_t i = 0; i < begins.size(); ++i) {
      in_order[i] = rows_[begins[i]];
      place[begins[i]] = i;
    }
    for (auto& end : ends) end = place[end];
    rows_ = std::move(in_order);
  }
  std::size_t ended = 0;
  const auto end_before = [&](std::uint64_t time) -> Status {
    for (; ended < ends.size() && rows_[ends[ended]].upper <= time; ++ended) {
      if (auto given = emit(rows_[ends[ended]].buffer, false); !given) return given;
    }
    return {};
  };
  for (const auto& row : rows_) {
    if (auto given = end_before(row.lower); !given) return std::move(given).error();
    if (auto given = emit(row.buffer, true); !given) return std::move(given).error();
  }
  if (auto given = end_before(~std::uint64_t{0}); !given) return std::move(given).error();
  run_.note(no_bytes_, "rows are of 0 bytes");
  return run_.finish(0, {});
}

Status PlacementRows::emit(const Buffer& buffer, bool begins) {
  auto& op = operation_;
  op.op = begins ? Op::memalloc : Op::free;
  op.members = Members(Member::id);
  op.line = buffer.line;
  op.id = buffer.named ? Id::of(std::string_view(*names_[buffer.id])) : Id::of(buffer.id);
  if (begins) {
    op.size = buffer.size;
    op.members.add(Member::size);
    if (buffer.align != 0) {
      op.align = std::uint64_t{1} << buffer.align;
      op.members.add(Member::align);
    }
  }
  return run_.emit(op);
}

}  // namespace emm::trace
