#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.hpp"
#include "base/result.hpp"

namespace emm::allocators::pytorch {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kMinBlock = 512;
inline constexpr std::uint64_t kSmallSize = std::uint64_t{1} << 20;  ///< The largest small one.
inline constexpr std::uint64_t kSmallSegment = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kMinLargeAlloc = std::uint64_t{10} << 20;
inline constexpr std::uint64_t kRoundLarge = std::uint64_t{2} << 20;

/// What PYTORCH_ALLOC_CONF sets of the allocator of page-locked host memory. Bytes.
struct HostSettings {
  std::uint64_t max_round_threshold = kNoLimit;  ///< Larger requests are not rounded.
  std::uint64_t max_cached_size = kNoLimit;      ///< Larger blocks are not kept.
  std::uint64_t reserve_segment = 0;             ///< Asked for at once, and cut up first.

  bool operator==(const HostSettings&) const = default;
};

/// What PYTORCH_ALLOC_CONF sets of the native allocator, and the limits that stand beside it.
/// Bytes.
struct Settings {
  std::uint64_t max_split_size = kNoLimit;
  std::uint64_t large_segment_size = std::uint64_t{20} << 20;
  std::optional<std::uint64_t> max_non_split_rounding{};  ///< Else large_segment_size.
  double garbage_collection_threshold = 0;                ///< 0: off.
  /// For sizes in [2^i, 2^(i+1)) MiB, i the index; 0 and 1: no rounding to powers of two.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  std::optional<double>
      fraction{};           ///< per_process_memory_fraction; nothing: not set, or not known.
  std::uint64_t total = 0;  ///< Of the device; 0: not known. Ranges of addresses are 9/8 of it.
  HostSettings host{};

  /// What the fraction came to, where it is not known, or the total is not.
  std::uint64_t known_limit = kNoLimit;
  /// What may be reserved; kNoLimit where no limit is set, or none is known.
  std::uint64_t limit() const noexcept;
  void drop_limit() noexcept {
    fraction.reset();
    known_limit = kNoLimit;
  }

  bool operator==(const Settings&) const = default;
};

/// The size of the block that serves a request of `size` bytes.
std::uint64_t round_size(const Settings& settings, std::uint64_t size) noexcept;
/// The same of page-locked host memory: a power of two, but above a threshold as it is.
std::uint64_t round_host_size(const HostSettings& settings, std::uint64_t size) noexcept;
/// What is asked of the device where no block serves; `rounded` is round_size()'s.
std::uint64_t segment_size(const Settings& settings, std::uint64_t rounded) noexcept;
constexpr bool is_small(std::uint64_t rounded) noexcept { return rounded <= kSmallSize; }

/// Reads "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2]", the value of
/// PYTORCH_ALLOC_CONF, into `settings`. Errors: usage, naming the setting: one that is not known,
/// or whose value is none that PyTorch takes.
Status read_conf(std::string_view conf, Settings& settings);
/// The same as PyTorch would be told; empty for the default settings. `fraction` and `total` are
/// no part of it.
std::string to_conf(const Settings& settings);
/// The same, one by one: what differs from the default settings. Lists are as a manager's option
/// has them, with semicolons.
std::vector<std::pair<std::string_view, std::string>> named(const Settings& settings);
/// Reads "allocator_settings" of a snapshot, as JSON, into `settings`. What is not there stays. Of
/// the memory fraction and the device's total only what emmctl.torch.snapshot_on_oom() saves.
Status read_snapshot_settings(std::string_view json, Settings& settings);
/// Reads `--manager pytorch:max_split_size_mb=64,fraction=0.9,total=80GiB,version=2.11`, or
/// `limit=72GiB` in place of a fraction.
/// What is not given stays. The caller calls finish().
Status read_options(Options& options, Settings& settings);

}  // namespace emm::allocators::pytorch
