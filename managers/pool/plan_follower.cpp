#include "managers/pool/plan_follower.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace emm::pool {

using allocators::PoolPlan;

namespace {

/// Which slot had each byte last. A vector, since a tree would take a node from the heap for each
/// request.
class Owners {
 public:
  /// Gives [begin, end) to `slot`, and appends the slots that had some of it.
  void take(std::uint64_t begin, std::uint64_t end, std::uint32_t slot,
            std::vector<std::uint32_t>& before) {
    const auto first = runs_.begin() + first_behind(begin);
    auto last = first;
    for (; last != runs_.end() && last->begin < end; ++last) before.push_back(last->slot);
    std::array<Run, 3> now{};
    std::size_t count = 0;
    if (first != last && first->begin < begin) now[count++] = {first->begin, begin, first->slot};
    now[count++] = {begin, end, slot};
    if (first != last && (last - 1)->end > end)
      now[count++] = {end, (last - 1)->end, (last - 1)->slot};
    const auto at = runs_.erase(first, last);
    runs_.insert(at, now.begin(), now.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// Does `slot` have all of [begin, end)?
  bool owns(std::uint64_t begin, std::uint64_t end, std::uint32_t slot) const {
    const auto found = runs_.begin() + first_behind(begin);
    return found != runs_.end() && found->slot == slot && found->begin <= begin &&
           end <= found->end;
  }

 private:
  struct Run {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t slot = 0;
  };
  /// The index of the first run that ends behind `address`.
  std::ptrdiff_t first_behind(std::uint64_t address) const {
    return std::upper_bound(runs_.begin(), runs_.end(), address,
                            [](std::uint64_t at, const Run& run) { return at < run.end; }) -
           runs_.begin();
  }
  std::vector<Run> runs_;  // by address, disjoint
};

}  // namespace

PlanFollower::PlanFollower(const Stream& plan, std::uint64_t alignment)
    : plan_(plan),
      count_(plan.count()),
      slots_(std::size_t{count_} + 1),
      states_(count_, State::free) {
  for (std::uint32_t slot = 0; slot < count_; ++slot) {
    slots_[slot].size = plan.lies_elsewhere(slot) ? kNoSize : plan.sizes[slot];
    slots_[slot].offset = plan.offsets[slot];
  }
  slots_[count_].size = kNoSize;
  find_elsewhere();
  find_generations();
  find_predecessors(alignment);
}

// Walks the plan, and the period a second time: at its first time it may follow other slots than
// itself.
void PlanFollower::find_predecessors(std::uint64_t alignment) {
  std::vector<std::uint32_t>
      of_period;  // the predecessors at a slot's first time, one after another
  std::vector<std::size_t> ends_of_period;
  Owners owners;
  std::vector<std::uint32_t> before;
  const auto end_of = [&](std::uint32_t slot) {
    return slots_[slot].offset + (slots_[slot].size + alignment - 1) / alignment * alignment;
  };
  const auto take = [&](std::uint32_t slot) {
    before.clear();
    if (!plan_.lies_elsewhere(slot)) owners.take(slots_[slot].offset, end_of(slot), slot, before);
  };
  const auto make_unique = [](std::vector<std::uint32_t>& slots) {
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  };
  for (std::uint32_t slot = 0; slot < count_; ++slot) {
    take(slot);
    if (slot >= plan_.period_begin) {
      of_period.insert(of_period.end(), before.begin(), before.end());
      ends_of_period.push_back(of_period.size());
      continue;
    }
    make_unique(before);
    slots_[slot].predecessors_begin = static_cast<std::uint32_t>(predecessors_.size());
    predecessors_.insert(predecessors_.end(), before.begin(), before.end());
  }
  std::size_t at = 0;
  for (auto slot = plan_.period_begin; slot < count_; ++slot) {
    take(slot);
    for (const auto end = ends_of_period[slot - plan_.period_begin]; at < end; ++at)
      before.push_back(of_period[at]);
    make_unique(before);
    slots_[slot].predecessors_begin = static_cast<std::uint32_t>(predecessors_.size());
    predecessors_.insert(predecessors_.end(), before.begin(), before.end());
  }
  slots_[count_].predecessors_begin = static_cast<std::uint32_t>(predecessors_.size());
  // A plan in which another slot has some of the bytes at the end is wrong: predecessors would not
  // tell that the carried one is in use.
  const bool all_own = std::all_of(carried_.begin(), carried_.end(), [&](std::uint32_t slot) {
    return owners.owns(slots_[slot].offset, end_of(slot), slot);
  });
  if (!all_own) carried_.clear();
}

// Requests of a size are diverted if all of a period together are a hundredth of the plan at most:
// the other arena would else take memory that the plan's span has idle.
void PlanFollower::find_elsewhere() {
  for (auto slot = plan_.period_begin; slot < count_ && !has_elsewhere_; ++slot)
    has_elsewhere_ = plan_.lies_elsewhere(slot);
  if (!has_elsewhere_) return;
  std::map<std::uint64_t, std::uint64_t> bytes;  // by size
  for (auto slot = plan_.period_begin; slot < count_; ++slot)
    bytes[plan_.sizes[slot]] += plan_.sizes[slot];
  for (auto slot = plan_.period_begin; slot < count_; ++slot) {
    const auto size = plan_.sizes[slot];
    if (plan_.lies_elsewhere(slot) && bytes[size] <= plan_.bytes / 100) diverted_.push_back(size);
  }
  std::sort(diverted_.begin(), diverted_.end());
  diverted_.erase(std::unique(diverted_.begin(), diverted_.end()), diverted_.end());
}

void PlanFollower::find_generations() {
  for (std::uint32_t slot = 0; slot < count_; ++slot) {
    if (plan_.repeats() && !plan_.lies_elsewhere(slot)) {
      const auto end = plan_.ends[slot];
      const bool is_carried = slot < plan_.period_begin ? end == PoolPlan::kNever : end > count_;
      if (is_carried) carried_.push_back(slot);
    }
  }
  std::uint32_t latest_end = 0;
  for (std::uint32_t slot = 0; slot < count_; ++slot) {
    // What a period carries over is live there when it comes again.
    const bool carries = slot > 0 && slot >= plan_.period_begin && !carried_.empty();
    slots_[slot].begins_generation = latest_end <= slot && !carries;
    if (slots_[slot].begins_generation) generations_.push_back(slot);
    if (!plan_.lies_elsewhere(slot)) latest_end = std::max(latest_end, plan_.ends[slot]);
  }
}

bool PlanFollower::waits_for_deferred(std::uint64_t size) const noexcept {
  if (slots_[next_].size != size) return false;
  const auto begin = predecessors_.begin() + slots_[next_].predecessors_begin;
  const auto end = predecessors_.begin() + slots_[next_ + 1].predecessors_begin;
  return std::all_of(begin, end, [&](std::uint32_t slot) { return states_[slot] != State::used; });
}

bool PlanFollower::find_way(std::uint64_t size) noexcept {
  // A program may leave out some generations, but not a great many.
  constexpr std::ptrdiff_t kLooksMost = 64;
  lose_way();
  const auto is_it = [&](std::uint32_t slot) { return plan_.sizes[slot] == size; };
  const auto from = std::lower_bound(generations_.begin(), generations_.end(), lost_at_);
  const auto to = from + std::min(generations_.end() - from, kLooksMost);
  auto found = std::find_if(from, to, is_it);
  if (found == to) {
    // The program may have gone back: to its period, or to its beginning.
    found = std::lower_bound(generations_.begin(), generations_.end(), plan_.period_begin);
    if (found == generations_.end() || !is_it(*found)) found = generations_.begin();
    if (!is_it(*found)) return false;
  }
  next_ = *found;
  lost_at_ = 0;
  return true;
}

bool PlanFollower::holds_carried(std::uint64_t allocations) const noexcept {
  return !carried_.empty() && allocations == carried_.size() &&
         std::all_of(carried_.begin(), carried_.end(),
                     [&](std::uint32_t slot) { return states_[slot] == State::used; });
}

void PlanFollower::end_all_used() noexcept {
  std::replace(states_.begin(), states_.end(), State::used, State::free);
}

std::vector<std::uint32_t> PlanFollower::taken_slots() const {
  std::vector<std::uint32_t> taken;
  for (std::uint32_t slot = 0; slot < count_; ++slot) {
    if (states_[slot] != State::free) taken.push_back(slot);
  }
  std::sort(taken.begin(), taken.end(),
            [&](std::uint32_t a, std::uint32_t b) { return slots_[a].offset < slots_[b].offset; });
  return taken;
}

std::uint64_t PlanFollower::metadata_bytes() const noexcept {
  return sizeof *this + slots_.capacity() * sizeof(Slot) + states_.capacity() +
         diverted_.capacity() * sizeof(std::uint64_t) +
         (predecessors_.capacity() + carried_.capacity() + generations_.capacity()) *
             sizeof(std::uint32_t);
}

}  // namespace emm::pool
