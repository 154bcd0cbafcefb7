#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/operation.hpp"

namespace emm::trace {

/// The ids of a trace that is longer than memory: each live one with the number that was given for
/// it, and of all others only that they were used. That takes a few words as long as ids count up,
/// 16 bytes for each gap between numbers that never had an id, and all of an id that is text.
class LiveIds {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  LiveIds();

  /// What add() was given for a live id; kNone of another.
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

  // The same for ids that are numbers, as a long trace asks it, without a call:

  /// Adds an id that counts up by one from the id that was added last; false of any other.
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
  /// Removes a live id, and says what it was added with; kNone of another.
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

  /// Eight numbers in a row lie side by side, and the eights anywhere: ids that are made one after
  /// the other share their cache lines, and rows of ids that live long do not collide with others.
  std::size_t place(std::uint64_t number) const noexcept {
    const auto eight = (number >> 3) * 0x9e3779b97f4a7c15u;
    return (((eight >> 32) << 3) | (number & 7)) & mask_;
  }
  std::uint32_t find_text(const Id& id) const;
  void note_used(std::uint64_t number);
  /// What follows and would not be found over the gap moves into it.
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
  std::map<std::uint64_t, std::uint64_t> used_;  // rows of numbers, from the first to the last
  std::uint64_t row_begin_ = 0, row_last_ = 0;   // the row that was last added to
  bool has_row_ = false;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::unordered_set<std::string> used_texts_;
};

}  // namespace emm::trace
