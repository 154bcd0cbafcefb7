#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "trace/operation.hpp"
#include "trace/trace_building.hpp"
#include "trace/trace_window.hpp"

namespace emm::trace {

void Trace::note_seq(const Operation& operation, bool kept) {
  auto& made = *building_;
  const bool has_seq = operation.has(Member::seq);
  if (!has_seq && !made.any_seq) return;
  const bool counted =
      has_seq && kept && made.last_seq.has_value() && operation.seq == *made.last_seq + 1;
  const bool first =
      has_seq && kept && !made.any_seq && (window_ != nullptr ? window_->count : size()) == 0;
  if (first) made.first_seq = operation.seq;
  if (window_ != nullptr) {
    made.seqs_kept = made.seqs_kept || (!counted && !first);
  } else if (!made.seqs_kept && !counted && !first) {
    // From here on counting does not give the seq, so each one is stored. Events before the first
    // seq keep their place at the front.
    made.seqs_kept = true;
    for (std::size_t i = 0; i < size(); ++i)
      made.seqs.push_back(made.first_seq ? (*made.first_seq + i) * 2 : 1);
  }
  if (has_seq && made.last_seq.has_value() && operation.seq <= *made.last_seq) made.sorted = false;
  made.any_seq = made.any_seq || has_seq;
  const auto place = has_seq ? operation.seq : made.last_seq.value_or(0);
  if (made.seqs_kept && kept && window_ == nullptr)
    made.seqs.push_back(place * 2 + (has_seq ? 0 : 1));
  made.last_seq = place;
}

Status Trace::sort_by_seq() {
  auto& made = *building_;
  if (made.sorted) return {};
  std::vector<std::uint32_t> order(size());
  std::iota(order.begin(), order.end(), 0u);
  const auto& seqs = made.seqs;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return seqs[a] != seqs[b] ? seqs[a] < seqs[b] : a < b;
  });
  for (std::size_t i = 1; i < size(); ++i) {
    const auto seq = seqs[order[i]];
    if (seq != seqs[order[i - 1]] || (seq & 1) != 0) continue;
    const auto line = at(order[i]).line;
    auto good = fault(
        line, fail(Errc::parse_error, "{}:{}: seq {} for the second time: expected each seq once",
                   source_, line, seq / 2));
    if (!good) return good;
  }
  // Follows each cycle of the permutation, so that sorting needs no second copy of the events.
  for (std::size_t start = 0; start < size(); ++start) {
    if (order[start] == start) continue;
    const auto first = at(start);
    auto to = start;
    while (order[to] != start) {
      const auto from = order[to];
      at(to) = at(from);
      order[to] = static_cast<std::uint32_t>(to);
      to = from;
    }
    at(to) = first;
    order[to] = static_cast<std::uint32_t>(to);
  }
  std::vector<std::uint64_t> in_order(size());
  for (std::size_t i = 0; i < size(); ++i) in_order[i] = made.seqs[i];
  std::sort(in_order.begin(), in_order.end());
  for (std::size_t i = 0; i < size(); ++i) made.seqs[i] = in_order[i];
  return {};
}

std::uint64_t Trace::seq(std::size_t index) const noexcept {
  if (seqs_.size() > 0) return seqs_[index] / 2;
  return first_seq_.value_or(0) + index;
}

void Trace::make_times_relative() noexcept {
  constexpr auto kNone = std::numeric_limits<std::uint64_t>::max();  // an event without a time
  std::uint64_t start = kNone;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    auto& event = at(i);
    if (event.time_ns != kNone) {
      if (start == kNone) start = event.time_ns;
      last = event.time_ns < start ? 0 : event.time_ns - start;
    }
    event.time_ns = last;
  }
}

}  // namespace emm::trace
