#include "managers/pool/span_list.hpp"

#include <algorithm>

#include "managers/pool/block_map.hpp"

namespace emm::pool {

std::uint64_t SpanList::next_inactive_bytes(std::uint64_t needed) const noexcept {
  std::uint64_t sum = 0;
  for (auto span = active_; span < spans_.size() && sum < needed; ++span) sum += spans_[span].size;
  return sum;
}

SpanList::Run SpanList::activate_next(std::uint64_t bytes, bool join) noexcept {
  const auto& first = spans_[active_++];
  Run run{first.address, first.size};
  while (join && active_ < spans_.size() && run.size < bytes &&
         spans_[active_].address == run.address + run.size) {
    run.size += spans_[active_++].size;
  }
  active_bytes_ += run.size;
  return run;
}

std::uint64_t SpanList::next_run_before(std::uint32_t end) const noexcept {
  const auto& first = spans_[active_];
  auto last_end = first.end();
  for (auto next = active_ + 1; next < end && spans_[next].address == last_end; ++next)
    last_end = spans_[next].end();
  return last_end - first.address;
}

void SpanList::add(const Span& span) {
  const auto index = count();
  spans_.push_back(span);
  bytes_ += span.size;
  by_address_.insert(by_address_.begin() + static_cast<std::ptrdiff_t>(place_from(span.address)),
                     index);
  if (!addresses_.is_empty()) addresses_.name_pages(span, index);
}

std::vector<std::uint32_t> SpanList::deactivate(const std::vector<std::uint32_t>& idle) {
  std::vector<bool> goes(spans_.size(), false);
  for (const auto span : idle) goes[span] = is_active(span);
  std::vector<std::uint32_t> order;
  order.reserve(spans_.size());
  for (const bool goers : {false, true}) {
    for (std::uint32_t span = 0; span < spans_.size(); ++span) {
      if (goes[span] == goers) order.push_back(span);
    }
  }
  std::vector<std::uint32_t> new_index(spans_.size());
  std::vector<Span> spans;
  spans.reserve(spans_.size());
  for (const auto span : order) {
    new_index[span] = static_cast<std::uint32_t>(spans.size());
    spans.push_back(spans_[span]);
    if (!goes[span]) continue;
    --active_;
    active_bytes_ -= spans_[span].size;
  }
  spans_ = std::move(spans);
  for (auto& span : by_address_) span = new_index[span];
  name_all_pages();
  return new_index;
}

void SpanList::name_all_pages() {
  if (addresses_.is_empty()) return;
  for (std::uint32_t span = 0; span < spans_.size(); ++span)
    addresses_.name_pages(spans_[span], span);
}

std::vector<std::uint32_t> SpanList::erase(const std::vector<std::uint32_t>& gone) {
  std::vector<std::uint32_t> new_index(spans_.size(), 0);
  for (const auto span : gone) new_index[span] = kNone;
  const auto is_gone = [&](std::uint32_t span) { return new_index[span] == kNone; };

  std::uint32_t kept = 0;
  auto active = active_;
  for (std::uint32_t span = 0; span < spans_.size(); ++span) {
    if (is_gone(span)) {
      bytes_ -= spans_[span].size;
      if (!is_active(span)) continue;
      --active;
      active_bytes_ -= spans_[span].size;
      continue;
    }
    new_index[span] = kept;
    spans_[kept++] = spans_[span];
  }
  spans_.resize(kept);
  active_ = active;
  by_address_.erase(std::remove_if(by_address_.begin(), by_address_.end(), is_gone),
                    by_address_.end());
  for (auto& span : by_address_) span = new_index[span];
  name_all_pages();
  return new_index;
}

std::size_t SpanList::place_from(std::uint64_t address) const noexcept {
  const auto place =
      std::lower_bound(by_address_.begin(), by_address_.end(), address,
                       [&](std::uint32_t at, std::uint64_t a) { return spans_[at].address < a; });
  return static_cast<std::size_t>(place - by_address_.begin());
}

std::uint64_t SpanList::segment_count() const noexcept {
  std::uint64_t count = 0, end = 0;
  for (const auto span : by_address_) {
    if (!continues(spans_[span], end)) ++count;
    end = spans_[span].end();
  }
  return count;
}

std::uint64_t SpanList::metadata_bytes() const noexcept {
  return spans_.capacity() * sizeof(Span) + by_address_.capacity() * sizeof(std::uint32_t) +
         addresses_.metadata_bytes();
}

}  // namespace emm::pool
