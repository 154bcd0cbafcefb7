// How an arena follows a plan: a request gets the place that was worked out for it beforehand.
//
// While the plan is followed, all allocations of the arena are slots of the plan, the block map is
// empty and all spans are inactive. When the plan is left, its slots become blocks, and the arena
// goes on as without a plan. So a program that deviates finds all free memory of the plan.
#include <algorithm>
#include <utility>

#include "managers/pool/arena.hpp"

namespace emm::pool {
namespace {

using growth::kConstants;

}  // namespace

// Nothing may be allocated that the plan does not know. Deferred frees may be pending.
bool Arena::may_follow_plan() const noexcept {
  if (plan_ == nullptr || plan_->is_followed()) return false;
  return counts_.allocations() == 0 || plan_->holds_carried(counts_.allocations());
}

// Where a generation ends, this stream waits for what other streams freed in it.
bool Arena::finish_all_deferred_frees() noexcept {
  while (!deferred_.is_empty()) {
    const auto finished = finish_deferred_frees(OrderBy::events, deferred_.size());
    if (!finished || !*finished) return false;
  }
  return true;
}

Arena::Planned Arena::allocate_planned(std::uint64_t size, StreamHandle stream) {
  if (size >= largest_) return {};
  const std::lock_guard lock(lock_);
  if (!note_allocating_thread(stream)) return {};
  if (counts_.allocations_ever() % kMakeRemoteFreesEvery == 0) make_remote_frees();
  if (const auto taken = take_planned(size)) return {.allocation = taken};
  if (plan_ == nullptr) return {};
  if (!plan_->is_followed()) plan_->note_stray();
  const bool is_expected = plan_->is_followed() && plan_->expects_elsewhere(size);
  if (is_expected) plan_->pass_by();
  // Served here, a diverted request would stay, and the arena would never again hold just what a
  // period begins with.
  return {.allocation = {},
          .has_elsewhere = plan_->has_elsewhere(),
          .lies_elsewhere = is_expected || plan_->diverts(size)};
}

Arena::Allocation Arena::take_planned(std::uint64_t size) {
  auto slot = follows_plan() ? plan_->take(size) : kNone;
  if (slot == kNone) slot = take_planned_slowly(size);
  if (slot == kNone) return {};
  count(size, blocks_.rounded(size));
  return {.address = {plan_->address(slot)}, .cookie = plan_->cookie(slot), .mark = epoch_.mark()};
}

// Finds and enters a plan, and brings back what the place waits for.
std::uint32_t Arena::take_planned_slowly(std::uint64_t size) {
  if (book_ != nullptr)
    plan_ = std::exchange(book_, nullptr)->take(stream() == StreamHandle{}, size);
  make_remote_frees();
  if (!follows_plan() && !(may_follow_plan() && enter_plan())) {
    open_fast_path();
    return kNone;
  }
  if (const auto slot = plan_->take(size); slot != kNone) return slot;
  if (plan_->expects_elsewhere(size)) return kNone;
  // Another stream freed the memory: this stream waits for the event of that free.
  while (!deferred_.is_empty() && plan_->waits_for_deferred(size)) {
    const auto finished = finish_deferred_frees(OrderBy::events, kConstants.deferred_frees_at_once);
    if (!finished || !*finished) return kNone;
    if (const auto slot = plan_->take(size); slot != kNone) return slot;
  }
  const bool is_empty = counts_.allocations() == 0 && finish_all_deferred_frees();
  return is_empty && plan_->find_way(size) ? plan_->take(size) : kNone;
}

// False if the plan's span cannot be had. REQUIRES: may_follow_plan().
bool Arena::enter_plan() {
  if (!finish_all_deferred_frees()) return false;
  const bool carries = counts_.allocations() > 0;
  if (carries) {
    for (const auto slot : plan_->carried()) blocks_.free(plan_->block(slot));
  }
  if (spans_.active_count() > 0) begin_generation();
  if (!plan_->is_mapped() && !map_plan()) return false;
  plan_->follow();
  if (carries) plan_->begin_period();
  fast_below_.store(0, std::memory_order_relaxed);
  return true;
}

// One span for the whole plan, so that it takes few calls. If the driver refuses, the arena goes on
// without a plan and asks the driver itself, which then answers the program.
bool Arena::map_plan() {
  const auto bytes = plan_->bytes();
  if (bytes >= largest_) return false;
  device_room_.begin_request();
  if (const auto done = maps() ? add_spans(bytes, bytes) : add_slab(bytes); !done) return false;
  plan_->map_at(spans_[spans_.count() - 1].address);
  blocks_.remove_all_free();
  spans_.deactivate_all();
  return true;
}

void Arena::leave_plan() {
  put_plan_into_blocks();
  plan_->leave();
  open_fast_path();
}

// The plan is not followed. While it may soon be again, it is asked about each request all the
// same.
void Arena::open_fast_path() noexcept {
  const bool is_open = !counts_split_ && (plan_ == nullptr || !plan_->looks_at_strays());
  fast_below_.store(is_open ? largest_ : 0, std::memory_order_relaxed);
}

void Arena::put_plan_into_blocks() {
  // Spans become active in their order, so those before the plan's do, too.
  const auto is_active = [&] {
    for (std::uint32_t span = 0; span < spans_.active_count(); ++span) {
      if (spans_[span].address == plan_->base()) return true;
    }
    return false;
  };
  while (!is_active() && activate(1)) {
  }
  auto block = kNone;
  blocks_.for_each_free(1, [&](std::uint32_t free) {
    if (blocks_.address(free) <= plan_->base() && plan_->base() < blocks_.end(free)) block = free;
  });
  for (const auto slot : plan_->taken_slots()) {
    const auto address = plan_->address(slot);
    while (blocks_.end(block) <= address) block = blocks_.after(block);
    const auto taken = blocks_.carve(block, address, blocks_.granules(plan_->size(slot)));
    blocks_.set_payload(taken, plan_->size(slot));
    if (plan_->is_deferred(slot)) blocks_.defer(taken);
    plan_->set_block(slot, taken);
  }
  plan_->note_in_blocks(true);
}

void Arena::take_plan_out_of_blocks() noexcept {
  for (const auto slot : plan_->taken_slots()) blocks_.free(plan_->block(slot));
  blocks_.coalesce_kept();
  blocks_.remove_all_free();
  spans_.deactivate_all();
  plan_->note_in_blocks(false);
}

void Arena::free_planned(std::uint64_t cookie, StreamHandle stream) noexcept {
  const bool elsewhere = stream != StreamHandle{} && stream != this->stream();
  const bool here = allocating_thread_.load(std::memory_order_relaxed) == thread_address();
  if (elsewhere || !here || !lock_.try_lock()) return free_slowly(cookie, stream);
  const std::lock_guard lock(lock_, std::adopt_lock);
  make_planned_free({.cookie = cookie});
}

void Arena::make_planned_free(const PendingFree& free) noexcept {
  const auto slot = plan_->find(free.cookie);
  if (slot == kNone) return destroy_event(free.event);
  const auto size = plan_->size(slot);
  const auto allocated = blocks_.rounded(size);
  if (free.on_other_stream) {
    counts_.before_deferred_changes(deferred_.bytes(), deferred_.count());
    if (plan_->in_blocks()) blocks_.defer(plan_->block(slot));
    plan_->defer(slot);
    deferred_.push({.bytes = allocated,
                    .event = free.event,
                    .is_recorded = free.event != EventHandle{},
                    .slot = slot});
    counts_.free(size, allocated);
    counts_.after_deferred_changed();
  } else {
    end_planned(slot);
    counts_.free(size, allocated);
  }
  end_generation_if_empty();
}

// The slot's memory may be handed out again.
void Arena::end_planned(std::uint32_t slot) noexcept {
  if (plan_->in_blocks()) blocks_.free(plan_->block(slot));
  plan_->end(slot);
}

// Called when spans have been released. The plan's span can be among them only if no slot is in
// use.
void Arena::forget_released_plan() noexcept {
  if (plan_ == nullptr || !plan_->is_mapped()) return;
  const auto is_it = [&](const Span& span) { return span.address == plan_->base(); };
  if (std::none_of(spans_.all().begin(), spans_.all().end(), is_it)) plan_->unmap();
}

}  // namespace emm::pool
