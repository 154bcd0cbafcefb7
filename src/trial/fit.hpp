#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "trial/setting.hpp"

namespace emm::trial {

inline constexpr std::size_t kTriesBelow = 32;

/// What trials of one trace at several capacities say. Bytes, of each device, in whole kSteps.
///
/// A trace passes at a capacity where a replay's exit code there would be 0. So a request that the
/// trace expects to fail must fail, and may make a trace that passes at no capacity, or only below
/// one; a recorded refusal may go either way.
struct Fit {
  /// The trace passes here, and not at kStep less. Nothing where no capacity was found that it
  /// passes at, or it was interrupted before.
  std::optional<std::uint64_t> capacity;
  /// How the trial one step below `capacity` failed; nothing where there is no smaller device.
  /// Where no capacity passes, how the one at kCapacityMost went wrong.
  std::optional<log::Summary> below;
  std::uint64_t peak_reserved = 0;  ///< At `capacity`;
  std::uint64_t refused = 0;  ///< operations that the recording refused, and that fail there too;
  std::uint64_t served = 0;   ///< and that work there.
  /// Where some of them fail at `capacity`: one at which none of them does, and at kStep less not
  /// all are served. Nothing where they are, or no such capacity was found.
  std::optional<std::uint64_t> all_served;
  /// Capacities below `capacity` that were tried once that was known, by size; and those at which
  /// the trace passes all the same, of all trials.
  std::vector<std::uint64_t> tried_below, passing_below;
  std::map<std::uint64_t, bool> trials;  ///< Each capacity that was tried: does the trace pass?
  bool judged_nothing = false;           ///< There was nothing to judge at any capacity.
  bool interrupted = false;              ///< Before all was tried; `trials` holds what is known.
};

struct FitOptions {
  std::uint64_t start = 0;  ///< Where to begin: what any manager needs.
  std::uint64_t hint = 0;   ///< A capacity that may be right where others are not; 0: none.
  std::function<void(std::uint64_t trials)> progress{};  ///< After each trial.
};

/// Looks for the smallest capacity at which `trace` passes: by doubling steps up from `start` (or
/// down, where it passes there), then by halving, then at kTriesBelow others below what it found,
/// as managers are not monotone: half of them next to it, half evenly down to `start`. Errors are
/// those of a run that leaves nothing to report.
Result<Fit> fit(const trace::Trace& trace, const Setting& setting, const FitOptions& options);

}  // namespace emm::trial
