#pragma once

#include <unistd.h>

#include <bit>
#include <cstdint>

#include "base/assert.hpp"

namespace emm {

/// A seed that differs from run to run. std::random_device would need glibc 2.36 if libstdc++ is
/// linked statically.
inline std::uint64_t random_seed() {
  std::uint32_t seed = 0;  // only 32 bits, so that a person may type it
  EMM_ASSERT(getentropy(&seed, sizeof seed) == 0);
  return seed;
}

/// The one source of randomness: the same seed gives the same numbers on every machine and compiler
/// (xoshiro256**, seeded by splitmix64; the standard does not specify std's distributions exactly).
class Prng {
 public:
  explicit Prng(std::uint64_t seed) noexcept {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15u;
      auto z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }

  std::uint64_t next() noexcept {
    const auto result = std::rotl(state_[1] * 5, 7) * 9;
    const auto t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound). REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept {
    EMM_ASSERT(bound > 0);
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  /// Uniform in [low, high]. REQUIRES: low <= high, and not the whole range of 64 bits.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
    return low + below(high - low + 1);
  }
  /// Uniform in [0, 1).
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) noexcept { return unit() < probability; }
  /// Log-uniform in [low, high]: as likely between 1 KiB and 2 KiB as between 1 GiB and 2 GiB.
  /// Integer arithmetic picks the octave, so that the result does not depend on libm. REQUIRES: 0 <
  /// low <= high.
  std::uint64_t log_uniform(std::uint64_t low, std::uint64_t high) noexcept {
    const auto first = static_cast<int>(std::bit_width(low));
    const auto octave =
        first +
        static_cast<int>(
            below(static_cast<std::uint64_t>(static_cast<int>(std::bit_width(high)) - first) + 1));
    const auto begin = std::uint64_t{1} << (octave - 1);
    const auto end = begin + (begin - 1);
    return between(begin < low ? low : begin, end > high ? high : end);
  }

 private:
  std::uint64_t state_[4];
};

}  // namespace emm
