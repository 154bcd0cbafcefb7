#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/operation.hpp"

namespace emm::trace {

/// A vector that grows by blocks: nothing moves, and at no time is there room for twice what it
/// holds.
template <class T>
class BlockVector {
 public:
  static constexpr std::size_t kShift = 12;
  static constexpr std::size_t kBlock = std::size_t{1} << kShift;

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t index) noexcept {
    return blocks_[index >> kShift][index & (kBlock - 1)];
  }
  const T& operator[](std::size_t index) const noexcept {
    return blocks_[index >> kShift][index & (kBlock - 1)];
  }
  void push_back(const T& value) {
    if ((size_ & (kBlock - 1)) == 0) blocks_.emplace_back(new T[kBlock]);
    (*this)[size_++] = value;
  }
  std::uint64_t memory_bytes() const noexcept {
    return blocks_.size() * kBlock * sizeof(T) + blocks_.capacity() * sizeof(blocks_[0]);
  }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

/// Numbers the ids of a file in the order of first mention, from 0. An id takes 8 bytes while a
/// file counts its ids up by one, about 12 to 24 else, and its length more where it is text.
class IdTable {
 public:
  struct Found {
    std::uint32_t index;
    bool added;
  };
  Found find_or_add(const Id& id);
  std::size_t size() const noexcept { return words_.size(); }
  std::string name(std::uint32_t index) const;
  std::optional<std::uint64_t> number(std::uint32_t index) const noexcept;  ///< Nothing of a text.
  /// Frees what only find_or_add() needs: no more calls of that.
  void freeze();
  std::uint64_t memory_bytes() const noexcept;

 private:
  static constexpr std::uint64_t kText = std::uint64_t{1}
                                         << 63;  // the rest is where it is in texts_

  bool same(std::uint32_t index, const Id& id) const noexcept;
  Found find_in_slots(const Id& id);
  void add(const Id& id);
  void grow();
  bool in_dense(std::uint64_t number, bool is_next);

  BlockVector<std::uint64_t> words_;
  std::string texts_;                 // each after a byte that is its length
  std::vector<std::uint32_t> slots_;  // index + 1, of ids that are not where counting puts them
  std::size_t used_slots_ = 0;
  std::vector<std::uint32_t>
      dense_;  // index + 1, by the number, of numbers that are not far above the count of ids
  std::uint64_t first_number_ = 0;  // what the id with index 0 would be if all were counted
  bool counting_ = false;
  std::uint32_t last_found_ = 0;  // most operations of a thread name the same context and stream
};

}  // namespace emm::trace
