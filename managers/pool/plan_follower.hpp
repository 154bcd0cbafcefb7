#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "allocators/pool_plan.hpp"
#include "managers/pool/block_map.hpp"

namespace emm::pool {

/// An arena's way along its plan: which request is expected next, and which of the plan's slots are
/// in use. A slot is the place of one request: an offset in the plan's span.
///
/// A plan need not be right to be safe. Each slot knows its predecessors, the slots that had some
/// of its bytes last; it is handed out only when they are free. So a free that comes later than in
/// the recording makes a request deviate, and never makes two allocations overlap.
///
/// It knows no driver and no lock. One thread at a time.
class PlanFollower {
 public:
  using Stream = allocators::PoolPlan::Stream;

  /// `plan` must outlive it. Sizes take whole multiples of `alignment`.
  PlanFollower(const Stream& plan, std::uint64_t alignment);

  bool is_of_default_stream() const noexcept { return plan_.is_default; }
  std::uint64_t first_size() const noexcept { return plan_.sizes.front(); }

  // Where the plan's span is

  std::uint64_t bytes() const noexcept { return plan_.bytes; }
  bool is_mapped() const noexcept { return base_ != 0; }
  std::uint64_t base() const noexcept { return base_; }
  void map_at(std::uint64_t address) noexcept { base_ = address; }
  /// The span was released. REQUIRES: no slot is in use.
  void unmap() noexcept {
    base_ = 0;
    is_followed_ = in_blocks_ = false;
  }

  // Following

  bool is_followed() const noexcept { return is_followed_; }
  void follow() noexcept {
    is_followed_ = true;
    in_blocks_ = false;
  }
  void leave() noexcept {
    is_followed_ = false;
    strays_ = 0;
  }
  void note_deviation() noexcept { ++deviations_; }
  /// The slot of a request for `size` bytes, which it takes. kNone if the plan expects another
  /// request, or if a predecessor of the slot is in use.
  std::uint32_t take(std::uint64_t size) noexcept {
    auto& slot = slots_[next_];
    if (slot.size != size) return kNone;
    const auto end = slots_[next_ + 1].predecessors_begin;
    for (auto at = slot.predecessors_begin; at != end; ++at) {
      if (states_[predecessors_[at]] != State::free) return kNone;
    }
    const auto taken = next_;
    states_[taken] = State::used;
    ++slot.uses;
    ++taken_;
    go_on();
    return taken;
  }
  /// Does the plan expect this request, and have no place for it?
  bool expects_elsewhere(std::uint64_t size) const noexcept {
    return next_ < count_ && plan_.lies_elsewhere(next_) && plan_.sizes[next_] == size;
  }
  /// Has the plan no place for some requests?
  bool has_elsewhere() const noexcept { return has_elsewhere_; }
  /// Is a request of this size served elsewhere although the plan does not expect it?
  bool diverts(std::uint64_t size) const noexcept {
    return std::binary_search(diverted_.begin(), diverted_.end(), size);
  }
  /// Is each request to be asked about while the plan is not followed? For as many as the plan has:
  /// a program that has made more is another one.
  bool looks_at_strays() const noexcept { return !diverted_.empty() && strays_ < count_; }
  void note_stray() noexcept { ++strays_; }
  /// That request is served elsewhere. REQUIRES: expects_elsewhere().
  void pass_by() noexcept { go_on(); }
  /// Does the next request wait only for memory that was freed on another stream?
  bool waits_for_deferred(std::uint64_t size) const noexcept;
  /// The arena has become empty. Where the recording had something live, the way is lost.
  void note_empty() noexcept {
    if (!slots_[next_].begins_generation) lose_way();
  }
  /// Looks for the place in the plan where nothing is live and the next request is for `size`
  /// bytes: behind the place where the way was lost, else at the beginning. REQUIRES: no slot is in
  /// use.
  bool find_way(std::uint64_t size) noexcept;
  /// Answers whether `allocations`, which are all that the arena holds, are what a period begins
  /// with.
  bool holds_carried(std::uint64_t allocations) const noexcept;
  void begin_period() noexcept { next_ = plan_.period_begin; }
  const std::vector<std::uint32_t>& carried() const noexcept { return carried_; }

