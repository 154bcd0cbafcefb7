#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/ids.hpp"
#include "driver/driver.hpp"

namespace emm::replay {

/// The content by which an allocation is known: a word of its own, repeated from its beginning, so
/// that what is found in the wrong place tells whose it is.
class Pattern {
 public:
  explicit Pattern(AllocId id) noexcept : word_((static_cast<std::uint32_t>(id) + 1) * kFactor) {}
  /// The other half of the words: what a peer writes over the exporter's content.
  static Pattern of_peer(AllocId id) noexcept;

  std::uint32_t word() const noexcept { return word_; }
  std::byte at(std::uint64_t offset) const noexcept {
    return static_cast<std::byte>(word_ >>
                                  (8 * (offset & 3)));  // as a little-endian device stores words
  }
  void fill(std::span<std::byte> bytes, std::uint64_t offset) const noexcept;
  /// The index of the first byte that is not the pattern's.
  std::optional<std::size_t> mismatch(std::span<const std::byte> bytes,
                                      std::uint64_t offset) const noexcept;
  /// Whose pattern `word` is, if it were one.
  static AllocId owner(std::uint32_t word) noexcept;

 private:
  static constexpr std::uint32_t kFactor = 0x9e3779b1;  // odd, so every word has one owner

  std::uint32_t word_;
};

/// A byte that is not what it should be.
struct Difference {
  std::uint64_t offset = 0;
  std::byte found{};
  std::byte expected{};
  std::uint32_t word = 0;  ///< The four bytes around it, from a multiple of four.
  std::string refused;  ///< The words of a driver that would not read; the rest then means nothing.
};

/// Where memory of `size` bytes is looked at: all of it up to 64 KiB, else 4 KiB at either end and
/// 64 places of 64 bytes evenly between. `each` gets offset and size; false ends it.
void for_each_probe(std::uint64_t size,
                    const std::function<bool(std::uint64_t, std::uint64_t)>& each);

Status fill_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size, Pattern pattern);
std::optional<Difference> check_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size,
                                       Pattern pattern);
void fill_host(HostPtr ptr, std::uint64_t size,
               Pattern pattern) noexcept;  ///< Where it is looked at.
std::optional<Difference> check_host(HostPtr ptr, std::uint64_t size, Pattern pattern);

}  // namespace emm::replay
