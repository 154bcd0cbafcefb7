#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/block_row.hpp"

namespace emm::trace {

/// The call stacks of a trace. Equal frames share one text until there are four million different
/// ones; an index of still more would cost more memory than sharing saves.
class FrameTable {
 public:
  struct Stack {
    std::uint64_t begin = 0;
    std::uint32_t count = 0;
  };

  /// Appends a frame to the stack. Only an empty stack, or the one that was appended to last, can
  /// grow.
  void add(Stack& stack, std::string_view frame);
  std::string_view frame(const Stack& stack, std::uint32_t at) const noexcept {
    return text(numbers_[static_cast<std::size_t>(stack.begin + at)]);
  }
  std::vector<std::string> frames(const Stack& stack) const;
  /// Frees what only add() needs.
  void freeze();
  std::uint64_t memory_bytes() const noexcept;

 private:
  // Places of the hash table. Of more frames than half as many, each is kept wherever it stands.
  static constexpr std::size_t kSlotsMax = std::size_t{1} << 23;
  static constexpr std::size_t kUnit = 4;  // alignment of texts, so that 32 bits can address them
  static constexpr unsigned kBlockShift = 18;  // log2 of the units in a block
  static constexpr std::size_t kTextBlock = kUnit << kBlockShift;

  std::uint32_t number(std::string_view frame);
  std::uint32_t keep(std::string_view frame);
  std::string_view text(std::uint32_t number) const noexcept;
  void grow();

  format::BlockRow<std::uint32_t, 15> numbers_;  // numbers of the frames, stack after stack
  format::BlockRow<std::uint32_t, 15> texts_;    // by frame number: place in blocks_
  std::vector<std::unique_ptr<char[]>> blocks_;  // texts of the frames
  std::size_t used_bytes_ = kTextBlock;          // in the last block
  std::uint64_t block_bytes_ = 0;
  std::vector<std::uint32_t> slots_;  // frame number + 1, hashed by text; 0: empty
  std::size_t used_ = 0;              // occupied slots_
};

}  // namespace emm::trace
