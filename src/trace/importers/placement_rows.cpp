#include "trace/importers/placement_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace emm::trace {
Header placement_header() {
  Header header;
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  header.framework = "DSA";
  return header;
}

bool PlacementRows::take_id(std::string_view said, Buffer& buffer) {
  const auto id = said.empty() ? Id::of(run_.next_id()) : Id::of(said);
  buffer.named = !id.is_number();
  buffer.id = id.number;
  if (!buffer.named) return take_number(id.number);
  const auto [at, added] = places_.emplace(said, names_.size());
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
  Buffer buffer{.size = row.size, .id = 0, .line = static_cast<std::uint32_t>(run_.line_number()),
                .align = static_cast<std::uint8_t>(row.align == 0 ? 0 : std::countr_zero(row.align)), .named = false};
  if (!take_id(row.id, buffer)) return false;
  if (row.size == 0) {
    ++no_bytes_;
    run_.other();
    return true;
  }
  run_.used();
  const auto number = static_cast<std::uint32_t>(buffers_.size());
  begins_.push_back({.time = row.lower, .buffer = number});
  ends_.push_back({.time = row.upper, .buffer = number});
  buffers_.push_back(buffer);
  return true;
}

/// Stably, by digits of the time: files have millions of rows, in any order, and times that are ordinals.
void PlacementRows::sort_by_time(std::vector<Moment>& moments) {
  const auto earlier = [](const Moment& a, const Moment& b) { return a.time < b.time; };
  if (std::is_sorted(moments.begin(), moments.end(), earlier)) return;
  constexpr unsigned kDigitBits = 11, kMostDigits = 4;
  std::uint64_t all = 0;
  for (const auto& moment : moments) all |= moment.time;
  const auto digits = (static_cast<unsigned>(std::bit_width(all)) + kDigitBits - 1) / kDigitBits;
  if (digits > kMostDigits) return std::stable_sort(moments.begin(), moments.end(), earlier);
  std::vector<Moment> sorted(moments.size());
  for (unsigned digit = 0; digit < digits; ++digit) {
    const auto place = [&](const Moment& moment) {
      return static_cast<std::size_t>(moment.time >> (digit * kDigitBits)) & ((1u << kDigitBits) - 1);
    };
    std::array<std::size_t, (std::size_t{1} << kDigitBits) + 1> begin{};
    for (const auto& moment : moments) ++begin[place(moment) + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    for (const auto& moment : moments) sorted[begin[place(moment)]++] = moment;
    moments.swap(sorted);
  }
}

Result<ImportCounts> PlacementRows::finish() {
  sort_by_time(begins_);
  sort_by_time(ends_);
  constexpr std::size_t kAhead = 16;  // rows in no order are far apart in memory
  const auto soon = [&](const std::vector<Moment>& moments, std::size_t at) {
    if (at + kAhead < moments.size()) __builtin_prefetch(&buffers_[moments[at + kAhead].buffer]);
  };
  std::size_t ended = 0;
  const auto end_before = [&](std::uint64_t time) -> Status {
    for (; ended < ends_.size() && ends_[ended].time <= time; ++ended) {
      soon(ends_, ended);
      if (auto given = emit(buffers_[ends_[ended].buffer], false); !given) return given;
    }
    return {};
  };
  for (std::size_t begun = 0; begun < begins_.size(); ++begun) {
    if (auto given = end_before(begins_[begun].time); !given) return std::move(given).error();
    soon(begins_, begun);
    if (auto given = emit(buffers_[begins_[begun].buffer], true); !given) return std::move(given).error();
  }
  if (auto given = end_before(~std::uint64_t{0}); !given) return std::move(given).error();
  run_.note(no_bytes_, "rows are of 0 bytes");
  return run_.finish(0, 0);
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
