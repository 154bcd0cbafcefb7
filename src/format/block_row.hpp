#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace emm::format {

/// Zeroed memory straight from the system, in large pages where it has them: of gigabytes that are
/// each touched once, most of the cost is in the pages. Gives it back to the system when it dies.
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

/// A growing row of T in blocks that never move, so that growing copies nothing and needs no second
/// room. Blocks are cut from pieces of memory that grow with the row, up to `PieceBytes` or a
/// block.
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
  /// Fetches what push() will write to, so that no other processor has it then: of a row whose
  /// blocks another thread has read before.
  void expect_more() const noexcept {
    constexpr std::size_t kAhead = 512;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*(reinterpret_cast<const char*>(at_) + kAhead)));
#else
    __builtin_prefetch(reinterpret_cast<const char*>(at_) + kAhead, 1);
#endif
  }
  /// Elements that fit before the next block begins; 0 where a block must begin.
  std::size_t room() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  /// Leaves the rest of a block that has no room for `count` side by side. REQUIRES: count <=
  /// kBlock.
  void want(std::size_t count) {
    if (room() >= count) return;
    size_ = blocks_.size() << Shift;
    add_block();
  }
  /// `count` places side by side, not written yet. REQUIRES: count <= kBlock.
  std::size_t claim(std::size_t count) {
    want(count);
    at_ += count;
    return std::exchange(size_, size_ + count);
  }
  /// For a row of which another thread reads while it grows: no place of a block moves for up to
  /// `count` elements, so that an element may be read once the reader knows that it is there.
  void keep_blocks(std::size_t count) { blocks_.reserve((count >> Shift) + 1); }
  /// Gives the blocks that end before `index` to elements to come. They may not be read any more.
  void release_before(std::size_t index) {
    for (; released_ < (index >> Shift); ++released_) spare_.push_back(blocks_[released_]);
  }
  std::uint64_t bytes() const noexcept {
    return (std::uint64_t{blocks_.size()} << Shift) * sizeof(T) +
           blocks_.capacity() * sizeof(blocks_[0]);
  }

 private:
  static constexpr std::size_t kBlockBytes = kBlock * sizeof(T);
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
  T *at_ = nullptr, *end_ = nullptr;  // the next place, and where its block ends
  T* next_ = nullptr;                 // where the next block begins
  std::size_t left_ = 0;              // blocks of the last piece that are not used
  std::size_t size_ = 0;
  std::vector<T*> spare_;  // blocks that were released
  std::size_t released_ = 0;
};

}  // namespace emm::format
