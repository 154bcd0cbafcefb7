#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace emm::trace {

/// What lives at which address, where nothing is asked but that: a hash table, for logs of millions of rows. An address
/// of 0 is no address. Memory is bounded by what was live at once.
class LiveTable {
 public:
  struct Entry {
    std::uint64_t id = 0;
    std::uint64_t size = 0;  ///< Bytes.
  };

  LiveTable() : slots_(kFirstSlots) {}

  /// False, and nothing done, where something lives at `address` already.
  bool add(std::uint64_t address, Entry entry) {
    if (count_ * 2 >= slots_.size()) grow();
    auto at = home(address);
    for (; slots_[at].address != 0; at = next(at)) {
      if (slots_[at].address == address) return false;
    }
    slots_[at] = {.address = address, .entry = entry};
    ++count_;
    bytes_ += entry.size;
    return true;
  }
  /// Ends what lives at `address`; nothing where nothing does.
  std::optional<Entry> remove(std::uint64_t address) {
    auto at = home(address);
    for (; slots_[at].address != address; at = next(at)) {
      if (slots_[at].address == 0) return std::nullopt;
    }
    const auto entry = slots_[at].entry;
    // Whatever could not have its place because of this one moves up, so that no search ends too early.
    for (auto hole = at;;) {
      at = next(at);
      if (slots_[at].address == 0) {
        slots_[hole].address = 0;
        break;
      }
      const auto wanted = home(slots_[at].address);
      if (((at - wanted) & mask()) >= ((at - hole) & mask())) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    --count_;
    bytes_ -= entry.size;
    return entry;
  }

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t kFirstSlots = 64;  // powers of two
  struct Slot {
    std::uint64_t address = 0;
    Entry entry;
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
      if (slot.address == 0) continue;
      auto at = home(slot.address);
      while (slots_[at].address != 0) at = next(at);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace emm::trace
