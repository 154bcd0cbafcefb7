#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trial/draft.hpp"
#include "trial/symptom.hpp"

namespace emm::trial {

/// A smaller trace that fails in the same way, and how it came about.
struct Reduction {
  bool shown = false;        ///< The whole trace fails in this way; else nothing was done.
  bool interrupted = false;  ///< The search was interrupted: more might be left out.
  /// The original event that fails first, in the draft too. Empty if the symptom names none.
  std::optional<std::uint32_t> target;
  Draft draft;            ///< The smallest draft found, with the events of the original trace.
  Finding before, after;  ///< Results of the first trial, and of the draft's.
  std::uint64_t trials = 0;
};

struct MinimizeOptions {
  std::function<void(std::uint64_t events_left)> progress{};  ///< After each trial.
};

/// Makes `trace` smaller for as long as `examiner` finds that it fails in the same way. Each step
/// takes something away:
///
/// - Events are left out, an allocation together with its free and all that names it. If a
///   request fails (oom, or exit:1 by a request), the events after it go first. That request is
///   kept and stays the first that fails.
/// - Two adjacent requests whose frees are adjacent too become one request of both sizes.
/// - Sizes are made smaller. Streams become the default stream, and threads one thread.
///
/// If the symptom is that a manager needs more than another, the other must still need half of what
/// it did. The peak of the live bytes never exceeds the original's. The same arguments give the
/// same draft. Errors are those of the first trial.
Result<Reduction> minimize(const trace::Trace& trace, Examiner& examiner,
                           const MinimizeOptions& options);

}  // namespace emm::trial
