#include "libemm/held_memory.hpp"

#include "base/assert.hpp"

namespace emm::libemm {

HeldMemory::~HeldMemory() {
  for (auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
}

void HeldMemory::add_block() {
  EMM_ASSERT(made_ < kBlocks);
  const auto first = (std::uint64_t{kFirst} << made_) - kFirst;
  const auto count = std::uint64_t{kFirst} << made_;
  auto* const slots = new Slot[count];
  for (std::uint64_t at = count; at > 0; --at) {
    auto& slot = slots[at - 1];
    slot.number = static_cast<std::uint32_t>(first + at - 1);
    slot.next = std::exchange(shared_, &slot);
  }
  blocks_[made_++].store(slots, std::memory_order_release);
}

HeldMemory::Slot* HeldMemory::take_shared() noexcept {
  auto* const slot = shared_;
  if (slot != nullptr) shared_ = slot->next;
  return slot;
}

HeldMemory::OfThread* HeldMemory::away_from_home() noexcept {
  for (std::size_t place = 1; place < kPlaces; ++place) {
    auto& kept = threads_[(home_of_this_thread() + place) % kThreads];
    if (kept.owner.load(std::memory_order_relaxed) == thread_address()) return &kept;
  }
  return nullptr;
}

// Null if other threads were there first. They may have ended: nobody tells.
HeldMemory::OfThread* HeldMemory::claimed_by_this_thread() noexcept {
  if (auto* const kept = of_this_thread()) return kept;
  for (std::size_t place = 0; place < kPlaces; ++place) {
    auto& kept = threads_[(home_of_this_thread() + place) % kThreads];
    std::uintptr_t nobody = 0;
    if (kept.owner.compare_exchange_strong(nobody, thread_address())) return &kept;
  }
  return nullptr;
}

// The thread has no idle slot, or no place to keep them.
HeldMemory::Slot& HeldMemory::idle_slot() {
  auto* const kept = claimed_by_this_thread();
  const std::lock_guard lock(mutex_);
  if (shared_ == nullptr) add_block();
  if (kept != nullptr) {
    for (std::uint32_t count = 0; count < kMost / 4 && shared_->next != nullptr; ++count) {
      auto* const slot = take_shared();
      slot->next = kept->first.load(std::memory_order_relaxed);
      ++kept->count;
      kept->first.store(slot, std::memory_order_release);
    }
  }
  return *take_shared();
}

// Shares the slot, and half of what the thread keeps: one thread may free all that another one
// requests.
void HeldMemory::keep_slowly(Slot& slot) noexcept {
  auto* const kept = claimed_by_this_thread();
  const std::lock_guard lock(mutex_);
  slot.next = std::exchange(shared_, &slot);
  while (kept != nullptr && kept->count > kMost / 2) {
    auto* const first = kept->first.load(std::memory_order_relaxed);
    --kept->count;
    kept->first.store(first->next, std::memory_order_release);
    first->next = std::exchange(shared_, first);
  }
}

bool HeldMemory::was_held(emm_token token) const noexcept {
  const auto* const slot = slot_at(static_cast<std::uint32_t>(token));
  const auto generation = static_cast<std::uint32_t>(token >> 32);
  return slot != nullptr && generation % 2 == 1 &&
         generation < slot->generation.load(std::memory_order_relaxed);
}

bool HeldMemory::is_empty() const noexcept {
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const auto* const slots = blocks_[block].load(std::memory_order_acquire);
    if (slots == nullptr) return true;
    for (std::uint64_t at = 0; at < std::uint64_t{kFirst} << block; ++at) {
      if (slots[at].generation.load(std::memory_order_acquire) % 2 == 1) return false;
    }
  }
  return true;
}

}  // namespace emm::libemm
