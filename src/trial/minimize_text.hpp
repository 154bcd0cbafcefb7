#pragma once

#include <string>

#include "trial/minimize.hpp"

namespace emm::trial {

/// What a reduction is shown with.
struct ReductionShown {
  const trace::Trace& trace;  ///< The original.
  std::string manager, against, fails_with;
  std::uint64_t capacity = 0;
  bool refusals_fail = false;  ///< What the recording refused is a failure too.
  bool verified = true;        ///< What was written, read again, fails in the same way.
  bool all_frames = false;     ///< Call stacks whole.
};

/// For a person, in lines: how much is left, and how it fails.
std::string to_text(const Reduction& reduction, const ReductionShown& shown);
/// "emmctl.minimize/1"
std::string to_json(const Reduction& reduction, const ReductionShown& shown);
/// The member "x-minimized" of the smaller trace's header.
std::string note_of(const ReductionShown& shown);

}  // namespace emm::trial
