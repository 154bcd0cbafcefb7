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

/// No size is too large, as where PyTorch is given no max_split_size_mb.
inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
// PyTorch's CUDACachingAllocator: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
// kRoundLarge. Bytes.
inline constexpr std::uint64_t kMinBlock = 512;
inline constexpr std::uint64_t kSmallSize = std::uint64_t{1} << 20;  ///< The largest small request.
inline constexpr std::uint64_t kSmallSegment = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kMinLargeAlloc = std::uint64_t{10} << 20;
inline constexpr std::uint64_t kRoundLarge = std::uint64_t{2} << 20;

/// The settings in PYTORCH_ALLOC_CONF of page-locked host memory. Bytes.
struct HostSettings {
  std::uint64_t max_round_threshold = kNoLimit;  ///< Larger requests are not rounded.
  std::uint64_t max_cached_size = kNoLimit;      ///< Larger blocks are not kept.
  std::uint64_t reserve_segment = 0;             ///< Allocated at once; its memory is cut up first.

  bool operator==(const HostSettings&) const = default;
};

/// The settings in PYTORCH_ALLOC_CONF of the native allocator, and its limits. Bytes.
struct Settings {
  std::uint64_t max_split_size = kNoLimit;
  std::uint64_t large_segment_size = std::uint64_t{20} << 20;
  std::optional<std::uint64_t> max_non_split_rounding{};  ///< Default: large_segment_size.
  double garbage_collection_threshold = 0;                ///< 0 means off.
  /// Entry i is for sizes in [2^i, 2^(i+1)) MiB. 0 and 1 mean no rounding to powers of two.
  std::array<std::uint64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  std::optional<double> fraction{};  ///< per_process_memory_fraction. Empty if not set or unknown.
  std::uint64_t total = 0;  ///< Bytes of the device; 0 if unknown. Address ranges are 9/8 of it.
  HostSettings host{};

  /// The limit in bytes. Used if the fraction or the total is unknown.
  std::uint64_t known_limit = kNoLimit;
  /// The largest number of reserved bytes; kNoLimit if no limit is set or known.
  std::uint64_t limit() const noexcept;
  void drop_limit() noexcept {
    fraction.reset();
    known_limit = kNoLimit;
  }
  /// Sets all to PyTorch's defaults but the limit and what is of host memory.
  void drop_conf() {
    Settings plain;
    plain.fraction = fraction;
    plain.total = total;
    plain.host = host;
    plain.known_limit = known_limit;
    *this = plain;
  }

  bool operator==(const Settings&) const = default;
};

/// Returns the size of the block that serves a request of `size` bytes.
std::uint64_t round_size(const Settings& settings, std::uint64_t size) noexcept;
/// Does the same for page-locked host memory: the next power of two, or `size` itself above a
/// threshold.
std::uint64_t round_host_size(const HostSettings& settings, std::uint64_t size) noexcept;
/// Returns the bytes to request from the device if no block serves. `rounded` comes from
/// round_size().
std::uint64_t segment_size(const Settings& settings, std::uint64_t rounded) noexcept;
constexpr bool is_small(std::uint64_t rounded) noexcept { return rounded <= kSmallSize; }

/// Reads the value of PYTORCH_ALLOC_CONF, such as
/// "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2]", into `settings`. Errors: usage,
/// naming a setting that is unknown or has a value that PyTorch does not take.
Status read_conf(std::string_view conf, Settings& settings);
/// Writes what read_conf() reads, without `fraction` and `total`. Empty for the default settings.
std::string to_conf(const Settings& settings);
/// Lists the settings that differ from the default, one by one. Lists inside of values have
/// semicolons, as in a manager's options.
std::vector<std::pair<std::string_view, std::string>> named(const Settings& settings);
/// Reads "allocator_settings" of a snapshot, as JSON, into `settings`. Missing settings keep their
/// value. The memory fraction and the device's total are there only if
/// emmctl.torch.snapshot_on_oom() saved them.
Status read_snapshot_settings(std::string_view json, Settings& settings);
/// Do the options give a setting of PYTORCH_ALLOC_CONF for device memory? They are then all of it,
/// as the variable's value is.
bool has_conf(const Options& options);
/// Reads `--manager pytorch:max_split_size_mb=64,fraction=0.9,total=80GiB,version=2.11`, or
/// `limit=72GiB` in place of a fraction. Missing options keep their value. The caller calls
/// finish().
Status read_options(Options& options, Settings& settings);

}  // namespace emm::allocators::pytorch
