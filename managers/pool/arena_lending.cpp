// How memory passes between arenas: idle spans are lent where they lie, and an arena that holds
// nothing is passed on whole. Neither waits, and neither names a stream that may have ended.
#include <algorithm>
#include <utility>

#include "managers/pool/arenas.hpp"

namespace emm::pool {
namespace {

using growth::kConstants;

}  // namespace

// A free that names no stream may come after the stream's end. CUDA's own streams exist as long as
// the program, or the thread. A thread that names CU_STREAM_PER_THREAD means its own, whoever's
// memory it frees.
bool Arena::exists(StreamHandle named) const noexcept {
  if (stream() == kPerThreadStream) return is_own_per_thread_stream();
  return named != StreamHandle{} || stream() == StreamHandle{};
}

// The hint sends the next request to allocate(), which starts to lend.
void Arena::ask_to_lend() noexcept {
  if (!asked_.exchange(true, std::memory_order_relaxed))
    fast_below_.store(0, std::memory_order_relaxed);
}

// Called in a request of the arena's own stream, so the stream exists.
void Arena::start_lending() noexcept {
  asked_.store(false, std::memory_order_relaxed);
  if (!may_lend()) return;
  asked_at_ = counts_.allocations_ever();
  if (lends_) return;
  lends_ = true;
  slow_frees_ = kStitched;
  note_work();
}

// REQUIRES: the stream exists. All work that used free memory was put there, or is waited for
// there.
void Arena::note_work() noexcept {
  is_noted_ = is_done_ = false;
  if (noted_ == EventHandle{}) {
    const auto made = driver_.event_create();
    if (!made) return;
    noted_ = *made;
  }
  is_noted_ = bool(driver_.event_record(noted_, stream()));
  noted_at_ = counts_.allocations_ever();
  tracked_frees_ = frees_ever();
  freed_since_.clear();
  freed_bytes_ = 0;
}

bool Arena::is_note_due() const noexcept {
  return lends_ && (freed_bytes_ >= kConstants.bytes_per_note || !is_noted_);
}

void Arena::track_free(std::uint32_t block) noexcept {
  freed_bytes_ += blocks_.bytes_of(block);
  exclude_from_note(blocks_.address(block), blocks_.end(block));
}

void Arena::exclude_from_note(std::uint64_t address, std::uint64_t end) noexcept {
  if (freed_since_.size() < kConstants.frees_tracked) {
    freed_since_.push_back({address, end});
  } else {
    is_noted_ = false;
  }
}

// After a free on the arena's own stream.
void Arena::freed_here(StreamHandle freed_on) noexcept {
  if (counts_.allocations() == 0) became_empty(freed_on);
  if (!lends_) return;
  if (is_note_due()) {
    // The next request names the stream.
    exists(freed_on) ? note_work() : fast_below_.store(0, std::memory_order_relaxed);
  }
  if (asked_.load(std::memory_order_relaxed)) start_lending();
  if (counts_.allocations_ever() - asked_at_ < kConstants.requests_lending) return;
  lends_ = false;
  slow_frees_ = 0;
}

void Arena::became_empty(StreamHandle freed_on) noexcept {
  if (spans_.active_count() > 1) begin_generation();
  if (!notes_ends_.load(std::memory_order_relaxed) || lends_ || !may_note()) return;
  if (!exists(freed_on) || !deferred_.is_empty()) return;
  // A program may empty its arena again and again.
  const bool is_due = counts_.allocations_ever() - noted_at_ >= kConstants.requests_per_note ||
                      ends_noted_ < kConstants.ends_always_noted;
  if (!is_due) return;
  ++ends_noted_;
  note_work();
}

bool Arena::note_holds() const noexcept { return is_noted_ && tracked_frees_ == frees_ever(); }

bool Arena::noted_work_is_done() noexcept {
  if (!note_holds()) return false;
  if (!is_done_) {
    const auto done = driver_.event_query(noted_);
    is_done_ = done && *done;
  }
  return is_done_;
}

// The spans that hold nothing and were free when the note was made.
std::vector<bool> Arena::lendable() const {
  std::vector<bool> result(spans_.count(), false);
  for (const auto span : idle_spans(0)) result[span] = true;
  const auto& order = spans_.by_address();
  for (const auto& block : freed_since_) {
    for (auto place = spans_.place_from(block.end); place-- > 0;) {
      if (spans_[order[place]].end() <= block.address) break;
      result[order[place]] = false;
    }
  }
  return result;
}

// The shortest run of such spans, one behind the other, that has `wanted` bytes; the lowest of
// equal ones.
std::vector<std::uint32_t> Arena::shortest_run(std::uint64_t wanted,
                                               const std::vector<bool>& is_lendable) const {
  const auto& order = spans_.by_address();
  std::size_t best = 0, best_end = 0;
  auto best_bytes = ~std::uint64_t{0};
  for (std::size_t first = 0; first < order.size(); ++first) {
    std::uint64_t bytes = 0;
    for (auto at = first; at < order.size() && bytes < wanted; ++at) {
      const auto& span = spans_[order[at]];
      const bool follows = at == first || spans_[order[at - 1]].end() == span.address;
      if (!is_lendable[order[at]] || !follows) break;
      bytes += span.size;
      if (bytes < wanted || bytes >= best_bytes) continue;
      best = first;
      best_end = at + 1;
      best_bytes = bytes;
    }
  }
  return {order.begin() + static_cast<std::ptrdiff_t>(best),
          order.begin() + static_cast<std::ptrdiff_t>(best_end)};
}

// What the arena does not need. With Lends::surplus it keeps what it has needed once, and so much
// more that what it holds then need not change again.
std::uint64_t Arena::most_to_lend(Lends lends) const noexcept {
  const auto peak = generation_.peak_ever();
  const auto keeps = lends == Lends::all
                         ? counts_.allocated()
                         : peak + peak / kConstants.kept_divisor + kConstants.kept_least;
  return spans_.bytes() - std::min(spans_.bytes(), keeps);
}

Arena::Lent Arena::lend(std::uint64_t wanted, Lends lends, std::optional<StreamHandle> waits) {
  const std::unique_lock lock(lock_, std::try_to_lock);
  Lent lent;
  if (!lock || most_to_lend(lends) < wanted || !may_lend()) return lent;
  make_remote_frees();
  blocks_.coalesce_kept();
  auto is_lendable = lendable();
  if (waits || lends == Lends::surplus) {
    // Work may still use an alias mapping, which would have to be unmapped; and that takes long.
    for (const auto& mapping : stitches_.mappings()) {
      for (const auto span : mapping.spans) is_lendable[span] = false;
    }
  }
  const auto run = shortest_run(wanted, is_lendable);
  if (run.empty()) return lent;
  if (!waits) {
    if (!noted_work_is_done()) return lent;
  } else if (!note_holds() || !driver_.stream_wait_event(*waits, noted_)) {
    return lent;
  }
  take_out_of_blocks(run);
  lent.calls = drop_mappings_of(run);
  for (const auto span : run) {
    lent.spans.push_back(spans_[span]);
    spans_.addresses().lend(spans_[span]);
  }
  stitches_.rename_spans(spans_.erase(run));
  counts_.set_segments(spans_.segment_count());
  return lent;
}

Arena::Lent Arena::release_lendable(std::uint64_t bytes, Lends lends) {
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock || !may_lend()) return {};
  bytes = std::min(bytes, most_to_lend(lends));
  make_remote_frees();
  blocks_.coalesce_kept();
  const auto is_lendable = lendable();
  std::vector<std::uint32_t> idle;
  std::uint64_t sum = 0;
  for (auto span = spans_.count(); span-- > 0 && sum < bytes;) {
    if (!is_lendable[span]) continue;
    sum += spans_[span].size;
    idle.push_back(span);
  }
  if (idle.empty() || !noted_work_is_done()) return {};
  return {.bytes = sum, .calls = release_spans(idle)};
}

