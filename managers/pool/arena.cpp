#include "managers/pool/arena.hpp"

#include <algorithm>
#include <utility>

#include "base/units.hpp"

namespace emm::pool {
namespace {

constexpr auto kPage = Backing::kPage;
constexpr std::uint64_t kSharesAPage = 1_MiB, kStepInAPage = 512;  // of cuMemAlloc (H200)
constexpr std::size_t kSettledAtOnce = 64;
constexpr std::uint64_t kAskFrom = 256_MiB;  // cuMemGetInfo takes 4 us
constexpr std::uint64_t kPiecesFrom =
    1_MiB;  // less is not worth a mapping while there is other memory

constexpr auto in_pages = Backing::in_pages;
bool out_of_memory(const Error& error) noexcept { return error.code == Errc::out_of_memory; }

}  // namespace

Arena::Arena(void* owner, Driver& driver, Backing& backing, StreamHandle stream,
             unsigned granule_shift, bool counts_split)
    : owner_(owner),
      driver_(driver),
      backing_(backing),
      stream_(stream),
      counts_split_(counts_split),
      largest_(Blocks::largest(granule_shift)),
      largest_at_once_(counts_split ? 0 : largest_),
      ends_slowly_(counts_split ? kComposite : 0),
      made_by_(thread_number()),
      blocks_(granule_shift) {}

std::uint64_t Arena::thread_number() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = 1 + threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void Arena::give_addresses_back() noexcept {
  const std::lock_guard lock(lock_);
  leave_ranges();
}

void Arena::leave_ranges() noexcept {
  if (!spans_.empty() || ranges_.empty()) return;
  backing_.is_shared_by_one_less();
  for (const auto& range : ranges_) backing_.free_addresses({range.base}, range.size);
  ranges_.clear();
}

Result<Arena::Taken> Arena::allocate_slowly(std::uint64_t size, bool keeps) {
  if (size >= largest_) return full();
  const std::lock_guard lock(lock_);
  end_what_is_left();
  auto taken = take_at_last(size, keeps);
  if (counts_split_) count_split();
  return taken;
}

Result<Arena::Taken> Arena::take_at_last(std::uint64_t size, bool keeps) {
  const auto granules = blocks_.granules(size);
  if (const auto taken = take(size, granules)) return taken;
  if (blocks_.join_kept()) {
    if (const auto taken = take(size, granules)) return taken;
  }
  driver_refuses_ = kNothing;
  return take_slowly(size, granules, keeps);
}

EventHandle Arena::record(StreamHandle stream) noexcept {
  const auto event = driver_.event_create();
  if (!event) return {};
  if (driver_.event_record(*event, stream)) return *event;
  forget(*event);
  return {};
}

void Arena::forget(EventHandle event) noexcept {
  if (event != EventHandle{}) (void)driver_.event_destroy(event);
}

void Arena::release_slowly(std::uint64_t cookie, StreamHandle stream) noexcept {
  // The default stream has two names.
  const auto also = stream_ == StreamHandle{} ? kLegacyStream : stream_;
  const bool own = stream == stream_ || stream == also;
  // CU_STREAM_PER_THREAD is another stream on every thread, and one alone allocates here.
  const bool elsewhere =
      stream != StreamHandle{} && (!own || (stream == kPerThreadStream && !is_its_thread()));
  const Free free{cookie, elsewhere, elsewhere ? record(stream) : EventHandle{}};
  if (allocates_.load(std::memory_order_relaxed) == this_thread() && lock_.try_lock()) {
    const std::lock_guard lock(lock_, std::adopt_lock);
    end(free);
  } else {
    leave(free);
  }
}

void Arena::leave(const Free& free) noexcept {
  const std::lock_guard lock(inbox_.lock);
  if (free.elsewhere || inbox_.count == inbox_.cookies.size()) {
    overflow_.push_back(free);
    inbox_.overflowed = true;
  } else {
    inbox_.cookies[inbox_.count++] = free.cookie;
  }
  inbox_.filled.store(true, std::memory_order_relaxed);
}

void Arena::empty_inbox() noexcept {
  {
    const std::lock_guard lock(inbox_.lock);
    if (inbox_.overflowed) std::swap(overflow_, ending_);
    for (std::size_t at = 0; at < inbox_.count; ++at) {
      ending_.push_back({inbox_.cookies[at], false, {}});
    }
    inbox_.count = 0;
    inbox_.overflowed = false;
    inbox_.filled.store(false, std::memory_order_relaxed);
  }
  for (const auto& free : ending_) end(free);
  ending_.clear();
}

void Arena::end(std::uint64_t cookie) noexcept { end(Free{cookie, false, {}}); }

void Arena::end(const Free& free) noexcept {
  const auto block = blocks_.find(free.cookie);
  if (block == kNone) return forget(free.event);
  auto event = free.event;
  bool first = true;
  const auto let_go = [&](std::uint32_t part) {
    statistics_.allocated.subtract(blocks_.bytes(blocks_.size(part)));
    if (free.elsewhere) {
      parked_bytes_ += blocks_.bytes(blocks_.size(part));
      blocks_.park(part);
      parked_.push_back({part, std::exchange(event, {}), free.event != EventHandle{}, first});
      first = false;
    } else {
      blocks_.release(part);
    }
  };
  if (free.elsewhere) before_parked_changes();
  statistics_.allocation.subtract(1);
  const auto note = blocks_.note(block);
  if ((note & kComposite) == 0) {
    statistics_.requested.subtract(note);
    let_go(block);
  } else {
    const auto index = static_cast<std::uint32_t>(note);
    auto& composite = composites_[index];
    statistics_.requested.subtract(composite.requested);
    for (const auto part : composite.parts) let_go(part);
    composite.parts.clear();
    idle_composites_.push_back(index);
  }
  if (free.elsewhere) {
    ++parked_count_;
    after_parked_changed();
  }
  if (statistics_.allocation.current == 0 && playing_ > 1) start_over();
  if (counts_split_) count_split();
}

// In order of cost: what waiting on another stream makes free, memory that the arena affords, holes
// that are mapped as one, memory that it has once held in use, holes that are to be mapped as one,
// and more memory than it should have.
Result<Arena::Taken> Arena::take_slowly(std::uint64_t size, std::uint32_t granules, bool keeps) {
  for (;;) {
    if (const auto settled = settle(By::events, kSettledAtOnce); !settled || !*settled) break;
    if (const auto taken = take(size, granules)) return taken;
  }
  if (backing_.kind() == Backing::Kind::cumem) return take_from_slabs(size, granules, keeps);
  const auto wanted = blocks_.bytes(granules);
  if (const auto taken = take_as_before(size, wanted)) return taken;
  const auto playing = playing_;
  const bool grew = has_grown_before(wanted);
  auto enlarged = enlarge(wanted, !grew);
  if (!enlarged && !out_of_memory(enlarged.error())) return std::move(enlarged).error();
  if (enlarged && *enlarged) {
    if (grew) remember_growth(wanted, playing);
    return take_any(size, granules);
  }
  if (wanted >= kPiecesFrom) {
    auto taken = take_in_pieces(size, wanted, 64_KiB);
    if (!taken) return std::move(taken).error();
    if (*taken) return *taken;
  }
  if (enlarged = enlarge(wanted, false); enlarged) {
    if (wanted >= kPiecesFrom) remember_growth(wanted, playing);
    return take_any(size, granules);
  }
  if (out_of_memory(enlarged.error())) {
    if (const auto taken = take_any(size, granules)) return taken;
    auto taken = take_in_pieces(size, wanted, 1);
    if (!taken) return std::move(taken).error();
    if (*taken) return *taken;
  }
  return std::move(enlarged).error();
}

growth::Usage Arena::usage() const noexcept {
  return {.allocated = statistics_.allocated.current,
          .peak = policy_peak_,
          .active_bytes = in_play_,
          .active_spans = playing_,
          .spans = spans_.size(),
          .requests = statistics_.allocation.total - born_,
          .stitched_spans = used_,
          .stitched_in_vain = in_vain_,
          .sharers = backing_.sharers()};
}

std::uint64_t Arena::tail() const noexcept {
  const auto last = blocks_.last();
  if (last == kNone || blocks_.state(last) != Blocks::State::free) return 0;
  return blocks_.bytes(blocks_.size(last));
}

// The bytes of the next spans that have been out of use since the arena started over, until they
// are `needed`.
std::uint64_t Arena::next_in_play(std::uint64_t needed) const noexcept {
  std::uint64_t sum = 0;
  for (auto span = playing_; span < spans_.size() && sum < needed; ++span) sum += spans_[span].size;
  return sum;
}

// The next spans, until they are `bytes` or all. False where none is left.
bool Arena::play(std::uint64_t bytes) noexcept {
  if (playing_ == spans_.size()) return false;
  const bool joins = backing_.kind() == Backing::Kind::vmm;
  for (std::uint64_t sum = 0; playing_ < spans_.size() && sum < bytes;) {
    const auto first = spans_[playing_];
    auto end = first.end();
    ++playing_;
    while (joins && playing_ < spans_.size() && sum + (end - first.address) < bytes &&
           spans_[playing_].address == end) {
      end = spans_[playing_++].end();
    }
    const auto last = blocks_.last();
    const bool joined = joins && last != kNone && end_of(last) == first.address;
    blocks_.extend(joined, first.address, blocks_.granules(end - first.address));
    sum += end - first.address;
    in_play_ += end - first.address;
  }
  return true;
}

// Who begins again with the same requests is to find the same places: the same mappings hold then.
void Arena::start_over() noexcept {
  if (waits()) return;
  blocks_.join_kept();
  blocks_.remove_all_free();
  const auto allocations = statistics_.allocation.total;
  const bool is_worth_it = allocations - std::exchange(born_, allocations) >= blocks_.count() / 2;
  if (is_worth_it && !uses_.parts.empty()) blocks_.renumber();
  std::swap(before_, uses_);
  uses_.uses.clear();
  uses_.parts.clear();
  playing_ = 0;
  in_play_ = 0;
  if (policy_peak_ <= highest_peak_) in_vain_ += made_;
  highest_peak_ = std::max(highest_peak_, std::exchange(policy_peak_, 0));
  made_ = used_ = 0;
  ++life_;
}

// False where that would be more than the arena affords, and `within_means` is asked for.
Result<bool> Arena::enlarge(std::uint64_t wanted, bool within_means) {
  for (;;) {
    const auto had = tail();
    if (had >= wanted) return true;
    const auto needed = in_pages(wanted - had);
    if (playing_ < spans_.size()) {
      const auto next = next_in_play(needed);
      if (within_means && !growth::affords(usage(), next, wanted)) return false;
      play(next);
      continue;
    }
    const auto piece = growth::span_size(usage());
    if (needed < piece && growth::affords(usage(), piece, wanted)) {
      if (auto grown = add_spans(piece, piece)) continue;
    }
    if (within_means && !growth::affords(usage(), needed, wanted)) return false;
    if (auto grown = add_spans(needed, growth::single_span_limit(usage())); !grown) return std::move(grown).error();
  }
}

Status Arena::grow(std::uint64_t size) {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  driver_refuses_ = kNothing;
  const bool in_slabs = backing_.kind() == Backing::Kind::cumem;
  const auto unit = in_slabs ? blocks_.bytes(1) : kPage;
  const auto bytes = std::min(in_pages(size), backing_.max() / unit * unit);
  if (bytes == 0) return full();
  return in_slabs ? add_slab(bytes) : add_spans(bytes, growth::span_size(usage()));
}

// Making handles until the device is full, and undoing that, takes long, and so does it to be
// refused: for one request only less is asked of the driver again. What was free when the device
// was last asked tells when to ask it again.
Status Arena::has_free(std::uint64_t bytes, std::size_t pieces) {
  if (!backing_.allows(bytes) || bytes >= driver_refuses_) return full();
  if ((bytes < kAskFrom && pieces == 1) || bytes <= room_ / 2) return {};
  if (ask_what_is_free() && room_ < bytes) {
    driver_refuses_ = room_ + 1;
    return full();
  }
  return {};
}

bool Arena::ask_what_is_free() noexcept {
  const auto info = driver_.mem_get_info();
  if (info) {
    room_ = info->free;
    backing_.device_has(info->total);
  }
  return info.has_value();
}

// Of what it was asked for.
Status Arena::answered(std::uint64_t bytes, Status by_driver) noexcept {
  if (by_driver) {
    room_ -= std::min(room_, bytes);
  } else if (out_of_memory(by_driver.error()) && backing_.allows(bytes)) {
    driver_refuses_ = ask_what_is_free() ? std::min(room_ + 1, bytes) : bytes;
  }
  return by_driver;
}

// In the last range.
std::uint64_t Arena::addresses_left() const noexcept {
  return ranges_.empty() ? 0 : ranges_.back().base + ranges_.back().size - next_address_;
}

Status Arena::use_range_for(std::uint64_t bytes) {
  if (bytes <= addresses_left()) return {};
  const auto size = growth::address_range_size(bytes, backing_.sharers());
  auto base = backing_.reserve_addresses(size);
  if (!base) return std::move(base).error();
  if (ranges_.empty()) backing_.is_shared_by_another();
  ranges_.push_back({.base = base->value, .size = size, .spans = {}});
  next_address_ = base->value;
  return {};
}

void Arena::put_in_order(std::uint32_t span) {
  by_address_.insert(by_address_.begin() + place_from(spans_[span].address), span);
  if (backing_.kind() == Backing::Kind::vmm) name_pages(span);
}

// Up to `in_one` bytes one span, else smaller ones towards both ends, where blocks of other sizes
// will begin and end. The memory of those `behind` is mapped once more, behind them.
Status Arena::add_spans(std::uint64_t bytes, std::uint64_t in_one, std::span<const Span> behind) {
  play(~std::uint64_t{0});
  const auto sizes = growth::span_sizes(usage(), bytes, in_one);
  if (auto done = has_free(bytes, sizes.size()); !done) return done;
  const auto all = bytes + size_of(behind);
  if (auto done = use_range_for(all); !done) return done;
  const auto first = static_cast<std::uint32_t>(spans_.size());
  const auto failures = backing_.failures();
  if (auto done = answered(bytes, backing_.create(next_address_, sizes, behind, spans_)); !done) {
    if (backing_.failures() != failures) leave_range();
    return done;
  }
  next_address_ += all;
  for (auto span = first; span < spans_.size(); ++span) put_in_order(span);
  count_segments();
  play(bytes);
  return {};
}

// All but the one that is being filled.
void Arena::leave_empty_ranges() noexcept {
  const auto is_empty = [&](const Range& range) {
    return &range != &ranges_.back() &&
           std::none_of(spans_.begin(), spans_.end(),
                        [&](const Span& span) { return span.address - range.base < range.size; });
  };
  std::vector<Range> kept;
  for (auto& range : ranges_) {
    if (is_empty(range)) {
      backing_.free_addresses({range.base}, range.size);
    } else {
      kept.push_back(std::move(range));
    }
  }
  ranges_ = std::move(kept);
}

// Something may be mapped there still.
void Arena::leave_range() noexcept {
  ranges_.back().left = true;
  next_address_ = ranges_.back().base + ranges_.back().size;
}

Status Arena::add_slab(std::uint64_t bytes) {
  if (bytes <= kSharesAPage && blocks_.bytes(1) > kStepInAPage) return full();
  if (auto done = has_free(bytes, 1); !done) return done;
  auto span = backing_.allocate(bytes);
  if (auto done = answered(bytes, span ? Status() : Status(span.error())); !done) return done;
  spans_.push_back(*span);
  put_in_order(static_cast<std::uint32_t>(spans_.size() - 1));
  count_segments();
  play(~std::uint64_t{0});
  return {};
}

// A slab for `size` and what may follow; one of its own where that would be half of it, or
// where `max` is near.
Result<Arena::Taken> Arena::take_from_slabs(std::uint64_t size, std::uint32_t granules,
                                            bool keeps) {
  while (play(1)) {
    if (const auto taken = take(size, granules)) return taken;
  }
  const auto room = backing_.max() - std::min(backing_.max(), backing_.reserved_bytes());
  const auto left = room / blocks_.bytes(1) * blocks_.bytes(1);  // blocks end where the slab does
  const auto slab = growth::slab_size(usage());
  if (!keeps) make_place_for(std::max(slab, in_pages(size)), blocks_.bytes(granules));
  const auto alone = std::max(std::min(in_pages(size), left), blocks_.bytes(granules));
  Status grown = full();
  if (alone < slab / 2 && slab <= left / growth::kConstants.slabs_left_least) grown = add_slab(slab);
  if (!grown && out_of_memory(grown.error())) grown = add_slab(alone);
  if (!grown && out_of_memory(grown.error())) {
    if (const auto taken = take_any(size, granules)) return taken;
  }
  if (!grown) return std::move(grown).error();
  return take(size, granules);
}

// Idle slabs go, the smallest first, where there would be a sixteenth more than was ever in use:
// what is too small for a request is too small for the next such one. So the slabs grow to what the
// program asks for, and none goes any more.
void Arena::make_place_for(std::uint64_t bytes, std::uint64_t wanted) {
  const auto limit = growth::slab_limit(usage(), wanted);
  if (in_play_ + bytes <= limit) return;
  auto idle = idle_spans(0);
  std::sort(idle.begin(), idle.end(), [&](std::uint32_t a, std::uint32_t b) {
    return spans_[a].size != spans_[b].size ? spans_[a].size < spans_[b].size : a < b;
  });
  std::uint64_t sum = 0;
  std::size_t count = 0;
  while (count < idle.size() && in_play_ + bytes - sum > limit) sum += spans_[idle[count++]].size;
  idle.resize(count);
  if (idle.empty()) return;
  take_out_of_play(idle);
  forget(idle);
}

// Work of this stream comes after what had been put on the others when they freed their memory. By
// `context` where this stream may be gone: nobody asks for memory on it.
// What cannot be ordered waits on. Of the oldest `most`, or all where the context was waited for.
// False where nothing waited.
Result<bool> Arena::settle(By by, std::size_t most) noexcept {
  if (!waits()) return false;
  auto end = settled_ + std::min(most, parked_.size() - settled_);
  bool ordered = by == By::events;
  for (auto at = settled_; at < end && ordered; ++at) {
    const auto& parked = parked_[at];
    ordered = parked.recorded &&
              (parked.event == EventHandle{} || driver_.stream_wait_event(stream_, parked.event));
  }
  if (!ordered) {
    if (auto done = driver_.ctx_synchronize(); !done) return std::move(done).error();
    end = parked_.size();
  }
  before_parked_changes();
  for (; settled_ < end; ++settled_) {
    const auto& parked = parked_[settled_];
    forget(parked.event);
    parked_bytes_ -= blocks_.bytes(blocks_.size(parked.block));
    if (parked.first) --parked_count_;
    blocks_.release(parked.block);
  }
  blocks_.join_kept();
  if (2 * settled_ >= parked_.size()) {
    parked_.erase(parked_.begin(),
                  parked_.begin() + static_cast<std::ptrdiff_t>(std::exchange(settled_, 0)));
  }
  after_parked_changed();
  return true;
}

// Nothing that this stream was given runs any more. A program may have ended it, and no driver may
// be asked of a stream that is gone (it crashes: H200); those of CUDA's own stay. False where it
// still runs, and is not waited for.
Result<bool> Arena::finish(bool wait) noexcept {
  if (!wait && (stream_ == StreamHandle{} || (stream_ == kPerThreadStream && is_its_thread()))) {
    const auto done = driver_.stream_query(stream_);
    return done && *done;
  }
  if (auto done = driver_.ctx_synchronize(); !done) return std::move(done).error();
  if (auto settled = settle(By::context, parked_.size()); !settled) return settled;
  return true;
}

// Memory that another stream freed waits on: this stream may be handed it again.
void Arena::release_all() noexcept {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  epoch_.advance();
  before_parked_changes();
  statistics_.requested.current = 0;
  statistics_.allocated.current = 0;
  statistics_.allocation.current = 0;
  after_parked_changed();
  composites_.clear();
  idle_composites_.clear();
  if (!waits()) {
    blocks_.clear();
  } else {
    blocks_.for_each([&](std::uint32_t block) {
      if (blocks_.state(block) == Blocks::State::used) blocks_.release(block);
    });
  }
  start_over();
  if (counts_split_) count_split();
}

// Those out of play, the last first, and those that no block in use or waiting reaches into.
std::vector<std::uint32_t> Arena::idle_spans(std::uint64_t keep) const {
  std::vector<std::uint32_t> idle;
  const auto reserved = backing_.reserved_bytes();
  std::uint64_t sum = 0;
  const auto add = [&](std::uint32_t span) {
    if (reserved - std::min(reserved, sum) <= keep) return;
    sum += spans_[span].size;
    idle.push_back(span);
  };
  for (auto span = static_cast<std::uint32_t>(spans_.size()); span-- > playing_;) add(span);
  blocks_.for_each_free(blocks_.granules(smallest_span()), [&](std::uint32_t block) {
    const auto end = end_of(block);
    auto place = by_address_.begin() + place_from(blocks_.address(block));
    for (; place != by_address_.end() && spans_[*place].end() <= end; ++place) {
      if (*place < playing_) add(*place);
    }
  });
  return idle;
}

void Arena::take_out_of_play(std::vector<std::uint32_t> idle) {
  idle.erase(std::remove_if(idle.begin(), idle.end(),
                            [&](std::uint32_t span) { return span >= playing_; }),
             idle.end());
  std::vector<std::uint32_t> holes;
  blocks_.for_each_free(1, [&](std::uint32_t block) { holes.push_back(block); });
  std::sort(idle.begin(), idle.end(), [&](std::uint32_t a, std::uint32_t b) {
    return spans_[a].address < spans_[b].address;
  });
  std::sort(holes.begin(), holes.end(), [&](std::uint32_t a, std::uint32_t b) {
    return blocks_.address(a) < blocks_.address(b);
  });
  auto hole = holes.begin();
  for (const auto span : idle) {
    while (*hole == kNone || end_of(*hole) <= spans_[span].address) ++hole;
    const auto block = blocks_.cut(*hole, spans_[span].address);
    *hole = end_of(block) > spans_[span].end() ? blocks_.cut(block, spans_[span].end()) : kNone;
    blocks_.remove(block);
    in_play_ -= spans_[span].size;
  }
}

void Arena::give_back(std::uint64_t keep, bool wait) {
  const std::lock_guard lock(lock_);
  end_what_is_left();
  give_idle_back(keep, wait);
  // Streams may come without end, and addresses do not.
  const bool any_left =
      std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) { return range.left; });
  if (wait && !any_left) leave_ranges();
  if (counts_split_) count_split();
}

