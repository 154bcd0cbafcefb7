#pragma once

#include <string>

#include "trial/minimize.hpp"

namespace emm::trial {

/// What to_text() and to_json() need besides the reduction.
struct ReductionShown {
  const trace::Trace& trace;  ///< The original.
  std::string manager, against, fails_with;
  std::uint64_t capacity = 0;
  bool refusals_fail = false;  ///< Requests that the recording refused count as failures too.
  bool verified = true;        ///< The written trace, read again, fails in the same way.
  bool all_frames = false;     ///< Show whole call stacks.
};

/// Says in lines how much is left and how it fails, for a person.
std::string to_text(const Reduction& reduction, const ReductionShown& shown);
/// "emmctl.minimize/1"
std::string to_json(const Reduction& reduction, const ReductionShown& shown);
/// The member "x-minimized" of the smaller trace's header.
std::string note_of(const ReductionShown& shown);

}  // namespace emm::trial
