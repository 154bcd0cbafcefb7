#include "managers/pool/backing.hpp"

#include <numeric>
#include <thread>
#include <utility>

namespace emm::pool {

Backing::Kind Backing::kind() noexcept {
  if (!decided_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(deciding_);
    if (!kind_) {
      const auto granularity = driver_->mem_get_allocation_granularity();
      const bool offered =
          granularity ? kPage % *granularity == 0 : granularity.error().code != Errc::not_supported;
      kind_ = offered ? Kind::vmm : Kind::cumem;
    }
    // kind_ never changes afterwards, so a thread that acquires decided_ reads it without the lock.
    decided_.store(true, std::memory_order_release);
  }
  return *kind_;
}

void Backing::confirm_count(std::size_t spans, std::uint64_t size) noexcept {
  asked_.fetch_sub(size, std::memory_order_acq_rel);
  spans_made_.fetch_add(spans, std::memory_order_relaxed);
  total_.fetch_add(size, std::memory_order_relaxed);
  const auto reserved = reserved_bytes();
  auto peak = peak_.load(std::memory_order_relaxed);
  while (peak < reserved &&
         !peak_.compare_exchange_weak(peak, reserved, std::memory_order_relaxed)) {
  }
}

bool Backing::allows(std::uint64_t size) const noexcept {
  if (size > max_) return false;
  for (;;) {
    // A refusal may be undone between these two reads. The difference is then too large, and
    // undone_ has risen: try again.
    const auto undone = undone_.load(std::memory_order_acquire);
    const auto reserved = reserved_bytes();
    const auto asked = asked_.load(std::memory_order_acquire);
    if (reserved - std::min(reserved, asked) <= max_ - size) return true;
    if (undone_.load(std::memory_order_acquire) == undone) return false;
  }
}

// Bytes count as reserved before the driver answers. If `max` has room only without the bytes that
// other threads still wait for, this thread waits too, since the driver may refuse those. It cannot
// deadlock: the driver needs nothing that this thread holds.
Status Backing::count(std::uint64_t size) noexcept {
  for (; allows(size); std::this_thread::yield()) {
    auto reserved = reserved_bytes();
    if (reserved > max_ - size) continue;
    // asked_ rises before reserved_ and falls after it. So reserved_ minus asked_ never exceeds
    // what the driver has given, and allows() does not refuse while a pending answer may still make
    // room.
    asked_.fetch_add(size, std::memory_order_acq_rel);
    if (reserved_.compare_exchange_strong(reserved, reserved + size, std::memory_order_acq_rel))
      return {};
    asked_.fetch_sub(size, std::memory_order_acq_rel);
  }
  return full();
}

void Backing::undo_count(std::uint64_t size) noexcept {
  // The order matters: a thread that sees the lower asked_ also sees that undone_ has risen. It
  // looks again and then sees the lower reserved_.
  discount(size);
  undone_.fetch_add(1, std::memory_order_acq_rel);
  asked_.fetch_sub(size, std::memory_order_acq_rel);
}

// One call gives access to all handles, at 22 us a handle. A call for each handle takes 38 us
// (H200).
Status Backing::map(std::uint64_t address, std::span<const Span> spans) {
  std::size_t mapped = 0;
  Status done;
  auto at = address;
  for (; mapped < spans.size(); ++mapped) {
    done = driver_->mem_map({at}, spans[mapped].size, 0, spans[mapped].handle);
    if (!done) break;
    at += spans[mapped].size;
  }
  if (done) done = driver_->mem_set_access({address}, at - address, AccessFlags::read_write);
  if (done) return done;
  while (mapped-- > 0) {
    at -= spans[mapped].size;
    note(driver_->mem_unmap({at}, spans[mapped].size));
  }
  return done;
}

Status Backing::create(std::uint64_t address, std::span<const std::uint64_t> sizes,
                       std::span<const Span> aliased_behind, std::vector<Span>& spans) {
  const auto first = spans.size();
  const auto all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  auto at = address;
  Status done = count(all);
  if (!done) return done;
  for (const auto size : sizes) {
    auto handle = driver_->mem_create(size);
    if (!handle) {
      done = std::move(handle).error();
      break;
    }
    spans.push_back({.address = at, .size = size, .handle = *handle});
    at += size;
  }
  if (done) {
    std::vector<Span> mapped(spans.begin() + static_cast<std::ptrdiff_t>(first), spans.end());
    mapped.insert(mapped.end(), aliased_behind.begin(), aliased_behind.end());
    done = map(address, mapped);
  }
  if (done) {
    confirm_count(sizes.size(), all);
    return done;
  }
  for (auto at_span = first; at_span < spans.size(); ++at_span) {
    note(driver_->mem_release(spans[at_span].handle));
  }
  undo_count(all);
  spans.resize(first);
  return done;
}

Result<DevicePtr> Backing::map_alias(std::span<const Span> spans) {
  const auto size = size_of(spans);
  auto base = reserve_addresses(size);
  if (!base) return base;
  if (auto done = map(base->value, spans); !done) {
    free_addresses(*base, size);
    return std::move(done).error();
  }
  return base;
}

void Backing::unmap(DevicePtr base, std::span<const Span> spans) {
  auto at = base.value;
  for (const auto& span : spans) {
    note(driver_->mem_unmap({at}, span.size));
    at += span.size;
  }
}

Result<Span> Backing::allocate(std::uint64_t size) {
  if (auto done = count(size); !done) return std::move(done).error();
  auto base = driver_->mem_alloc(size);
  if (!base) {
    undo_count(size);
    return std::move(base).error();
  }
  confirm_count(1, size);
  return Span{.address = base->value, .size = size};
}

void Backing::release(const Span& span) {
  if (span.handle == PhysicalHandle{}) {
    note(driver_->mem_free({span.address}));
  } else {
    note(driver_->mem_unmap({span.address}, span.size));
    note(driver_->mem_release(span.handle));
  }
  // Discounted last, so that no other arena takes the room within `max` before the driver has the
  // memory back.
  discount(span.size);
  spans_released_.fetch_add(1, std::memory_order_relaxed);
}

void Backing::note(Status done) {
  if (done) return;
  const std::lock_guard lock(noting_);
  noted_.push_back(std::move(done).error());
  failures_.fetch_add(1, std::memory_order_relaxed);
}

std::vector<Error> Backing::take_failures() {
  // Relaxed order suffices: a thread sees the failures that it noted itself, and those of others
  // may come with a later call.
  if (failures_.load(std::memory_order_relaxed) == taken_.load(std::memory_order_relaxed))
    return {};
  const std::lock_guard lock(noting_);
  taken_.store(failures_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  return std::exchange(noted_, {});
}

}  // namespace emm::pool
