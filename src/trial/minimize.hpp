#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trial/draft.hpp"
#include "trial/symptom.hpp"

namespace emm::trial {

/// A smaller trace that fails in the same way, and how it came about.
struct Reduction {
  bool shown = false;        ///< The whole trace does fail so; else nothing was done.
  bool interrupted = false;  ///< Before nothing more could be left out.
  /// The event of the original that fails first, and goes on doing so; nothing where none tells.
  std::optional<std::uint32_t> target;
  Draft draft;            ///< The smallest found. Events are those of the original trace.
  Finding before, after;  ///< Of the first trial, and of the draft.
  std::uint64_t trials = 0;
};

struct MinimizeOptions {
  std::function<void(std::uint64_t events_left)> progress{};  ///< After each trial.
};

/// Makes `trace` smaller while `examiner` finds that it fails in the same way. It is only ever made
/// smaller:
///
/// - Events are left out, an allocation together with its end and all else that names it. Where a
///   request fails (oom, and exit:1 by one), what follows it goes first, and that request is kept
///   and stays the first that fails.
/// - Two requests that stand side by side, and whose ends do, are made one of both sizes.
/// - Sizes are made smaller; streams become the default stream, threads one.
///
/// Where a manager is to need more than another, the other goes on needing half of what it did.
/// So the peak of what is live is never above the original's. The same arguments give the same
/// draft. Errors are those of the first trial.
Result<Reduction> minimize(const trace::Trace& trace, Examiner& examiner,
                           const MinimizeOptions& options);

}  // namespace emm::trial
