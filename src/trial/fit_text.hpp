#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inspect/need.hpp"
#include "trial/fit.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// What a fit is shown with.
struct FitShown {
  const trace::Trace& trace;
  std::string manager;
  /// What is asked needs this of each device; waste is measured from it.
  std::vector<inspect::Need> needs;
  int width = 100;
  bool all_frames = false;  ///< Call stacks whole.
  /// Of a model of PyTorch's allocator: what the driver's addresses leave open.
  std::optional<FitRange> range{};
};

/// The neediest device's peak live, in whole pages: no device with less serves the trace.
std::uint64_t need_of(const std::vector<inspect::Need>& needs) noexcept;
/// The need of a manager that never waits.
std::uint64_t no_wait_need_of(const std::vector<inspect::Need>& needs) noexcept;

/// For a person.
std::string to_text(const Fit& fit, const FitShown& shown);
/// "emmctl.fit/2"
std::string to_json(const Fit& fit, const FitShown& shown);

}  // namespace emm::trial
