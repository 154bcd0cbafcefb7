#pragma once

#include <optional>
#include <string>
#include <vector>

#include "format/brief.hpp"
#include "inspect/memory_need.hpp"
#include "trial/fit.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// What to_text() and to_json() need besides the fit.
struct FitShown {
  const trace::Trace& trace;
  std::string manager;
  /// The needs of each device. Waste is what exceeds them.
  std::vector<inspect::MemoryNeed> needs;
  int width = 100;
  /// The options that choose the manager again, as words for a shell.
  std::string chosen_by{};
  bool all_frames = false;  ///< Show whole call stacks.
  /// For a model of PyTorch's allocator: the range that the driver's addresses leave open.
  std::optional<FitRange> range{};
};

/// Returns the largest peak live of a device, in whole pages. No smaller device serves the trace.
std::uint64_t need_of(const std::vector<inspect::MemoryNeed>& needs) noexcept;
/// Returns the largest need of a device with a manager that never waits.
std::uint64_t no_wait_need_of(const std::vector<inspect::MemoryNeed>& needs) noexcept;

/// The answer for one manager.
struct Fitted {
  Fit fit;
  FitShown shown;
};
/// Says in one breath with how much each manager serves the trace. REQUIRES: there is one.
format::Brief brief(const std::vector<Fitted>& all);
/// Writes the answer for a person.
std::string to_text(const Fit& fit, const FitShown& shown);
/// "emmctl.fit/2"; of several managers "emmctl.fit-set/1".
std::string to_json(const Fit& fit, const FitShown& shown);
std::string to_json(const std::vector<Fitted>& all);

}  // namespace emm::trial
