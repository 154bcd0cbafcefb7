#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/id.hpp"

namespace emm::trace {

/// A vector that grows by blocks. Its elements never move, and growing needs no second copy of
/// them.
template <class T>
class BlockVector {
 public:
  // Blocks of 4,096 values: a small trace wastes little.
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

/// Numbers the ids of a file in the order of first mention, from 0. An id takes 8 bytes while the
/// file counts its ids up by one, otherwise about 12 to 24, and its length besides if it is text.
class IdTable {
 public:
  struct Found {
    std::uint32_t index;
    bool added;
  };
  Found find_or_add(const Id& id);
  std::size_t size() const noexcept { return words_.size(); }
  std::string name(std::uint32_t index) const;
  std::optional<std::uint64_t> number(
      std::uint32_t index) const noexcept;  ///< Nothing if the id is text.
  /// Frees what only find_or_add() needs. REQUIRES: find_or_add() is not called again.
  void freeze();
  std::uint64_t memory_bytes() const noexcept;

 private:
  static constexpr std::uint64_t kText =
      std::uint64_t{1} << 63;  // set for text; the other bits are its place in texts_

  bool same(std::uint32_t index, const Id& id) const noexcept;
  Found find_in_slots(const Id& id);
  void add(const Id& id);
  void grow();
  bool in_dense(std::uint64_t number, bool is_next);

  BlockVector<std::uint64_t> words_;
  std::string texts_;                 // each text follows a byte with its length
  std::vector<std::uint32_t> slots_;  // hashed index + 1, of the other ids
  std::size_t used_slots_ = 0;
  std::vector<std::uint32_t> dense_;  // index + 1 by number, of small numbers
  std::uint64_t first_number_ = 0;    // the number of id 0, if the ids count up by one
  bool counting_ = false;
  std::uint32_t last_found_ = 0;  // most operations repeat the context and the stream
};

}  // namespace emm::trace
