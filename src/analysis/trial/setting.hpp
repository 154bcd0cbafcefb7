#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "emm/manager_entry.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::trial {

inline constexpr std::uint64_t kStep = std::uint64_t{2} << 20;  ///< A page of the device.
inline constexpr std::uint64_t kCapacityMost = std::uint64_t{4}
                                               << 40;  ///< No simulated device is larger.

/// Within this factor of the best, a figure is as good as the best: of tune, compare and fit.
inline constexpr double kAlike = 1.03;
/// So much more memory is worth it where the driver's calls then take less than a tenth.
inline constexpr double kLittleMore = 1.1, kMuchFaster = 10;

/// What a manager takes.
struct Cost {
  double bytes = 0, ns = 0;
};
/// Returns the place of the manager to recommend, of at least one: that which takes the least
/// memory, or a faster one that takes about as much or little more.
std::size_t best_of(const std::vector<Cost>& costs);
/// Names what the recommended manager takes beside the least: "least", "about the least" or "little
/// more than the least".
std::string_view beside_least(std::uint64_t bytes, std::uint64_t least);

/// What all trials of a trace have in common.
struct Setting {
  ManagerFactory manager{};
  /// Makes the manager with a limit. If this is set, a trial's capacity is that limit, and the
  /// device has more.
  std::function<Result<ManagerFactory>(std::uint64_t capacity)> limited{};
  Profile profile = Profile::standard;
  std::string costs = "none";  ///< What the simulated device's calls take.
  bool refusals_fail = false;  ///< From ReplayOptions.
  std::string peer_program{};  ///< This executable, for the second process of IPC sections.
  const std::atomic<bool>* interrupted = nullptr;  ///< Ends a trial after its current event.
};

/// Replays `trace` on fresh simulated devices of `capacity` bytes each, up to the first request
/// that unexpectedly runs out of memory. Trials share nothing. If a trial ends the process of a
/// foreign manager, it has failed: see Summary::abnormal.
Result<log::Summary> run(const trace::Trace& trace, const Setting& setting, std::uint64_t capacity);
/// The same on a device whose calls take what they take on an H200.
Result<log::Summary> run_timed(const trace::Trace& trace, Setting setting, std::uint64_t capacity);
/// Returns the nanoseconds that the driver's calls took in a timed run.
std::uint64_t driver_ns_of(const log::Summary& run);

/// Says which devices of `trace` the simulated devices stand for; empty if they are 0, 1, ...
std::string renumbered(const trace::Trace& trace);

}  // namespace emm::trial
