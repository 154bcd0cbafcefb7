#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace emm::record {

/// A hash table by address, with open addressing and linear probing, at most three quarters full.
/// It grows by mmap. `Entry` is plain and has a member `address`; 0 marks an empty place. Each
/// call locks the table for a few memory accesses. A forked child must call reset().
template <class Entry>
class AddressTable {
 public:
  /// Returns false if there is no memory for the entry. The address must not be in the table.
  bool put(const Entry& entry) noexcept {
    const Lock lock(busy_);
    if (count_ >= room() / 4 * 3 && !grow()) return false;
    ++count_;
    place(entry);
    return true;
  }
  /// Removes the entry of `address` and copies it to `into`. Returns false if there is none.
  bool take(std::uint64_t address, Entry& into) noexcept {
    const Lock lock(busy_);
    Entry* const found = find(address);
    if (found == nullptr) return false;
    into = *found;
    erase(found);
    return true;
  }
  bool get(std::uint64_t address, Entry& into) const noexcept {
    const Lock lock(busy_);
    const Entry* const found = find(address);
    if (found != nullptr) into = *found;
    return found != nullptr;
  }
  /// Copies the first entry of which `is_it` is true to `into`. Looks at all.
  template <class IsIt>
  bool search(IsIt is_it, Entry& into) const noexcept {
    const Lock lock(busy_);
    for (std::size_t at = 0; at < room(); ++at) {
      if (all_[at].address == 0 || !is_it(all_[at])) continue;
      into = all_[at];
      return true;
    }
    return false;
  }
  /// Removes the entries of which `is_it` is true.
  template <class IsIt>
  void remove_if(IsIt is_it) noexcept {
    const Lock lock(busy_);
    for (std::size_t at = 0; at < room();) {
      if (all_[at].address != 0 && is_it(all_[at])) {
        erase(&all_[at]);  // may move another entry to this place
      } else {
        ++at;
      }
    }
  }
  /// Forgets all, in a forked child. Another thread of the parent may have held the lock and been
  /// about to change the table, so its memory is left alone.
  void reset() noexcept {
    all_ = nullptr;
    bits_ = 0;
    count_ = 0;
    busy_.store(false);
  }

 private:
  class Lock {
   public:
    explicit Lock(std::atomic<bool>& busy) noexcept : busy_(busy) {
      while (busy_.exchange(true, std::memory_order_acquire)) sched_yield();
    }
    ~Lock() { busy_.store(false, std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::atomic<bool>& busy_;
  };
  // 1,024 places at first; the table doubles from there.
  static constexpr unsigned kFirstBits = 10;

  std::size_t room() const noexcept { return all_ != nullptr ? std::size_t{1} << bits_ : 0; }
  std::size_t home(std::uint64_t address) const noexcept {
    return (address * 0x9e3779b97f4a7c15u) >> (64 - bits_);
  }
  Entry* find(std::uint64_t address) const noexcept {
    if (all_ == nullptr || address == 0) return nullptr;
    for (auto at = home(address); all_[at].address != 0; at = (at + 1) & (room() - 1)) {
      if (all_[at].address == address) return &all_[at];
    }
    return nullptr;
  }
  void place(const Entry& entry) noexcept {
    auto at = home(entry.address);
    while (all_[at].address != 0) at = (at + 1) & (room() - 1);
    all_[at] = entry;
  }
  bool grow() noexcept {
    Entry* const old = all_;
    const auto old_room = room();
    const auto bits = old != nullptr ? bits_ + 1 : kFirstBits;
    void* const made = mmap(nullptr, sizeof(Entry) << bits, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return false;
    all_ = static_cast<Entry*>(made);
    bits_ = bits;
    for (std::size_t at = 0; at < old_room; ++at) {
      if (old[at].address != 0) place(old[at]);
    }
    if (old != nullptr) (void)munmap(old, sizeof(Entry) * old_room);
    return true;
  }
  /// Moves up the entries that probing had pushed past the erased place.
  void erase(Entry* entry) noexcept {
    const auto last = room() - 1;
    auto hole = static_cast<std::size_t>(entry - all_);
    for (auto at = (hole + 1) & last; all_[at].address != 0; at = (at + 1) & last) {
      if (((at - home(all_[at].address)) & last) < ((at - hole) & last)) continue;
      all_[hole] = all_[at];
      hole = at;
    }
    all_[hole].address = 0;
    --count_;
  }

  mutable std::atomic<bool> busy_{false};
  Entry* all_ = nullptr;
  unsigned bits_ = 0;
  std::size_t count_ = 0;
};

}  // namespace emm::record
