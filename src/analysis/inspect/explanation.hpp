#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspect/description.hpp"
#include "inspect/oom_text.hpp"

namespace emm::inspect {

/// What `emmctl explain` says of a trace: the results of find_ooms() and fit_checks().
struct Explanation {
  OomReport report;
  std::vector<FitCheck> fit_checks;
};
Explanation explain(const Recording& recording, const trace::Lifetimes& lifetimes,
                    std::optional<std::uint64_t> capacity);

/// The same of a trace that is longer than memory, and what was live at the events that it names.
struct OomsInPasses final : Explanation, Moments {
  std::unique_ptr<LiveWalk> walk;  ///< Its trace has the names for the figures.
  std::map<std::pair<std::uint32_t, std::uint32_t>, HeldMemory> held;  ///< By event and device.
  std::map<std::uint32_t, Growth> grown;  ///< For devices where a request failed.

  const trace::Trace& trace() const noexcept { return walk->trace(); }
  HeldMemory held_after(std::uint32_t event, std::uint32_t device) const override;
  Growth growth(std::uint32_t device) const override;
};

/// Looks at the first kFailuresListed failures, and at the one at `event` if given. Returns null if
/// the trace has to be in memory: if LiveWalk says so, or if `capacity` is given and a device has
/// several streams, whose no-wait need takes the whole trace.
Result<std::unique_ptr<OomsInPasses>> explain_in_passes(const std::string& source,
                                                        const ReadAgain& read,
                                                        std::optional<std::uint64_t> capacity,
                                                        std::optional<std::uint64_t> event);

}  // namespace emm::inspect
