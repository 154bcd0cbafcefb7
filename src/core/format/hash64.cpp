#include "format/hash64.hpp"

#include <bit>
#include <cstring>

namespace emm::format {
namespace {

// XXH64's primes and stripe: the compact form names that hash.
constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87u;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4fu;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9u;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63u;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5u;

template <class Word>
std::uint64_t word_at(const char* at) noexcept {
  static_assert(std::endian::native == std::endian::little);
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

constexpr std::uint64_t round_of(std::uint64_t sum, std::uint64_t word) noexcept {
  return std::rotl(sum + word * kPrime2, 31) * kPrime1;
}
constexpr std::uint64_t merged(std::uint64_t hash, std::uint64_t sum) noexcept {
  return (hash ^ round_of(0, sum)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t hash64(std::string_view bytes) noexcept {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  std::uint64_t hash = kPrime5;
  constexpr std::size_t kStripe = 32;
  if (bytes.size() >= kStripe) {
    std::uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = 0 - kPrime1;
    for (; static_cast<std::size_t>(end - at) >= kStripe; at += kStripe) {
      a = round_of(a, word_at<std::uint64_t>(at));
      b = round_of(b, word_at<std::uint64_t>(at + 8));
      c = round_of(c, word_at<std::uint64_t>(at + 16));
      d = round_of(d, word_at<std::uint64_t>(at + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const auto sum : {a, b, c, d}) hash = merged(hash, sum);
  }
  hash += bytes.size();
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ round_of(0, word_at<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (word_at<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) {
    hash = std::rotl(hash ^ (word_at<std::uint8_t>(at) * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace emm::format
