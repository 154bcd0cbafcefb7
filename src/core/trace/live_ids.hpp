#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/id.hpp"

namespace emm::trace {

/// The ids of a trace that is longer than memory. Keeps each live id with its number, and of all
/// others only that they were used. The latter takes a few words while ids count up, 16 bytes for
/// each gap in the numbers, and the whole text of ids that are text.
class LiveIds {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};  // not live

  LiveIds();

  /// Returns what add() was given for a live id; kNone for any other.
  std::uint32_t find(const Id& id) const {
    if (!id.is_number()) return find_text(id);
    for (auto at = place(id.number);; at = (at + 1) & mask_) {
      const auto& entry = entries_[at];
      if (entry.value == kNone) return kNone;
      if (entry.number == id.number) return entry.value;
    }
  }
  /// Was the id ever added?
  bool was_used(const Id& id) const;
  /// REQUIRES: !was_used(id), value != kNone.
  void add(const Id& id, std::uint32_t value);
  /// REQUIRES: the id is live.
  void remove(const Id& id);

  // Faster forms for ids that are numbers:

  /// Adds the id if it is one more than the id that was added last. Returns false otherwise.
  bool add_next(std::uint64_t number, std::uint32_t value) {
    if (!has_row_ || number != row_last_ + 1 || number < row_begin_) return false;
    if (!used_.empty() && used_.rbegin()->second >= number) return false;
    if (4 * (count_ + 1) > entries_.size()) return false;
    row_last_ = number;
    ++count_;
    auto at = place(number);
    while (entries_[at].value != kNone) at = (at + 1) & mask_;
    entries_[at] = {number, value};
    return true;
  }
  /// Removes a live id and returns its value; kNone if it is not live.
  std::uint32_t take(std::uint64_t number) {
    auto at = place(number);
    for (; entries_[at].number != number || entries_[at].value == kNone; at = (at + 1) & mask_) {
      if (entries_[at].value == kNone) return kNone;
    }
    const auto value = entries_[at].value;
    remove_at(at);
    return value;
  }

  std::size_t live() const noexcept { return count_ + texts_.size(); }
  void clear();

 private:
  struct IdEntry {
    std::uint64_t number = 0;
    std::uint32_t value = kNone;
  };

  /// Hashes numbers in groups of eight: consecutive ids share a cache line, and runs of long-lived
  /// ids rarely collide with others.
  std::size_t place(std::uint64_t number) const noexcept {
    const auto eight = (number >> 3) * 0x9e3779b97f4a7c15u;
    return (((eight >> 32) << 3) | (number & 7)) & mask_;
  }
  std::uint32_t find_text(const Id& id) const;
  void note_used(std::uint64_t number);
  /// Closes the gap: moves back each following entry that a search would otherwise miss (linear
  /// probing without tombstones).
  void remove_at(std::size_t gap) {
    --count_;
    for (auto next = (gap + 1) & mask_; entries_[next].value != kNone; next = (next + 1) & mask_) {
      const auto home = place(entries_[next].number);
      if (((next - home) & mask_) < ((next - gap) & mask_)) continue;
      entries_[gap] = entries_[next];
      gap = next;
    }
    entries_[gap].value = kNone;
  }
  void grow();

  std::vector<IdEntry> entries_;
  std::size_t mask_ = 0, count_ = 0;
  std::map<std::uint64_t, std::uint64_t> used_;  // used numbers as [first, last], by the first
  std::uint64_t row_begin_ = 0, row_last_ = 0;   // the run of used numbers that was last added to
  bool has_row_ = false;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::unordered_set<std::string> used_texts_;
};

}  // namespace emm::trace
