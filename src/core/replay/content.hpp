#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/ids.hpp"
#include "driver/driver.hpp"

namespace emm::replay {

/// The content that marks an allocation: a word that no other allocation has, repeated from its
/// start. A word found in the wrong place identifies its owner.
class Pattern {
 public:
  explicit Pattern(AllocId id) noexcept : word_((static_cast<std::uint32_t>(id) + 1) * kFactor) {}
  /// The pattern that a peer writes over the exporter's content: the complement of the exporter's
  /// word.
  static Pattern of_peer(AllocId id) noexcept;

  std::uint32_t word() const noexcept { return word_; }
  std::byte at(std::uint64_t offset) const noexcept {
    return static_cast<std::byte>(word_ >>
                                  (8 * (offset & 3)));  // as a little-endian device stores words
  }
  void fill(std::span<std::byte> bytes, std::uint64_t offset) const noexcept;
  /// The index of the first byte that differs from the pattern.
  std::optional<std::size_t> mismatch(std::span<const std::byte> bytes,
                                      std::uint64_t offset) const noexcept;
  /// The allocation whose pattern has `word`.
  static AllocId owner(std::uint32_t word) noexcept;

 private:
  static constexpr std::uint32_t kFactor = 0x9e3779b1;  // odd, so every word has one owner

  std::uint32_t word_;
};

/// A byte that differs from what was expected.
struct Difference {
  std::uint64_t offset = 0;
  std::byte found{};
  std::byte expected{};
  std::uint32_t word = 0;  ///< The aligned four bytes that contain it.
  std::string
      refused;  ///< The error of a driver that refused to read; only `offset` is then valid too.
};

/// Calls `each` with the offset and size of each part to check in memory of `size` bytes. Up to 64
/// KiB that is all of it; else 4 KiB at either end, and 64 parts of 64 bytes evenly between. Stops
/// when `each` returns false.
void for_each_probe(std::uint64_t size,
                    const std::function<bool(std::uint64_t, std::uint64_t)>& each);

Status fill_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size, Pattern pattern);
std::optional<Difference> check_device(ContentCalls& driver, DevicePtr ptr, std::uint64_t size,
                                       Pattern pattern);
void fill_host(HostPtr ptr, std::uint64_t size,
               Pattern pattern) noexcept;  ///< Fills the probed parts.
std::optional<Difference> check_host(HostPtr ptr, std::uint64_t size, Pattern pattern);

}  // namespace emm::replay