// Two busy streams would take the same memory from each other for ever. What that costs stays in
// proportion to what the arena serves: beyond, each arena keeps what it has needed once.
bool Arena::may_exchange() const noexcept {
  return calls_to_borrow_ < kConstants.borrowing_calls_at_first +
                                counts_.allocations_ever() / kConstants.requests_per_borrowing_call;
}

// Takes idle spans of another arena, in place of new memory. No deadlock: the others' locks are
// only tried.
bool Arena::borrow(std::uint64_t wanted) {
  if (backing_.sharers() < 2 || keeps_idle_ || !may_lend()) return false;
  if (spans_.addresses().is_empty() && !reserve_addresses_for(Backing::kPage)) return false;
  const auto lends = may_exchange() ? Lends::all : Lends::surplus;
  Lent lent;
  others_->for_each([&](Arena& other) {
    if (&other == this) return;
    if (lent.spans.empty()) lent = other.lend(wanted, lends, {});
    other.ask_to_lend();
  });
  if (lent.spans.empty() && is_worth_a_wait(wanted)) {
    others_->for_each([&](Arena& other) {
      if (&other != this && lent.spans.empty()) lent = other.lend(wanted, lends, stream());
    });
    if (!lent.spans.empty()) backing_.note_stream_wait();
    // An older note of this arena does not come after the work that its stream waits for now.
    for (const auto& span : lent.spans) exclude_from_note(span.address, span.end());
  }
  if (lent.spans.empty()) return false;
  calls_to_borrow_ += lent.calls;
  for (const auto& span : lent.spans) spans_.add(span);
  counts_.set_segments(spans_.segment_count());
  activate(size_of(lent.spans));
  return true;
}

// A wait delays the program's work, so it has to save the pool from holding more than a tenth
// beyond what each stream has needed once. The lock of an arena that is busy is not waited for.
bool Arena::is_worth_a_wait(std::uint64_t wanted) {
  auto needed = std::max(generation_.peak_ever(), counts_.allocated() + wanted);
  others_->for_each([&](Arena& other) {
    if (&other == this || !other.try_lock()) return;
    needed += other.generation_.peak_ever();
    other.unlock();
  });
  return backing_.reserved_bytes() + wanted > needed + needed / kConstants.wait_excess_divisor;
}

// Where no run of spans is long enough, the driver takes idle ones back and gives others.
void Arena::borrow_by_release(std::uint64_t bytes) {
  if (backing_.sharers() < 2 || keeps_idle_ || !may_lend()) return;
  const auto lends = may_exchange() ? Lends::all : Lends::surplus;
  std::uint64_t sum = 0;
  others_->for_each([&](Arena& other) {
    if (&other == this || sum >= bytes) return;
    const auto released = other.release_lendable(bytes - sum, lends);
    sum += released.bytes;
    calls_to_borrow_ += released.calls;
  });
}

bool Arena::pass_on(StreamHandle stream) noexcept {
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock || this->stream() == StreamHandle{} || !may_note()) return false;
  make_all_remote_frees();
  const bool holds_nothing = counts_.allocations() == 0 && deferred_.is_empty();
  if (!holds_nothing || !freed_since_.empty() || !noted_work_is_done()) return false;
  stream_.store(stream == kLegacyStream ? 0 : stream.value, std::memory_order_relaxed);
  made_by_.store(thread_number(), std::memory_order_relaxed);
  // A thread that has looked this arena up for its former stream finds that out.
  allocating_thread_.store(0, std::memory_order_relaxed);
  ends_noted_ = 0;
  return true;
}

}  // namespace emm::pool
