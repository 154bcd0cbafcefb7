// What an arena could serve at most. To look at what is free costs about 10 ns for each large hole,
// and to count it at every request and free about 20 ns for each of them (refusal_bench). So it is
// counted only where one refusal follows another within as many requests as looking costs, and for
// as many requests and frees.
#include <algorithm>

#include "managers/pool/arena.hpp"

namespace emm::pool {

/// The locks of all arenas, as far as none had to be waited for.
class Arena::Locks {
 public:
  explicit Locks(Arena* youngest) noexcept : youngest_(youngest), end_(youngest) {
    while (end_ != nullptr && end_->lock_.try_lock()) end_ = end_->older_;
  }
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;
  ~Locks() {
    for (auto* arena = youngest_; arena != end_; arena = arena->older_) arena->lock_.unlock();
  }
  bool are_all() const noexcept { return end_ == nullptr; }

 private:
  Arena* youngest_;
  Arena* end_;
};

std::uint64_t Arena::room_within(std::uint64_t limit) const noexcept {
  return limit - std::min(limit, backing_.reserved_bytes());
}

Arena::Outlook Arena::outlook(std::uint64_t size) noexcept {
  if (size >= largest_) return {.hopeless = true};
  const auto limit = std::min(backing_.max(), backing_.device());
  if (size <= limit && Backing::in_pages(size) <= room_within(limit)) return {};
  if (is_known_to_be_beyond(size, limit)) return {.hopeless = true};

  auto* const youngest = group_.youngest();
  const Locks locks(youngest);
  if (!locks.are_all()) return {.hopeless = size > limit};
  // A free that does not see that it is forgotten had its inbox first: so none is passed by that
  // seems empty.
  const bool any_left = group_.any_left();
  if (any_left) group_.forget_left();
  std::uint64_t live = 0;
  auto changes = backing_.changes();
  bool can_be_watched = true;
  for (auto* arena = youngest; arena != nullptr; arena = arena->older_) {
    if (any_left) {
      arena->empty_inbox();
    } else {
      arena->end_what_is_left();
    }
    const auto& statistics = arena->statistics_;
    live += statistics.allocated.current;
    changes += statistics.allocation.total - statistics.allocation.current;
    can_be_watched = can_be_watched && !arena->waits();
  }
  const auto room = room_within(limit);
  if (group_.youngest() != youngest) return {.hopeless = size > limit};  // what has that one freed?
  const bool was_refused = size >= refusal_.size && changes == refusal_.changes;
  const bool hopeless = was_refused || (can_be_watched && is_beyond(size, room, youngest)) ||
                        size > limit - std::min(limit, live);
  return {.hopeless = hopeless, .changes = changes};
}

// Nobody else is asked, and while all are watched nothing is reserved or given back.
bool Arena::is_known_to_be_beyond(std::uint64_t size, std::uint64_t limit) noexcept {
  const auto state = group_.state();
  if (!ArenaGroup::all_are_watched(state)) return false;
  const std::lock_guard lock(lock_);
  group_.ask();
  const auto pages = group_.whole() + room_within(limit);
  return size > watch_.most_with(pages) && !group_.any_left() && group_.state() == state;
}

// Where it is so for the second time soon, all are watched from here on. REQUIRES: the locks of
// all; none waits.
bool Arena::is_beyond(std::uint64_t size, std::uint64_t room, Arena* youngest) noexcept {
  if (watch_.left == 0) look(smallest_span(), size);
  auto pages = room + watch_.whole;
  auto worth = watch_.worth;
  for (auto* arena = youngest; arena != nullptr; arena = arena->older_) {
    if (size <= watch_.most_with(pages)) return false;
    if (arena == this) continue;
    if (arena->watch_.left == 0) arena->look(arena->smallest_span(), size);
    pages += arena->watch_.whole;
    worth += arena->watch_.worth;
  }
  if (size <= watch_.most_with(pages)) return false;
  const auto requests = statistics_.allocation.total;
  const bool is_soon = requests - std::exchange(looked_at_, requests) <= worth;
  for (auto* arena = youngest; is_soon && arena != nullptr; arena = arena->older_)
    arena->begin_to_watch(worth);
  return true;
}

// Of holes of less than `least` bytes only the size class of the largest; and no more of the
// others than makes spans of `enough` bytes.
void Arena::look(std::uint64_t least, std::uint64_t enough) noexcept {
  blocks_.join_kept();
  const auto smaller = blocks_.bytes(blocks_.most_below(blocks_.granules(least)));
  watch_ = {.worth = kLeastWorth, .largest = smaller};
  if (is_mapped()) watch_.before = watch_.behind = smaller;
  for (auto span = playing_; span < spans_.size(); ++span) watch_.whole += spans_[span].size;
  std::uint32_t seen = 0;
  blocks_.any_free(blocks_.granules(least), [&](std::uint32_t block) {
    watch_.worth += ++seen % 2;
    const auto start = blocks_.address(block);
    const auto end = end_of(block);
    watch_.whole += look_at_hole(start, end, start, end);
    return watch_.whole >= enough;
  });
}

void Arena::begin_to_watch(std::uint32_t worth) noexcept {
  if (watch_.left > 0) return;
  watch_.left = watch_.worth = worth;
  watch_.asked = group_.asked();
  group_.watch_begins(watch_.whole);
  largest_at_once_.store(0, std::memory_order_relaxed);
  ends_slowly_ = kComposite;
}

void Arena::unwatch() noexcept {
  if (watch_.left > 0) group_.watch_ends(watch_.whole);
  watch_ = {};
  largest_at_once_.store(counts_split_ ? 0 : largest_, std::memory_order_relaxed);
  ends_slowly_ = counts_split_ ? kComposite : 0;
}

void Arena::goes_on_watching() noexcept {
  if (watch_.left == 0 || --watch_.left > 0) return;
  watch_.left = watch_.worth;
  if (std::exchange(watch_.asked, group_.asked()) == group_.asked()) unwatch();
}

void Arena::refuse(std::uint64_t size, std::uint64_t changes) noexcept {
  const std::lock_guard lock(lock_);
  refusal_ = {.size = size, .changes = changes};
  end_what_is_left();
  unwatch();
  if (waits()) return;
  look(1, kNothing);
  begin_to_watch(watch_.worth);
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
  is_whole_besides(0 - look_at_hole(start, end, from, to));
  if (start < from) (void)look_at_hole(start, from, from, from);  // of a span that was whole
  if (to < end) (void)look_at_hole(to, end, to, to);
  return taken;
}

// REQUIRES: `block` is in use still.
void Arena::count_freed(std::uint32_t block) noexcept {
  const auto [start, end] = blocks_.hole_around(block);
  is_whole_besides(look_at_hole(start, end, blocks_.address(block), end_of(block)));
}

// Modulo 2^64.
void Arena::is_whole_besides(std::uint64_t bytes) noexcept {
  watch_.whole += bytes;
  group_.add_whole(bytes);
}

std::uint32_t Arena::span_with(std::uint64_t address) const noexcept {
  if (is_mapped()) return span_at(address);
  return by_address_[static_cast<std::size_t>(place_from(address + 1)) - 1];
}

// Of less than a page a slab may be where `max` is near.
std::uint64_t Arena::smallest_span() const noexcept {
  auto least = Backing::kPage;
  if (is_mapped()) return least;
  for (const auto& span : spans_) least = std::min(least, span.size);
  return least;
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
  if (is_mapped()) {
    if (first.address < start && first.end() <= end)
      watch_.before = std::max(watch_.before, first.end() - start);
    if (end < last.end() && start <= last.address)
      watch_.behind = std::max(watch_.behind, end - last.address);
  }
  std::uint64_t whole = 0;
  for (auto at = from; at < to;) {
    const auto& span = spans_[span_with(at)];
    if (start <= span.address && span.end() <= end) whole += span.size;
    at = span.end();
  }
  return whole;
}

}  // namespace emm::pool
