// What an arena could serve at most. To know that at every free would cost each of them something;
// so it is counted only from a refusal on, as the next one mostly comes soon, and for some requests
// and frees.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

void Arena::watch() noexcept {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  unwatch();
  if (waits()) return;
  watch_ = {.left = kWatched};
  for (auto span = playing_; span < spans_.size(); ++span) watch_.whole += spans_[span].size;
  blocks_.for_each_hole([&](std::uint64_t start, std::uint64_t bytes) {
    watch_.whole += look_at_hole(start, start + bytes, start, start + bytes);
  });
  largest_at_once_.store(0, std::memory_order_relaxed);
  ends_slowly_ = kComposite;
}

void Arena::unwatch() noexcept {
  watch_ = {};
  largest_at_once_.store(counts_split_ ? 0 : largest_, std::memory_order_relaxed);
  ends_slowly_ = counts_split_ ? kComposite : 0;
}

void Arena::goes_on_watching() noexcept {
  if (watch_.left > 0 && --watch_.left == 0) unwatch();
}

// The locks of all are held at one time, and none is waited for.
std::optional<Arena::Sums> Arena::sums(Arena* youngest, const Arena& asker) noexcept {
  const auto unlock = [&](const Arena* end) {
    for (auto* arena = youngest; arena != end; arena = arena->older_) arena->lock_.unlock();
  };
  Sums sums;
  for (auto* arena = youngest; arena != nullptr; arena = arena->older_) {
    if (!arena->lock_.try_lock()) {
      unlock(arena);
      return {};
    }
    arena->end_what_is_left();
    const auto& statistics = arena->statistics_;
    sums.live += statistics.allocated.current;
    sums.frees += statistics.allocation.total - statistics.allocation.current;
    sums.watched = sums.watched && arena->watch_.left > 0;
    sums.whole += arena->watch_.whole;
    if (arena->watch_.left > 0) arena->watch_.left = kWatched;
  }
  sums.ends = asker.watch_.before + asker.watch_.behind;
  sums.largest_hole = asker.watch_.largest;
  sums.refused = asker.refusal_.size;
  sums.refused_at = asker.refusal_.changes;
  unlock(nullptr);
  return sums;
}

void Arena::refuse(std::uint64_t size, std::uint64_t changes) noexcept {
  const std::lock_guard lock(lock_);
  refusal_ = {.size = size, .changes = changes};
}

Arena::Taken Arena::allocate_watched(std::uint64_t size) {
  if (counts_split_ || size >= largest_) return {};
  const std::lock_guard lock(lock_);
  end_what_is_left();
  goes_on_watching();
  if (watch_.left > 0 && size > watch_.largest) return {};
  const auto taken = take(size, blocks_.granules(size));
  if (!taken || watch_.left == 0) return taken;
  const auto block = blocks_.find(taken.cookie);
  const auto [start, end] = blocks_.hole_around(block);
  if (!may_hold_a_span(end - start)) return taken;
  const auto from = blocks_.address(block);
  const auto to = end_of(block);
  watch_.whole -= look_at_hole(start, end, from, to);
  if (start < from) (void)look_at_hole(start, from, from, from);  // of a span that was whole
  if (to < end) (void)look_at_hole(to, end, to, to);
  return taken;
}

// REQUIRES: `block` is in use still.
void Arena::count_freed(std::uint32_t block) noexcept {
  const auto [start, end] = blocks_.hole_around(block);
  watch_.whole += look_at_hole(start, end, blocks_.address(block), end_of(block));
}

std::uint32_t Arena::span_with(std::uint64_t address) const noexcept {
  if (is_mapped()) return span_at(address);
  return by_address_[static_cast<std::size_t>(place_from(address + 1)) - 1];
}

// Returns the bytes of the spans that are wholly in the hole [start, end) and reach into [from, to)
// of it.
std::uint64_t Arena::look_at_hole(std::uint64_t start, std::uint64_t end, std::uint64_t from,
                                  std::uint64_t to) noexcept {
  const auto size = end - start;
  watch_.largest = std::max(watch_.largest, size);
  if (!may_hold_a_span(size) && size <= std::min(watch_.before, watch_.behind)) return 0;
  const auto& first = spans_[span_with(start)];
  const auto& last = spans_[span_with(end - 1)];
  if (first.address < start && first.end() <= end)
    watch_.before = std::max(watch_.before, first.end() - start);
  if (end < last.end() && start <= last.address)
    watch_.behind = std::max(watch_.behind, end - last.address);
  std::uint64_t whole = 0;
  for (auto at = from; at < to;) {
    const auto& span = spans_[span_with(at)];
    if (start <= span.address && span.end() <= end) whole += span.size;
    at = span.end();
  }
  return whole;
}

}  // namespace emm::pool