  // Slots

  std::uint64_t size(std::uint32_t slot) const noexcept { return slots_[slot].size; }
  std::uint64_t address(std::uint32_t slot) const noexcept { return base_ + slots_[slot].offset; }
  /// Identifies this use of a slot. Differs from every cookie of a block.
  std::uint64_t cookie(std::uint32_t slot) const noexcept {
    return (std::uint64_t{slots_[slot].uses} << 32) | kPlanned | slot;
  }
  static bool is_cookie(std::uint64_t cookie) noexcept { return (cookie & kPlanned) != 0; }
  /// The used slot that `cookie` names; kNone if that use has ended.
  std::uint32_t find(std::uint64_t cookie) const noexcept {
    const auto slot = static_cast<std::uint32_t>(cookie) & ~kPlanned;
    const bool is_it = slot < count_ && slots_[slot].uses == cookie >> 32;
    return is_it && states_[slot] == State::used ? slot : kNone;
  }
  bool is_deferred(std::uint32_t slot) const noexcept { return states_[slot] == State::deferred; }
  void end(std::uint32_t slot) noexcept { states_[slot] = State::free; }
  void defer(std::uint32_t slot) noexcept { states_[slot] = State::deferred; }
  void end_all_used() noexcept;
  /// The used and deferred slots, by address.
  std::vector<std::uint32_t> taken_slots() const;

  // The same memory as blocks of the block map: from leave() to follow(), and while a report is
  // made

  bool in_blocks() const noexcept { return in_blocks_; }
  void note_in_blocks(bool are) noexcept { in_blocks_ = are; }
  std::uint32_t block(std::uint32_t slot) const noexcept { return slots_[slot].block; }
  void set_block(std::uint32_t slot, std::uint32_t block) noexcept { slots_[slot].block = block; }

  std::uint64_t times_taken() const noexcept { return taken_; }
  std::uint64_t deviations() const noexcept { return deviations_; }
  std::uint64_t metadata_bytes() const noexcept;

 private:
  enum class State : std::uint8_t { free, used, deferred };
  struct Slot {
    std::uint64_t size =
        0;  ///< As requested. kNoSize behind the last slot, and where it has no place.
    std::uint64_t offset = 0;
    std::uint32_t uses = 0;
    std::uint32_t predecessors_begin = 0;  ///< Up to the next slot's.
    std::uint32_t block = kNone;
    bool begins_generation = false;  ///< Nothing is live before it.
  };
  static_assert(sizeof(Slot) == 32);
  /// No block has so high an index: blocks of 32 bytes would take 64 GiB.
  static constexpr std::uint32_t kPlanned = std::uint32_t{1} << 31;

  static constexpr std::uint64_t kNoSize = ~std::uint64_t{0};  // nobody asks for it

  void go_on() noexcept { next_ = next_ + 1 == count_ ? plan_.period_begin : next_ + 1; }
  void find_elsewhere();
  void find_predecessors(std::uint64_t alignment);
  void find_generations();
  void lose_way() noexcept {
    if (next_ != count_) lost_at_ = next_;
    next_ = count_;
  }

  const Stream& plan_;
  std::uint32_t count_;
  std::uint32_t next_ = 0;     ///< The slot that the next request is to get; count_ if unknown.
  std::uint32_t lost_at_ = 0;  ///< Where the way was lost.
  std::uint64_t strays_ = 0;   ///< Requests since the plan was left.
  bool is_followed_ = false;
  bool in_blocks_ = false;
  std::uint64_t base_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t deviations_ = 0;
  std::vector<Slot> slots_;    ///< One more than there are requests.
  std::vector<State> states_;  ///< Apart, so that a look at predecessors stays in the cache.
  std::vector<std::uint32_t> predecessors_;
  std::vector<std::uint32_t> carried_;  ///< The slots in use where a period begins, ascending.
  bool has_elsewhere_ = false;
  std::vector<std::uint64_t> diverted_;     ///< Sizes, ascending.
  std::vector<std::uint32_t> generations_;  ///< The slots that begin a generation, ascending.
};

}  // namespace emm::pool
