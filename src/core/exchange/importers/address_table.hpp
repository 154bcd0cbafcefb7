#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace emm::trace {

/// A hash table of values by address, for files of millions of rows. It has no order. Every address
/// is valid, including 0. Memory is bounded by the most entries that it held at once.
template <class Value>
class AddressTable {
 public:
  AddressTable() : slots_(kFirstSlots) {}

  /// Returns the entry at `address`, and whether it is new; a new one gets `value`.
  std::pair<Value*, bool> add(std::uint64_t address, const Value& value) {
    if (address == kNone) {
      const auto is_new = !at_none_.has_value();
      if (is_new) at_none_ = value;
      return {&*at_none_, is_new};
    }
    if ((count_ + 1) * 2 > slots_.size()) grow();
    auto at = home(address);
    for (; slots_[at].address != kNone; at = next(at)) {
      if (slots_[at].address == address) return {&slots_[at].value, false};
    }
    slots_[at] = {.address = address, .value = value};
    ++count_;
    return {&slots_[at].value, true};
  }
  /// Valid until the next add() or remove(); null if there is none.
  const Value* find(std::uint64_t address) const noexcept {
    if (address == kNone) return at_none_ ? &*at_none_ : nullptr;
    auto at = home(address);
    for (; slots_[at].address != address; at = next(at)) {
      if (slots_[at].address == kNone) return nullptr;
    }
    return &slots_[at].value;
  }
  std::optional<Value> remove(std::uint64_t address) {
    if (address == kNone) return std::exchange(at_none_, std::nullopt);
    auto at = home(address);
    for (; slots_[at].address != address; at = next(at)) {
      if (slots_[at].address == kNone) return std::nullopt;
    }
    const auto value = slots_[at].value;
    // Fills the hole with later entries that linear probing had moved past it, so that every search
    // still finds its entry.
    for (auto hole = at;;) {
      at = next(at);
      if (slots_[at].address == kNone) {
        slots_[hole].address = kNone;
        break;
      }
      const auto wanted = home(slots_[at].address);
      if (((at - wanted) & mask()) >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    --count_;
    return value;
  }
  /// Calls each(address, value) in no particular order.
  template <class Each>
  void for_each(const Each& each) const {
    if (at_none_) each(kNone, *at_none_);
    for (const auto& slot : slots_) {
      if (slot.address != kNone) each(slot.address, slot.value);
    }
  }
  /// Prefetches the slot of an address that will soon be looked up.
  void prefetch(std::uint64_t address) const noexcept {
    __builtin_prefetch(&slots_[home(address)]);
  }

  std::size_t count() const noexcept { return count_ + (at_none_ ? 1 : 0); }

 private:
  static constexpr std::size_t kFirstSlots = 64;  // a power of two
  static constexpr std::uint64_t kNone = 0;       // marks a free slot
  struct Slot {
    std::uint64_t address = kNone;
    Value value{};
  };

  std::size_t mask() const noexcept { return slots_.size() - 1; }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask(); }
  std::size_t home(std::uint64_t address) const noexcept {
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    return static_cast<std::size_t>(address * kSpread >> 32) & mask();
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const auto& slot : old) {
      if (slot.address == kNone) continue;
      auto at = home(slot.address);
      while (slots_[at].address != kNone) at = next(at);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;  // without at_none_
  std::optional<Value> at_none_;
};

}  // namespace emm::trace
