#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "emm/manager_entry.hpp"
#include "log/summary.hpp"
#include "trace/trace.hpp"

namespace emm::trial {

inline constexpr std::uint64_t kStep = std::uint64_t{2} << 20;  ///< A page of the device.
inline constexpr std::uint64_t kCapacityMost = std::uint64_t{4}
                                               << 40;  ///< No simulated device is larger.

/// What stays the same over the trials of a trace.
struct Setting {
  ManagerFactory manager{};
  /// The manager with a limit of its own. Where it is given, a capacity is that limit, on a device
  /// that has more.
  std::function<Result<ManagerFactory>(std::uint64_t capacity)> limited{};
  Profile profile = Profile::standard;
  bool refusals_fail = false;  ///< As ReplayOptions has it.
  std::string peer_program{};  ///< This executable, for the second process of IPC sections.
  const std::atomic<bool>* interrupted = nullptr;  ///< Ends a trial after its current event.
};

/// Replays `trace` on fresh simulated devices of `capacity` bytes each, up to the first request
/// that unexpectedly runs out of memory. Trials share nothing. A trial that ends the process of a
/// foreign manager has failed: Summary::abnormal.
Result<log::Summary> run(const trace::Trace& trace, const Setting& setting, std::uint64_t capacity);

/// Says which ordinals of `trace` the simulated devices of run() are; empty if these are 0, 1, ...
std::string renumbered(const trace::Trace& trace);

/// The exit code that a replay with this summary has: 0, 1 (it found a failure), 3 (nothing could
/// be judged) or 128 + the signal that ended the process of a foreign manager.
int exit_code(const log::Summary& summary, bool leaks_fail = false) noexcept;

}  // namespace emm::trial