void Arena::give_idle_back(std::uint64_t keep, bool wait) {
  blocks_.join_kept();
  if (backing_.reserved_bytes() <= keep || spans_.empty()) return;
  if (statistics_.allocation.current == 0 || (wait && waits())) {
    if (auto settled = settle(By::context, parked_.size()); !settled) {
      return backing_.note(std::move(settled).error());
    }
    if (statistics_.allocation.current == 0) start_over();
  }
  auto idle = idle_spans(keep);
  if (idle.empty()) return;
  // cuMemFree waits by itself, cuMemUnmap does not (H200).
  if (backing_.kind() == Backing::Kind::vmm) {
    auto finished = finish(wait);
    if (!finished) return backing_.note(std::move(finished).error());
    if (!*finished) return;
    idle = idle_spans(keep);
  }
  take_out_of_play(idle);
  forget(idle);
}

void Arena::forget(const std::vector<std::uint32_t>& idle) {
  ends_.clear();
  touched_.clear();
  holes_.clear();
  before_ = uses_ = {};
  const auto failures = backing_.failures();
  std::vector<std::uint32_t> names(spans_.size(), 0);
  for (const auto span : idle) names[span] = kNone;
  const auto gone = [&](std::uint32_t span) { return names[span] == kNone; };
  std::vector<Span> mapped;
  for (const auto& mapping : mappings_) {
    if (std::none_of(mapping.spans.begin(), mapping.spans.end(), gone)) continue;
    mapped.clear();
    for (const auto span : mapping.again()) mapped.push_back(spans_[span]);
    backing_.unmap(mapping.address_again(), mapped);
    if (mapping.at_home == 0) backing_.free_addresses(mapping.base, mapping.size);
  }
  mappings_.erase(std::remove_if(mappings_.begin(), mappings_.end(),
                                 [&](const Mapping& mapping) {
                                   return std::any_of(mapping.spans.begin(), mapping.spans.end(),
                                                      gone);
                                 }),
                  mappings_.end());
  for (const auto span : idle) backing_.give_back(spans_[span]);

  std::uint32_t kept = 0;
  auto playing = playing_;
  for (std::uint32_t span = 0; span < spans_.size(); ++span) {
    if (gone(span)) {
      if (span < playing_) --playing;
      continue;
    }
    names[span] = kept;
    spans_[kept++] = spans_[span];
  }
  spans_.resize(kept);
  playing_ = playing;
  for (auto& mapping : mappings_) {
    for (auto& span : mapping.spans) span = names[span];
  }
  by_address_.erase(std::remove_if(by_address_.begin(), by_address_.end(), gone),
                    by_address_.end());
  for (auto& span : by_address_) span = names[span];
  count_segments();
  if (ranges_.empty()) return;
  if (backing_.failures() == 0) leave_empty_ranges();
  for (auto span = 0u; span < spans_.size(); ++span) name_pages(span);
  if (backing_.failures() != failures || ranges_.back().left) return leave_range();
  next_address_ = ranges_.back().base;
  const auto ends_at = [&](std::uint64_t address, std::uint64_t end) {
    if (address - ranges_.back().base < ranges_.back().size)
      next_address_ = std::max(next_address_, end);
  };
  for (const auto& span : spans_) ends_at(span.address, span.end());
  for (const auto& mapping : mappings_) {
    if (mapping.at_home > 0) ends_at(mapping.base.value, mapping.base.value + mapping.size);
  }
}

}  // namespace emm::pool
