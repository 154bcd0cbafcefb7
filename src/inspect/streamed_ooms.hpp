#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspect/in_passes.hpp"
#include "inspect/oom_finder.hpp"
#include "inspect/oom_text.hpp"

namespace emm::inspect {

/// What `emmctl explain` says of a trace that is longer than memory: what find_ooms() and
/// fit_checks() say of one in memory, and what was live at the moments that they name.
struct OomsInPasses final : Moments {
  std::unique_ptr<LiveWalk> walk;  ///< Whose trace knows what the figures are about.
  OomReport report;
  std::vector<FitCheck> fit_checks;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Holding> held;  ///< By event and device.
  std::map<std::uint32_t, Growth> grown;                            ///< Where a request failed.

  const trace::Trace& trace() const noexcept { return walk->trace(); }
  Holding held_after(std::uint32_t event, std::uint32_t device) const override;
  Growth growth(std::uint32_t device) const override;
};

/// Looks at the first kFailuresListed failures, and at the one at `event`, if it is given. Null
/// where the trace has to be in memory: where LiveWalk says so, and to say of one with several
/// streams what a manager needs in `capacity` that never waits.
Result<std::unique_ptr<OomsInPasses>> explain_in_passes(const std::string& source,
                                                        const ReadAgain& read,
                                                        std::optional<std::uint64_t> capacity,
                                                        std::optional<std::uint64_t> event);

}  // namespace emm::inspect
