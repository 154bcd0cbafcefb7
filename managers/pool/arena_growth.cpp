// What an arena takes from the driver and releases to it: spans, slabs and addresses.
#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "managers/pool/arena.hpp"

namespace emm::pool {
namespace {

// Up to 1 MiB, cuMemAlloc places memory in a page that other allocations share, at a multiple of
// 512 bytes (H200).
constexpr std::uint64_t kSharesAPage = 1_MiB, kStepInAPage = 512;

}  // namespace

// The free bytes at the end of the run of addresses that was activated last.
std::uint64_t Arena::free_tail() const noexcept {
  const auto last = blocks_.last();
  const bool is_free = last != kNone && blocks_.state(last) == BlockMap::State::free;
  return is_free ? blocks_.bytes_of(last) : 0;
}

// Activates inactive spans until they reach `bytes` or none is left. False if none was inactive.
bool Arena::activate(std::uint64_t bytes) noexcept {
  if (spans_.all_are_active()) return false;
  const bool joins = maps();
  for (std::uint64_t sum = 0; !spans_.all_are_active() && sum < bytes;) {
    const auto run = spans_.activate_next(bytes - sum, joins);
    const auto last = blocks_.last();
    const bool follows = joins && last != kNone && blocks_.end(last) == run.address;
    blocks_.extend(follows, run.address, blocks_.granules(run.size));
    sum += run.size;
  }
  return true;
}

// Makes the free tail large enough: first from inactive spans, then from new ones. False if the
// policy does not afford them.
Result<bool> Arena::make_room_at_tail(std::uint64_t wanted, Limit limit) {
  const auto allows = [&](std::uint64_t bytes) {
    return limit != Limit::policy || growth::affords(usage(), bytes, wanted);
  };
  // An activated span may lie elsewhere than behind the tail. A new tail then begins there, and the
  // loop goes on until it is long enough.
  for (;;) {
    const auto had = free_tail();
    if (had >= wanted) return true;
    const auto needed = Backing::in_pages(wanted - had);
    if (!spans_.all_are_active()) {
      const auto next = spans_.next_inactive_bytes(needed);
      if (!allows(next)) return false;
      activate(next);
      continue;
    }
    if (limit == Limit::reserved) return false;
    if (borrow(wanted)) return true;
    const auto span = growth::span_size(usage());
    if (needed < span && growth::affords(usage(), span, wanted)) {
      if (add_spans(span, span)) continue;
    }
    if (!allows(needed)) return false;
    if (auto grown = add_spans(needed, growth::single_span_limit(usage())); !grown)
      return std::move(grown).error();
  }
}

Status Arena::reserve(std::uint64_t size) {
  const std::lock_guard lock(lock_);
  make_remote_frees();
  device_room_.begin_request();
  const auto unit = maps() ? Backing::kPage : blocks_.bytes(1);
  const auto bytes = std::min(Backing::in_pages(size), backing_.max() / unit * unit);
  if (bytes == 0) return full();
  return maps() ? add_spans(bytes, growth::span_size(usage())) : add_slab(bytes);
}

// Adds new spans. The memory of the spans `aliased_behind` is mapped a second time, behind them.
Status Arena::add_spans(std::uint64_t bytes, std::uint64_t single_span_limit,
                        std::span<const Span> aliased_behind) {
  // Spans become active in the order in which the driver gave them, so inactive ones must precede
  // new ones.
  activate(~std::uint64_t{0});
  const auto sizes = growth::span_sizes(usage(), bytes, single_span_limit);
  borrow_by_release(bytes);
  if (auto done = device_room_.may_ask(bytes, sizes.size()); !done) return done;
  const auto all = bytes + size_of(aliased_behind);
  if (auto done = reserve_addresses_for(all); !done) return done;
  auto& addresses = spans_.addresses();
  const auto failures = backing_.failures();
  std::vector<Span> made;
  const auto answer = backing_.create(addresses.next(), sizes, aliased_behind, made);
  if (auto done = device_room_.note(bytes, answer); !done) {
    // If the undoing failed, something may still be mapped here.
    if (backing_.failures() != failures) addresses.abandon_last();
    return done;
  }
  // The aliases behind the new spans take addresses of the range, too.
  addresses.advance(all);
  for (const auto& span : made) spans_.add(span);
  counts_.set_segments(spans_.segment_count());
  activate(bytes);
  return {};
}

Status Arena::reserve_addresses_for(std::uint64_t bytes) {
  auto& addresses = spans_.addresses();
  if (bytes <= addresses.left()) return {};
  const auto size = growth::address_range_size(bytes, backing_.sharers());
  const auto base = backing_.reserve_addresses(size);
  if (!base) return base.error();
  if (addresses.is_empty()) backing_.add_sharer();
  addresses.add(base->value, size);
  return {};
}

Status Arena::add_slab(std::uint64_t bytes) {
  if (bytes <= kSharesAPage && blocks_.bytes(1) > kStepInAPage) return full();
  if (auto done = device_room_.may_ask(bytes, 1); !done) return done;
  const auto slab = backing_.allocate(bytes);
  if (auto done = device_room_.note(bytes, slab ? Status() : Status(slab.error())); !done)
    return done;
  spans_.add(*slab);
  counts_.set_segments(spans_.segment_count());
  activate(~std::uint64_t{0});
  return {};
}

// Releases idle slabs, the smallest first, if `bytes` more would exceed the limit. A slab that is
// too small for this request is too small for the next like it. So slabs become as large as the
// program's requests, and then the releases stop.
void Arena::release_small_slabs(std::uint64_t bytes, std::uint64_t wanted) {
  const auto limit = growth::slab_limit(usage(), wanted);
  const auto held = spans_.active_bytes() + bytes;
  if (held <= limit) return;
  auto idle = idle_spans(0);
  std::sort(idle.begin(), idle.end(), [&](std::uint32_t a, std::uint32_t b) {
    return spans_[a].size != spans_[b].size ? spans_[a].size < spans_[b].size : a < b;
  });
  std::uint64_t sum = 0;
  std::size_t count = 0;
  while (count < idle.size() && held - sum > limit) sum += spans_[idle[count++]].size;
  idle.resize(count);
  if (!idle.empty()) release_spans(idle);
}

bool Arena::release_idle(std::uint64_t keep, bool wait) {
  const std::unique_lock lock =
      wait ? std::unique_lock(lock_) : std::unique_lock(lock_, std::try_to_lock);
  if (!lock) return false;
  make_all_remote_frees();
  {
    const PlanInBlocks in_blocks(*this);
    release_idle_spans(keep, wait);
  }
  // A program may create new streams without end, and addresses are limited.
  const auto& addresses = spans_.addresses();
  if (wait && !addresses.any_is_abandoned() && !addresses.any_is_lent() && spans_.is_empty())
    free_ranges(spans_.addresses().take_all());
  if (counts_split_) count_split();
  return true;
}

void Arena::release_idle_spans(std::uint64_t keep, bool wait) {
  blocks_.coalesce_kept();
  if (backing_.reserved_bytes() <= keep || spans_.is_empty()) return;
  if (counts_.allocations() == 0 || (wait && !deferred_.is_empty())) {
    const auto finished = finish_deferred_frees(OrderBy::context, deferred_.size());
    if (!finished) return backing_.note(finished.error());
    if (counts_.allocations() == 0) begin_generation();
  }
  auto idle = idle_spans(keep);
  if (idle.empty()) return;
  // cuMemFree waits for the device by itself; cuMemUnmap does not (H200).
  if (maps()) {
    const auto unused = wait_until_unused(wait);
    if (!unused) return backing_.note(unused.error());
    if (!*unused) return;
    // Look again: the wait may have finished deferred frees, and other arenas may have released
    // memory.
    idle = idle_spans(keep);
  }
  release_spans(idle);
}

// Lists the spans to release until the pool holds `keep` bytes: inactive spans, the last first,
// then active spans that no used or deferred block reaches into.
std::vector<std::uint32_t> Arena::idle_spans(std::uint64_t keep) const {
  std::vector<std::uint32_t> idle;
  const auto reserved = backing_.reserved_bytes();
  std::uint64_t sum = 0;
  const auto add = [&](std::uint32_t span) {
    if (reserved - std::min(reserved, sum) <= keep) return;
    sum += spans_[span].size;
    idle.push_back(span);
  };
  for (auto span = spans_.count(); span-- > spans_.active_count();) add(span);
  blocks_.for_each_free(blocks_.granules(smallest_span()), [&](std::uint32_t block) {
    spans_.for_each_within(blocks_.address(block), blocks_.end(block), [&](std::uint32_t span) {
      if (spans_.is_active(span)) add(span);
    });
  });
  return idle;
}

// A slab may be smaller than a page if `max` is near.
std::uint64_t Arena::smallest_span() const noexcept {
  auto least = Backing::kPage;
  if (!spans_.addresses().is_empty()) return least;
  for (const auto& span : spans_.all()) least = std::min(least, span.size);
  return least;
}

// Makes sure that no work uses the arena's memory. The program may have destroyed the stream, and
// the driver crashes on a query of such a stream (H200). So the arena queries only CUDA's own
// streams, and for others waits for the whole context. False if work is pending and `wait` is
// false.
Result<bool> Arena::wait_until_unused(bool wait) noexcept {
  if (!wait && (stream() == StreamHandle{} || is_own_per_thread_stream())) {
    const auto done = driver_.stream_query(stream());
    return done && *done;
  }
  if (auto done = driver_.ctx_synchronize(); !done) return std::move(done).error();
  auto finished = finish_deferred_frees(OrderBy::context, deferred_.size());
  if (!finished) return finished;
  return true;
}

// Removes the addresses of the active spans in `idle` from the block map.
void Arena::take_out_of_blocks(std::vector<std::uint32_t> idle) {
  idle.erase(std::remove_if(idle.begin(), idle.end(),
                            [&](std::uint32_t span) { return !spans_.is_active(span); }),
             idle.end());
  std::vector<std::uint32_t> free;
  blocks_.for_each_free(1, [&](std::uint32_t block) { free.push_back(block); });
  std::sort(idle.begin(), idle.end(), [&](std::uint32_t a, std::uint32_t b) {
    return spans_[a].address < spans_[b].address;
  });
  std::sort(free.begin(), free.end(), [&](std::uint32_t a, std::uint32_t b) {
    return blocks_.address(a) < blocks_.address(b);
  });
  auto at = free.begin();
  for (const auto index : idle) {
    const auto& span = spans_[index];
    // Both lists ascend by address, and an idle span lies in one free block. The part of that block
    // above the span takes the block's place in the list, since the next span may lie there.
    while (*at == kNone || blocks_.end(*at) <= span.address) ++at;
    const auto block = blocks_.split_at(*at, span.address);
    *at = blocks_.end(block) > span.end() ? blocks_.split_at(block, span.end()) : kNone;
    blocks_.remove(block);
  }
}

// Unmaps the alias mappings that one of `idle` is in. Returns in how many calls.
std::uint64_t Arena::drop_mappings_of(const std::vector<std::uint32_t>& idle) {
  ends_.clear();
  std::uint64_t calls = 0;
  for (const auto& mapping : stitches_.take_mappings_of(idle, spans_.count())) {
    std::vector<Span> aliased;
    for (const auto span : mapping.aliased()) aliased.push_back(spans_[span]);
    backing_.unmap(mapping.aliased_address(), aliased);
    calls += aliased.size();
    if (mapping.at_home == 0) backing_.free_addresses(mapping.base, mapping.size);
  }
  return calls;
}

// Releases spans, and with each span the alias mappings that it is in. Returns how many mappings of
// spans that unmaps.
std::uint64_t Arena::release_spans(const std::vector<std::uint32_t>& idle) {
  const auto failures = backing_.failures();
  // The order matters. The blocks go first, so that no request gets memory of the spans. Aliases go
  // before the spans that they map, because the device gets a handle's memory back only after its
  // last mapping. Indexes change last, because the mappings above use the old ones.
  take_out_of_blocks(idle);
  const auto unmapped = drop_mappings_of(idle);
  for (const auto span : idle) backing_.release(spans_[span]);
  stitches_.rename_spans(spans_.erase(idle));
  forget_released_plan();
  counts_.set_segments(spans_.segment_count());
  if (!spans_.addresses().is_empty()) release_unused_addresses(failures);
  return unmapped + idle.size();
}

void Arena::release_unused_addresses(std::uint64_t failures_before) {
  auto& addresses = spans_.addresses();
  // Once any call has failed, something may be mapped outside of spans.
  if (backing_.failures() == 0) {
    free_ranges(addresses.take_unused([&](const AddressRanges::Range& range) {
      return std::any_of(spans_.all().begin(), spans_.all().end(),
                         [&](const Span& span) { return range.holds(span.address); });
    }));
  }
  if (backing_.failures() != failures_before || addresses.last_is_abandoned())
    return addresses.abandon_last();
  // The next span comes behind the range's last span, and behind the aliases of at-home mappings
  // there.
  addresses.rewind();
  for (const auto& span : spans_.all()) addresses.keep_up_to(span.address, span.end());
  for (const auto& mapping : stitches_.mappings()) {
    const auto base = mapping.base.value;
    if (mapping.at_home > 0) addresses.keep_up_to(base, base + mapping.size);
  }
}

void Arena::free_ranges(const std::vector<AddressRanges::Range>& ranges) {
  for (const auto& range : ranges) backing_.free_addresses({range.base}, range.size);
  if (!ranges.empty() && spans_.addresses().is_empty()) backing_.remove_sharer();
}

void Arena::free_addresses() {
  const std::lock_guard lock(lock_);
  destroy_event(std::exchange(noted_, {}));
  is_noted_ = false;
  if (spans_.is_empty()) free_ranges(spans_.addresses().take_all());
}

}  // namespace emm::pool
