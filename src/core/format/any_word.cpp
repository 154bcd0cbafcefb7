#include "format/any_word.hpp"

#include "base/assert.hpp"

namespace emm::format {
namespace {

std::size_t pair_at(const char* at) noexcept {
  return static_cast<std::size_t>(static_cast<unsigned char>(at[0])) << 8 |
         static_cast<unsigned char>(at[1]);
}

}  // namespace

AnyWord::AnyWord(std::span<const RareWord> words) : words_(words) {
  for (const auto& word : words) {
    EMM_ASSERT(word.pair + 3 <= word.text.size());
    // A word may begin at an even place, or at an odd one.
    pairs_.set(pair_at(word.text.data() + word.pair));
    pairs_.set(pair_at(word.text.data() + word.pair + 1));
  }
}

bool AnyWord::is_at(std::string_view text, std::size_t at) const noexcept {
  for (const auto& word : words_) {
    for (const auto pair : {word.pair, word.pair + 1}) {
      if (at >= pair && text.substr(at - pair, word.text.size()) == word.text) return true;
    }
  }
  return false;
}

bool AnyWord::is_in(std::string_view text) const noexcept {
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    if (pairs_.test(pair_at(text.data() + at)) && is_at(text, at)) return true;
  }
  return false;
}

}  // namespace emm::format
