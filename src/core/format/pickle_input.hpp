#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "format/byte_source.hpp"

namespace emm::format {

/// Reads the bytes of a ByteSource a few at a time. After a function returns `false`, take_status()
/// is the source's error, or good if the file just ends.
class PickleInput {
 public:
  explicit PickleInput(ByteSource& source) noexcept : source_(source) {}

  bool byte(std::uint8_t& value) noexcept {
    if (at_ == end_ && !refill()) return false;
    value = static_cast<std::uint8_t>(*at_++);
    return true;
  }
  bool copy(char* out, std::size_t size) noexcept {
    while (size > static_cast<std::size_t>(end_ - at_)) {
      const auto part = static_cast<std::size_t>(end_ - at_);
      if (part != 0) std::memcpy(out, at_, part);
      out += part;
      size -= part;
      at_ = end_;
      if (!refill()) return false;
    }
    if (size == 0) return true;
    std::memcpy(out, at_, size);
    at_ += size;
    return true;
  }
  bool skip(std::uint64_t size) noexcept {
    while (size > static_cast<std::uint64_t>(end_ - at_)) {
      size -= static_cast<std::uint64_t>(end_ - at_);
      at_ = end_;
      if (!refill()) return false;
    }
    at_ += size;
    return true;
  }
  /// Reads `size` bytes, at most 8, as a little-endian integer.
  bool little(std::size_t size, std::uint64_t& value) noexcept {
    value = 0;
    if (static_cast<std::size_t>(end_ - at_) >= size) {
      for (std::size_t i = 0; i < size; ++i)
        value |= std::uint64_t{static_cast<std::uint8_t>(at_[i])} << (8 * i);
      at_ += size;
      return true;
    }
    std::uint8_t next = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (!byte(next)) return false;
      value |= std::uint64_t{next} << (8 * i);
    }
    return true;
  }

  /// The buffered bytes that are not taken yet; may be empty. skip_to() takes those before `at`.
  std::string_view at_hand() const noexcept { return {at_, static_cast<std::size_t>(end_ - at_)}; }
  void skip_to(const char* at) noexcept { at_ = at; }

  /// The number of bytes taken so far.
  std::uint64_t offset() const noexcept {
    return before_ + static_cast<std::uint64_t>(at_ - begin_);
  }
  /// The number of chunks begun.
  std::uint64_t chunks() const noexcept { return chunks_; }
  Status take_status() noexcept { return std::exchange(status_, {}); }
  /// Reads to the end of the source and returns the number of bytes read.
  std::uint64_t drain() noexcept {
    const auto from = offset();
    do at_ = end_;
    while (refill());
    return offset() - from;
  }

 private:
  bool refill() noexcept {
    before_ += static_cast<std::uint64_t>(end_ - begin_);
    begin_ = at_ = end_ = nullptr;
    auto next = source_.next();
    if (!next) {
      status_ = std::move(next).error();
      return false;
    }
    if (next->empty()) return false;
    begin_ = at_ = next->data();
    end_ = begin_ + next->size();
    ++chunks_;
    return true;
  }

  ByteSource& source_;
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::uint64_t before_ = 0, chunks_ = 0;
  Status status_;
};

}  // namespace emm::format
