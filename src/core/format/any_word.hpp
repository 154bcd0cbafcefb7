#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>

namespace emm::format {

/// A word to look for. Of its letters those at `pair` and the two after it are the rarest.
struct RareWord {
  std::string_view text;
  std::size_t pair = 0;
};

/// Tells whether a text has any of some words, at a gigabyte a second: of each second pair of
/// letters it looks up whether one of the words has it.
class AnyWord {
 public:
  /// REQUIRES: each word has three letters from `pair` on. The words must outlive it.
  explicit AnyWord(std::span<const RareWord> words);

  bool is_in(std::string_view text) const noexcept;

 private:
  static constexpr std::size_t kPairs = std::size_t{1} << 16;  // each pair of two bytes
  bool is_at(std::string_view text, std::size_t at) const noexcept;

  std::span<const RareWord> words_;
  std::bitset<kPairs> pairs_;
};

}  // namespace emm::format
