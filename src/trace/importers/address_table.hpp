#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace emm::trace {

/// A value by address: a hash table without order, for files of millions of rows. Any address is
/// one, 0 too. Memory is bounded by the most that it held at once.
template <class Value>
class AddressTable {
 public:
  AddressTable() : slots_(kFirstSlots) {}

  /// What is at `address`, and whether it is new there: then it is `value`.
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
  /// Good until the next add() or remove(); null where there is none.
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
    // Whatever could not have its place because of this one moves up, so that no search ends too
    // early.
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
  /// Calls each(address, value), in no order.
  template <class Each>
  void for_each(const Each& each) const {
    if (at_none_) each(kNone, *at_none_);
    for (const auto& slot : slots_) {
      if (slot.address != kNone) each(slot.address, slot.value);
    }
  }
  /// Asks the memory for what will soon be looked for.
  void prefetch(std::uint64_t address) const noexcept {
    __builtin_prefetch(&slots_[home(address)]);
  }

  std::size_t count() const noexcept { return count_ + (at_none_ ? 1 : 0); }

 private:
  static constexpr std::size_t kFirstSlots = 64;  // powers of two
  static constexpr std::uint64_t kNone = 0;       // the address of a slot that is free
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
  std::size_t count_ = 0;  // without the one at kNone
  std::optional<Value> at_none_;
};

}  // namespace emm::trace
