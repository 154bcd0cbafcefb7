#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/block_row.hpp"

namespace emm::trace {

/// The call stacks of a trace. A frame is there once however many stacks have it, among the first
/// millions of frames: where none is shared even then, looking for them all would cost more memory
/// than it saves.
class FrameTable {
 public:
  struct Stack {
    std::uint64_t begin = 0;
    std::uint32_t count = 0;
  };

  /// Puts a frame behind what the stack has. Only the stack that was added to last, or an empty
  /// one, grows.
  void add(Stack& stack, std::string_view frame);
  std::string_view frame(const Stack& stack, std::uint32_t at) const noexcept {
    return text(numbers_[static_cast<std::size_t>(stack.begin + at)]);
  }
  std::vector<std::string> frames(const Stack& stack) const;
  /// Frees what only add() needs.
  void freeze();
  std::uint64_t memory_bytes() const noexcept;

 private:
  static constexpr std::size_t kSlotsMax = std::size_t{1} << 23;
  static constexpr std::size_t kUnit = 4;      // where texts begin, so that 32 bits can say it
  static constexpr unsigned kBlockShift = 18;  // units of a block
  static constexpr std::size_t kTextBlock = kUnit << kBlockShift;

  std::uint32_t number(std::string_view frame);
  std::uint32_t keep(std::string_view frame);
  std::string_view text(std::uint32_t number) const noexcept;
  void grow();

  format::BlockRow<std::uint32_t, 15> numbers_;  // of the frames of each stack, side by side
  format::BlockRow<std::uint32_t, 15>
      texts_;  // of each frame: where its length and its characters are,
  std::vector<std::unique_ptr<char[]>> blocks_;  // in these
  std::size_t used_bytes_ = kTextBlock;          // of the last block
  std::uint64_t block_bytes_ = 0;
  std::vector<std::uint32_t> slots_;  // a frame's number plus one, by its hash
  std::size_t used_ = 0;              // slots
};

}  // namespace emm::trace
