#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "driver/sim/shared_memory.hpp"

namespace emm::sim {

/// A repeating 32-bit value; its lowest byte is at offsets that are multiples of four.
struct Pattern {
  std::uint32_t value = 0;
  bool operator==(const Pattern&) const = default;
};

/// The pattern that has `value`'s lowest byte at `offset`.
Pattern pattern_at(std::uint64_t offset, std::uint32_t value) noexcept;

/// Bytes of the host that the contents of all devices take, but for those that processes share.
std::uint64_t kept_bytes() noexcept;
void add_kept_bytes(std::int64_t bytes) noexcept;

/// Fills `bytes` with `value`, repeated from their start.
void repeat(std::span<std::byte> bytes, std::uint32_t value) noexcept;

/// Bytes of a run, which are counted in kept_bytes().
class RunBytes {
 public:
  RunBytes() = default;
  explicit RunBytes(std::span<const std::byte> from) : bytes_(from.begin(), from.end()) { count(); }
  RunBytes(const RunBytes& other) : RunBytes(std::span<const std::byte>(other.bytes_)) {}
  RunBytes(RunBytes&& other) noexcept { *this = std::move(other); }
  RunBytes& operator=(RunBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(counted_, other.counted_);
    return *this;
  }
  ~RunBytes() { add_kept_bytes(-counted_); }

  bool empty() const noexcept { return bytes_.empty(); }
  std::byte* data() noexcept { return bytes_.data(); }
  const std::byte* data() const noexcept { return bytes_.data(); }
  operator std::span<std::byte>() noexcept { return bytes_; }              // NOLINT
  operator std::span<const std::byte>() const noexcept { return bytes_; }  // NOLINT
  void append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    count();
  }
  /// Drops all behind the first `size`, and returns it.
  RunBytes cut(std::size_t size) {
    RunBytes tail(std::span<const std::byte>(bytes_).subspan(size));
    bytes_.resize(size);
    bytes_.shrink_to_fit();
    count();
    return tail;
  }

 private:
  void count() noexcept {
    const auto now = static_cast<std::int64_t>(bytes_.size());
    add_kept_bytes(now - counted_);
    counted_ = now;
  }

  std::vector<std::byte> bytes_;
  std::int64_t counted_ = 0;
};

/// The content of an allocation of device memory, without the memory: runs of a repeating pattern,
/// and real bytes only where bytes were copied in. Bytes that were never written read as `fresh`. A
/// fill of a terabyte costs as much as a fill of a word. The caller checks offsets and sizes. One
/// thread at a time.
class Content {
 public:
  explicit Content(Pattern fresh) noexcept : fresh_(fresh) {}
  /// Shares the bytes with the process that `memory` came from. Both must agree on `fresh`.
  Content(Pattern fresh, SharedMemory memory) noexcept
      : fresh_(fresh), shared_(std::move(memory)) {}

  void fill(std::uint64_t offset, std::uint64_t size, Pattern pattern);
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  /// Moves the content of an allocation of `size` bytes into memory that other processes can map.
  /// Null if the system has none; then nothing has changed.
  const SharedMemory* share(std::uint64_t size);

  struct Position {
    Content& content;
    std::uint64_t offset;
  };
  /// `to` and `from` may overlap, as in memmove.
  static void copy(Position to, Position from, std::uint64_t size);

 private:
  struct Run {
    std::uint64_t size = 0;
    Pattern pattern;  // if the run has no bytes
    RunBytes bytes;   // the whole run, or empty
  };
  using Runs = std::map<std::uint64_t, Run>;

  /// The run that holds all of [offset, offset + size) as bytes, or end().
  Runs::iterator bytes_around(std::uint64_t offset, std::uint64_t size);
  /// Splits the run that lies across `at`, if there is one.
  void cut(std::uint64_t at);
  void clear(std::uint64_t offset, std::uint64_t size);

  Pattern fresh_;
  Runs runs_;  // by offset; none overlap; a gap is fresh
  // Holds each byte XOR fresh_. New pages of the system are zero, so an untouched page reads as
  // fresh in every process and takes no memory.
  std::optional<SharedMemory> shared_;
};

}  // namespace emm::sim
