// Requests and frees: which parts the arena asks, in which order.
#include "managers/pool/arena.hpp"

#include <algorithm>
#include <utility>

#include "base/units.hpp"

namespace emm::pool {
namespace {

using growth::kConstants;

}  // namespace

Arena::Arena(void* owner, Driver& driver, Backing& backing, StreamHandle stream,
             unsigned granule_shift, bool counts_split, PlanBook* book, const Arenas* others)
    : owner_(owner),
      driver_(driver),
      backing_(backing),
      stream_(stream.value),
      counts_split_(counts_split),
      largest_(BlockMap::largest(granule_shift)),
      fast_below_(counts_split || book != nullptr ? 0 : largest_),
      slow_frees_(counts_split || book != nullptr ? kStitched : 0),
      made_by_(thread_number()),
      blocks_(granule_shift),
      device_room_(driver, backing),
      others_(others),
      book_(counts_split ? nullptr : book) {}

std::uint64_t Arena::thread_number() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = 1 + threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

growth::Usage Arena::usage() const noexcept {
  return {.allocated = counts_.allocated(),
          .peak = generation_.peak(),
          .active_bytes = spans_.active_bytes(),
          .active_spans = spans_.active_count(),
          .spans = spans_.count(),
          .requests = generation_.requests(counts_.allocations_ever()),
          .stitched_spans = generation_.stitched_spans(),
          .stitched_in_vain = generation_.stitched_in_vain(),
          .sharers = backing_.sharers()};
}

bool Arena::is_of(StreamHandle stream) const noexcept {
  if (stream == kLegacyStream) stream = {};
  return stream == this->stream() && (stream != kPerThreadStream || is_own_per_thread_stream());
}

bool Arena::note_another_thread(StreamHandle stream) noexcept {
  if (!is_of(stream)) return false;
  allocating_thread_.store(thread_address(), std::memory_order_relaxed);
  return true;
}

Result<Arena::Allocation> Arena::allocate(std::uint64_t size, StreamHandle stream,
                                          bool keeps_idle) {
  if (size >= largest_) return full();
  const std::lock_guard lock(lock_);
  if (!note_allocating_thread(stream)) return Allocation();
  make_remote_frees();
  // ask_for_idle() has led this request here.
  if (fast_below_.load(std::memory_order_relaxed) == 0 && may_lend())
    fast_below_.store(largest_, std::memory_order_relaxed);
  if (follows_plan()) {
    // Another thread may have brought the plan to this request meanwhile.
    if (const auto taken = take_planned(size)) return taken;
    plan_->note_deviation();
    leave_plan();
  }
  keeps_idle_ = keeps_idle;
  const auto granules = blocks_.granules(size);
  auto found = find({.size = size,
                     .granules = granules,
                     .wanted = blocks_.bytes(granules),
                     .keeps_idle = keeps_idle});
  if (counts_split_) count_split();
  if (asked_.load(std::memory_order_relaxed)) start_lending();
  if (is_note_due()) note_work();
  return found;
}

// Tries the ways to find memory, the cheapest first. The step numbers are those of
// managers/pool/README.md; the manager itself makes the first and the last step.
Result<Arena::Allocation> Arena::find(const Request& request) {
  // 2. A free block, after the kept blocks are coalesced if need be.
  if (const auto found = from_free_blocks(request)) return found;
  // 3. Memory that was freed on other streams.
  if (!deferred_.is_empty()) {
    if (const auto found = from_deferred_frees(request)) return found;
  }
  device_room_.begin_request();
  return maps() ? from_spans(request) : from_slabs(request);
}

Arena::Allocation Arena::from_free_blocks(const Request& request) {
  if (const auto found = use(blocks_.allocate(request.granules), request.size)) return found;
  if (!blocks_.coalesce_kept()) return {};
  return use(blocks_.allocate(request.granules), request.size);
}

// Looks at all free blocks, so it finds one if there is one.
Arena::Allocation Arena::from_any_free_block(const Request& request) {
  if (const auto found = use(blocks_.allocate(request.granules), request.size)) return found;
  return use(blocks_.allocate_any(request.granules), request.size);
}

// Finishes the oldest first and stops when the request fits, since each wait orders this stream
// behind another.
Arena::Allocation Arena::from_deferred_frees(const Request& request) {
  for (;;) {
    const auto finished = finish_deferred_frees(OrderBy::events, kConstants.deferred_frees_at_once);
    if (!finished || !*finished) return {};
    if (const auto found = use(blocks_.allocate(request.granules), request.size)) return found;
  }
}

// backing=vmm.
Result<Arena::Allocation> Arena::from_spans(const Request& request) {
  const auto failed = [](const auto& result) {
    return !result && !is_out_of_memory(result.error());
  };
  // 4. The stitched block that the last generation used here.
  if (const auto found = replay_stitch(request)) return found;

  // 5. Inactive spans, then new ones, within the policy's limit; without a limit if the last
  // generation looked here for a stitched block in vain.
  const auto active_before = spans_.active_count();
  const bool expects_growth = stitches_.expects_growth(request.wanted, active_before);
  auto grown = make_room_at_tail(request.wanted, expects_growth ? Limit::none : Limit::policy);
  if (failed(grown)) return std::move(grown).error();
  if (grown && *grown) {
    // The next generation knows only what this one records.
    if (expects_growth) remember_growth(request.wanted, active_before);
    return from_any_free_block(request);
  }

  // 6. A stitched block, in an existing mapping or a new one.
  if (request.wanted >= kConstants.stitch_from) {
    auto stitched = stitch(request, kConstants.stitched_part_least);
    if (!stitched || *stitched) return stitched;
  }

  // 7. Inactive spans beyond the policy's limit. If these are not enough, all spans are active now:
  // a new stitched block of what is free takes less from the driver than growth does.
  if (!spans_.all_are_active()) {
    grown = make_room_at_tail(request.wanted, Limit::reserved);
    if (grown && *grown) {
      if (request.wanted >= kConstants.stitch_from) remember_growth(request.wanted, active_before);
      return from_any_free_block(request);
    }
    if (request.wanted >= kConstants.stitch_from) {
      auto stitched = stitch(request, kConstants.stitched_part_least);
      if (!stitched || *stitched) return stitched;
    }
  }

  // 8. Growth beyond the policy's limit.
  grown = make_room_at_tail(request.wanted, Limit::none);
  if (grown) {
    if (request.wanted >= kConstants.stitch_from) remember_growth(request.wanted, active_before);
    return from_any_free_block(request);
  }
  if (failed(grown)) return std::move(grown).error();

  // 9. Memory has run out: any free block, and a stitched block of the smallest parts.
  if (const auto found = from_any_free_block(request)) return found;
  auto stitched = stitch(request, 1);
  if (!stitched || *stitched) return stitched;
  return std::move(grown).error();
}

// backing=cumem. Adds a slab that this request shares with later ones. Adds a slab for this request
// alone if it needs at least half a slab, or if `max` is near.
Result<Arena::Allocation> Arena::from_slabs(const Request& request) {
  while (activate(1)) {
    if (const auto found = use(blocks_.allocate(request.granules), request.size)) return found;
  }
  const auto room = backing_.max() - std::min(backing_.max(), backing_.reserved_bytes());
  const auto left = room / blocks_.bytes(1) *
                    blocks_.bytes(1);  // whole granules, so that the last block ends with the slab
  const auto pages = Backing::in_pages(request.size);
  const auto slab = growth::slab_size(usage());
  if (!request.keeps_idle) release_small_slabs(std::max(slab, pages), request.wanted);
  const auto alone = std::max(std::min(pages, left), request.wanted);
  Status grown = full();
  if (alone < slab / 2 && slab <= left / kConstants.slabs_left_least) grown = add_slab(slab);
  if (!grown && is_out_of_memory(grown.error())) grown = add_slab(alone);
  if (grown) return use(blocks_.allocate(request.granules), request.size);
  if (is_out_of_memory(grown.error())) {
    if (const auto found = from_any_free_block(request)) return found;
  }
  return std::move(grown).error();
}

void Arena::free_slowly(std::uint64_t cookie, StreamHandle stream) noexcept {
  // The default stream has two names. CU_STREAM_PER_THREAD is another stream on every thread, and
  // only one thread allocates from its arena.
  const auto own = this->stream();
  const auto other_name = own == StreamHandle{} ? kLegacyStream : own;
  const bool is_own = (stream == own || stream == other_name) &&
                      (stream != kPerThreadStream || is_own_per_thread_stream());
  const bool on_other_stream = stream != StreamHandle{} && !is_own;
  // The event is recorded here, before any lock: it must cover the work that the caller has put on
  // `stream` up to this free, even if the free is made much later.
  const PendingFree free{.cookie = cookie,
                         .on_other_stream = on_other_stream,
                         .event = on_other_stream ? record_event(stream) : EventHandle{}};
  if (allocating_thread_.load(std::memory_order_relaxed) == thread_address() && lock_.try_lock()) {
    const std::lock_guard lock(lock_, std::adopt_lock);
    make_free(free);
    if (!on_other_stream) freed_here(stream);
  } else {
    remote_frees_.push(free);
  }
}

std::uint64_t Arena::make_and_count_frees() noexcept {
  const std::lock_guard lock(lock_);
  // Not make_remote_frees(), which may miss a free that another thread has just queued. The reclaim
  // ladder compares this number to decide whether to look again.
  make_all_remote_frees();
  return counts_.allocations_ever() - counts_.allocations();
}

void Arena::make_own_free(std::uint64_t cookie, StreamHandle stream) noexcept {
  make_free({.cookie = cookie});
  if (lends_ || counts_.allocations() == 0) freed_here(stream);
}

void Arena::make_all_remote_frees() noexcept {
  for (const auto& free : remote_frees_.take_all()) make_free(free);
}

void Arena::make_free(const PendingFree& free) noexcept {
  if (PlanFollower::is_cookie(free.cookie)) return make_planned_free(free);
  const auto block = blocks_.find(free.cookie);
  // The block was freed twice, or end_all() ended it. Only this free owns the event.
  if (block == kNone) return destroy_event(free.event);
  const bool defers = free.on_other_stream;
  DeferredFree deferred{.event = free.event, .is_recorded = free.event != EventHandle{}};
  std::uint64_t allocated = 0;
  if (lends_) ++tracked_frees_;
  const auto end_use = [&](std::uint32_t part) {
    if (lends_ && !defers) track_free(part);
    const auto bytes = blocks_.bytes_of(part);
    allocated += bytes;
    if (!defers) return blocks_.free(part);
    blocks_.defer(part);
    deferred.block = part;
    deferred.bytes = bytes;
    deferred_.push(deferred);
    // The parts of a stitched block follow one another in the queue: the wait for the first part's
    // event orders the others, too.
    deferred.event = {};
    deferred.is_first = false;
  };
  // Before the first part moves from allocated to deferred: until now, active was allocated plus
  // the deferred bytes (UsageCounts).
  if (defers) counts_.before_deferred_changes(deferred_.bytes(), deferred_.count());
  auto requested = blocks_.payload(block);
  if ((requested & kStitched) == 0) {
    end_use(block);
  } else {
    const auto index = static_cast<std::uint32_t>(requested);
    requested = stitched_[index].requested;
    for (const auto part : stitched_[index].parts) end_use(part);
    stitched_.erase(index);
  }
  counts_.free(requested, allocated);
  if (defers) counts_.after_deferred_changed();
  end_generation_if_empty();
  if (counts_split_) count_split();
}

void Arena::end_generation_if_empty() noexcept {
  if (counts_.allocations() == 0 && spans_.active_count() > 1) begin_generation();
  if (plan_ == nullptr) return;
  if (counts_.allocations() == 0) plan_->note_empty();
  // The next request asks the plan first.
  if (may_follow_plan()) fast_below_.store(0, std::memory_order_relaxed);
}

// With OrderBy::events the arena's stream waits for the recorded events, and no thread waits. With
// OrderBy::context the thread waits for the context: this serves frees without an event, and arenas
// whose stream the program may have destroyed. Frees that cannot be ordered stay deferred. False if
// no free was deferred.
Result<bool> Arena::finish_deferred_frees(OrderBy by, std::size_t most) noexcept {
  if (deferred_.is_empty()) return false;
  const auto oldest = deferred_.oldest(most);
  auto count = oldest.size();
  const auto is_ordered = [&](const DeferredFree& free) {
    if (!free.is_recorded || free.event == EventHandle{}) return free.is_recorded;
    if (!driver_.stream_wait_event(stream(), free.event)) return false;
    backing_.note_stream_wait();
    return true;
  };
  // all_of() stops at the first free that cannot be ordered. Then the thread waits for the context,
  // which orders every deferred free, so all are popped.
  if (by == OrderBy::context || !std::all_of(oldest.begin(), oldest.end(), is_ordered)) {
    if (auto done = driver_.ctx_synchronize(); !done) return std::move(done).error();
    count = deferred_.size();
  }
  counts_.before_deferred_changes(deferred_.bytes(), deferred_.count());
  deferred_.pop(count, [&](const DeferredFree& free) {
    // The event may go: a wait that a stream has begun outlasts its event (cuEventDestroy).
    destroy_event(free.event);
    if (lends_) track_free(free.block);
    if (free.slot == kNone) return blocks_.free(free.block);
    end_planned(free.slot);
  });
  blocks_.coalesce_kept();
  counts_.after_deferred_changed();
  return true;
}

EventHandle Arena::record_event(StreamHandle stream) noexcept {
  const auto event = driver_.event_create();
  if (!event) return {};
  if (driver_.event_record(*event, stream)) return *event;
  destroy_event(*event);
  return {};
}

void Arena::destroy_event(EventHandle event) noexcept {
  if (event != EventHandle{}) (void)driver_.event_destroy(event);
}

// A program that makes the same requests again finds the same places, so the same mappings fit.
// Renumbering the records costs time for each, so it happens only after enough requests, and only
// if the history names records.
void Arena::begin_generation() noexcept {
  // A deferred block keeps its addresses in the map, and a generation begins with an empty map.
  if (!deferred_.is_empty()) return;
  blocks_.coalesce_kept();
  blocks_.remove_all_free();
  const auto requests_ever = counts_.allocations_ever();
  const bool is_worth_it = generation_.requests(requests_ever) >= blocks_.count() / 2;
  if (is_worth_it && stitches_.has_stitched()) blocks_.renumber();
  stitches_.begin_generation();
  spans_.deactivate_all();
  generation_.begin_next(requests_ever);
}

// Deferred frees stay deferred, since their memory may be handed out on this stream again.
void Arena::end_all() noexcept {
  const std::lock_guard lock(lock_);
  make_remote_frees();
  // From here on no pointer runs its finalizer. A finalizer that is already running waits for the
  // lock or queues its free, and its cookie then names nothing.
  epoch_.advance();
  if (follows_plan()) leave_plan();
  if (plan_ != nullptr) plan_->end_all_used();
  counts_.before_deferred_changes(deferred_.bytes(), deferred_.count());
  counts_.free_all();
  counts_.after_deferred_changed();
  is_noted_ = false;
  stitched_.clear();
  if (deferred_.is_empty()) {
    blocks_.clear();
  } else {
    blocks_.for_each([&](std::uint32_t block) {
      if (blocks_.state(block) == BlockMap::State::used) blocks_.free(block);
    });
  }
  begin_generation();
  end_generation_if_empty();
  if (counts_split_) count_split();
}

}  // namespace emm::pool
