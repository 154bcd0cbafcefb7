#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace emm::format {

/// Zeroed memory directly from the system, in large pages if it has them. When gigabytes are each
/// touched once, page faults are most of the cost. The destructor returns the memory to the system.
class Pages {
 public:
  explicit Pages(std::size_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  Pages& operator=(Pages&&) = delete;

  void* get() const noexcept { return memory_; }

 private:
  void* memory_;
  std::size_t bytes_;
};

/// A growing row of T in blocks that never move, so growing copies nothing and needs no second
/// buffer. Blocks are cut from pieces of memory whose size grows with the row, up to `PieceBytes`
/// or one block.
template <class T, unsigned Shift, std::size_t PieceBytes = std::size_t{2} << 20>
class BlockRow {
  static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::size_t kBlock = std::size_t{1} << Shift;

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t index) noexcept {
    return blocks_[index >> Shift][index & (kBlock - 1)];
  }
  const T& operator[](std::size_t index) const noexcept {
    return blocks_[index >> Shift][index & (kBlock - 1)];
  }
  void push(const T& value) {
    if (at_ == end_) add_block();
    *at_++ = value;
    ++size_;
  }
  /// Prefetches for writing the memory that push() will soon write. Use it if another thread has
  /// read these blocks before, so that their cache lines have left its core by then.
  void expect_more() const noexcept {
    constexpr std::size_t kAhead = 512;  // bytes, eight cache lines
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*(reinterpret_cast<const char*>(at_) + kAhead)));
#else
    __builtin_prefetch(reinterpret_cast<const char*>(at_) + kAhead, 1);
#endif
  }
  /// The number of elements that fit before a new block begins.
  std::size_t room() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  /// Skips the rest of the block if it has no room for `count` adjacent elements. REQUIRES: count
  /// <= kBlock.
  void want(std::size_t count) {
    if (room() >= count) return;
    size_ = blocks_.size() << Shift;
    add_block();
  }
  /// Adds `count` adjacent uninitialized elements and returns the index of the first. REQUIRES:
  /// count <= kBlock.
  std::size_t claim(std::size_t count) {
    want(count);
    at_ += count;
    return std::exchange(size_, size_ + count);
  }
  /// Reserves the table of blocks for `count` elements, so that it never moves. Another thread may
  /// then read an element while the row grows, once it knows that the element is there.
  void keep_blocks(std::size_t count) { blocks_.reserve((count >> Shift) + 1); }
  /// Reuses the blocks that end before `index` for later elements. Their elements must not be read
  /// again.
  void release_before(std::size_t index) {
    for (; released_ < (index >> Shift); ++released_) spare_.push_back(blocks_[released_]);
  }
  std::uint64_t bytes() const noexcept {
    return (std::uint64_t{blocks_.size()} << Shift) * sizeof(T) +
           blocks_.capacity() * sizeof(blocks_[0]);
  }

 private:
  static constexpr std::size_t kBlockBytes = kBlock * sizeof(T);
  /// The most blocks that are cut from one piece.
  static constexpr std::size_t kBlocksOfPiece =
      kBlockBytes < PieceBytes ? PieceBytes / kBlockBytes : 1;

  void add_block() {
    if (!spare_.empty()) {
      blocks_.push_back(spare_.back());
      spare_.pop_back();
      at_ = blocks_.back();
      end_ = at_ + kBlock;
      return;
    }
    if (left_ == 0) {
      left_ = std::clamp<std::size_t>(blocks_.size(), 1, kBlocksOfPiece);
      pieces_.emplace_back(left_ * kBlockBytes);
      next_ = static_cast<T*>(pieces_.back().get());
    }
    blocks_.push_back(next_);
    at_ = next_;
    next_ += kBlock;
    end_ = next_;
    --left_;
  }

  std::vector<T*> blocks_;
  std::vector<Pages> pieces_;
  T *at_ = nullptr, *end_ = nullptr;  // the next place, and the end of its block
  T* next_ = nullptr;                 // the start of the next block
  std::size_t left_ = 0;              // unused blocks of the last piece
  std::size_t size_ = 0;
  std::vector<T*> spare_;  // released blocks
  std::size_t released_ = 0;
};

}  // namespace emm::format
