#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "driver/sim/shared_memory.hpp"

namespace emm::sim {

/// A 32-bit value that repeats; its lowest byte stands at offsets that are multiples of four.
struct Pattern {
  std::uint32_t value = 0;
  bool operator==(const Pattern&) const = default;
};

/// The pattern that has `value`'s lowest byte at `offset`.
Pattern pattern_at(std::uint64_t offset, std::uint32_t value) noexcept;

/// Fills `bytes` with `value`, over and over from their start.
void repeat(std::span<std::byte> bytes, std::uint32_t value) noexcept;

/// What an allocation of device memory holds, without holding it: runs of a repeating pattern, and
/// bytes only where bytes were copied in. What nobody wrote to reads as `fresh`. Filling a terabyte
/// costs what filling a word does. One thread at a time; offsets and sizes are the caller's to
/// check.
class Content {
 public:
  explicit Content(Pattern fresh) noexcept : fresh_(fresh) {}
  /// Shared with the process that `memory` came from; both must agree on `fresh`.
  Content(Pattern fresh, SharedMemory memory) noexcept
      : fresh_(fresh), shared_(std::move(memory)) {}

  void fill(std::uint64_t offset, std::uint64_t size, Pattern pattern);
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// Moves the content of an allocation of `size` bytes into memory that other processes can map.
  /// Nothing where the system has none; then nothing has changed.
  const SharedMemory* share(std::uint64_t size);

  struct Place {
    Content& content;
    std::uint64_t offset;
  };
  /// As memmove: the two may overlap.
  static void copy(Place to, Place from, std::uint64_t size);

 private:
  struct Run {
    std::uint64_t size = 0;
    Pattern pattern;               // where bytes is empty
    std::vector<std::byte> bytes;  // else all of it
  };
  using Runs = std::map<std::uint64_t, Run>;

  /// The run that holds all of [offset, offset + size) as bytes, or end().
  Runs::iterator bytes_around(std::uint64_t offset, std::uint64_t size);
  void cut(std::uint64_t at);
  void clear(std::uint64_t offset, std::uint64_t size);

  Pattern fresh_;
  Runs runs_;  // by offset; none overlap; a gap is fresh
  // Holds each byte XOR fresh_, so that pages which nobody wrote to read as fresh in every process.
  std::optional<SharedMemory> shared_;
};

}  // namespace emm::sim
