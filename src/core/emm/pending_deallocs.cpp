#include "emm/pending_deallocs.hpp"

#include <bit>
#include <limits>

#include "base/assert.hpp"
#include "driver/call.hpp"

namespace emm {
namespace {

// The number of frees, of any queue, that this thread is inside of. Such a thread must not wait for
// its own free to end.
thread_local std::size_t frees_entered = 0;

std::uint64_t floor_of(double bytes) noexcept {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  return bytes >= static_cast<double>(kMax) ? kMax : static_cast<std::uint64_t>(bytes);
}

}  // namespace

PendingDeallocs::PendingDeallocs(Driver* driver, Limits limits, ManagerObserver* observer,
                                 Profile profile) noexcept
    : driver_(driver), observer_(observer), profile_(profile), limits_(limits) {}

PendingDeallocs::~PendingDeallocs() = default;

void PendingDeallocs::make_room(std::size_t items) {
  if (items <= ring_.size()) return;
  std::vector<Item> wider(std::bit_ceil(items < 16 ? 16 : items));
  for (std::size_t i = 0; i < count_; ++i) wider[i] = ring_[(first_ + i) & (ring_.size() - 1)];
  ring_ = std::move(wider);
  first_ = 0;
}

void PendingDeallocs::reserve_slot() {
  const std::lock_guard lock(mutex_);
  make_room(count_ + reserved_ + 1);
  ++reserved_;
}

void PendingDeallocs::release_slot() noexcept {
  const std::lock_guard lock(mutex_);
  EMM_ASSERT(reserved_ > 0);
  --reserved_;
}

bool PendingDeallocs::over_limit() const noexcept {
  const auto capacity = static_cast<double>(capacity_.value_or(0));
  return count_ > limits_.count || bytes_ > floor_of(capacity * limits_.ratio);
}

Status PendingDeallocs::add(Call dtor, std::uint64_t handle,
                            std::optional<std::uint64_t> size) noexcept {
  if (observer_ != nullptr) observer_->pending_added(dtor, size);
  std::unique_lock lock(mutex_);
  if (reserved_ > 0) --reserved_;
  make_room(count_ + reserved_ + 1);
  ring_[(first_ + count_) & (ring_.size() - 1)] = {
      .handle = handle, .bytes = size.value_or(0), .dtor = dtor};
  ++count_;
  bytes_ += size.value_or(0);
  if (!over_limit() || disabled_ > 0) return {};
  return flush(std::move(lock));
}

Status PendingDeallocs::clear() noexcept {
  std::unique_lock lock(mutex_);
  if (disabled_ > 0) return {};
  auto done = flush(std::move(lock));
  if (frees_entered == 0) {
    lock = std::unique_lock(mutex_);
    idle_.wait(lock, [&] { return under_way_ == 0; });
  }
  return done;
}

Status PendingDeallocs::flush(std::unique_lock<std::mutex> lock) noexcept {
  Status status;
  std::size_t taken = 0;
  std::uint64_t taken_bytes = 0;
  // Another thread may begin a deferral while a free is under way.
  while (count_ > 0 && (disabled_ == 0 || profile_ == Profile::numba)) {
    const auto item = ring_[first_];
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
    ++under_way_;
    if (profile_ == Profile::standard) bytes_ -= item.bytes;
    ++taken;
    taken_bytes += item.bytes;

    lock.unlock();
    ++frees_entered;
    auto done = destroy(item);
    --frees_entered;
    lock.lock();

    if (--under_way_ == 0) idle_.notify_all();
    if (done) continue;
    ++failures_;
    if (observer_ != nullptr) {
      // Only now, when no clear() waits for this free: the observer may call the manager.
      lock.unlock();
      observer_->free_failed(done.error());
      lock.lock();
    }
    if (status) status = std::move(done);
    if (profile_ == Profile::numba) break;
  }
  if (profile_ == Profile::numba && status)
    bytes_ = 0;  // the loop ended by itself, so the queue is empty
  lock.unlock();
  if (taken > 0 && observer_ != nullptr) observer_->flushed(taken, taken_bytes);
  return status;
}

Status PendingDeallocs::destroy(const Item& item) noexcept {
  switch (item.dtor) {
    case Call::mem_free:
      return driver_->mem_free({item.handle});
    case Call::mem_free_host:
      return driver_->mem_free_host(reinterpret_cast<HostPtr>(item.handle));
    case Call::event_destroy:
      return driver_->event_destroy({item.handle});
    case Call::stream_destroy:
      return driver_->stream_destroy({item.handle});
    default:
      EMM_ASSERT(item.dtor == Call::library_unload);
      return driver_->library_unload({item.handle});
  }
}

DeferCleanup PendingDeallocs::disable() noexcept {
  const std::lock_guard lock(mutex_);
  ++disabled_;
  return DeferCleanup(
      [](void* self) noexcept {
        auto& queue = *static_cast<PendingDeallocs*>(self);
        const std::lock_guard enabling(queue.mutex_);
        EMM_ASSERT(queue.disabled_ > 0);
        --queue.disabled_;
      },
      this);
}

bool PendingDeallocs::is_disabled() const noexcept {
  const std::lock_guard lock(mutex_);
  return disabled_ > 0;
}

void PendingDeallocs::set_memory_capacity(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

std::optional<std::uint64_t> PendingDeallocs::memory_capacity() const noexcept {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

void PendingDeallocs::set_limits(Limits limits) noexcept {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

std::size_t PendingDeallocs::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::uint64_t PendingDeallocs::bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t PendingDeallocs::failures() const noexcept {
  const std::lock_guard lock(mutex_);
  return failures_;
}

}  // namespace emm
