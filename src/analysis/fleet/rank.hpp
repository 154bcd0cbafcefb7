#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/rank_files.hpp"
#include "fleet/sites.hpp"
#include "inspect/recording.hpp"

namespace emm::fleet {

/// A request for device memory.
struct Request {
  std::uint32_t event = 0, site = 0;
  std::uint64_t size = 0;
};

/// A request that the device refused.
struct Refusal {
  std::uint32_t event = 0, site = 0;
  std::uint64_t size = 0, live = 0;
};

/// Allocations of one size from one call site.
struct SiteTotal {
  std::uint64_t count = 0, bytes = 0;
};
using Key = std::pair<std::uint32_t, std::uint64_t>;  ///< Call site, size.

/// The run's own figures, from a JSON beside the recording. Those of PyTorch's memory_stats() are
/// under "stats".
struct Figures {
  std::uint64_t world = 0;  ///< 0 if unknown.
  std::optional<std::uint64_t> outside, capacity, reserved_peak;
};
/// Reads the figures of a recording. Members are empty if the file lacks them.
Figures figures_of(const std::string& path);

/// What one process did with device memory, without the recording itself. Bytes.
struct Rank {
  RankFile file;
  std::string fault;  ///< Why the file could not be read, or only in part; empty if it is whole.
  bool read = false;
  std::optional<std::uint32_t> device;  ///< Set if the recording has several.
  std::uint64_t events = 0, frees = 0, refused = 0;
  std::uint64_t peak_live = 0, peak_count = 0;
  std::uint32_t peak_event = 0;
  std::optional<std::uint64_t> reserved;  ///< The peak of what its manager held.
  std::optional<std::uint64_t> limit;     ///< The device's capacity.
  std::optional<std::uint64_t> outside;   ///< Bytes of the device that the manager did not hold.
  std::optional<Refusal> refusal;         ///< The first.
  std::map<Key, SiteTotal> at_peak;
  std::map<Key, SiteTotal>
      grown;  ///< What its manager took from the device for requests of that key.
  std::vector<Request> requests;  ///< In the order of events.
  /// The most that was live in each of kParts parts of the recording, and the events at which they
  /// begin. All parts have as many allocations and frees.
  static constexpr std::size_t kParts = 64;
  std::array<std::uint64_t, kParts> course{};
  std::array<std::uint32_t, kParts> begins{};

  /// The most that its device held, as far as known; after a refused request, would have held.
  std::uint64_t used() const noexcept;
  std::uint64_t held() const noexcept { return reserved.value_or(peak_live); }
};

/// Sums up a recording: as one rank, or as one for each device on which it asked for memory.
/// `capacity`, if given, replaces that of the recording. `figures` are of one device.
std::vector<Rank> ranks_of(const inspect::Recording& recording, const RankFile& file, Sites& sites,
                           const Figures& figures, std::optional<std::uint64_t> capacity);

}  // namespace emm::fleet
