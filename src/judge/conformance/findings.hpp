#pragma once

#include <string>
#include <vector>

#include "conformance/suite.hpp"

namespace emm::conformance {

/// Failures that have one cause.
struct Finding {
  std::string says;       ///< What is wrong, in one line.
  const Judged* shown{};  ///< The failure that shows it best.
  /// The clauses that failed for it, in the order of the catalogue.
  std::vector<const Judged*> failed{};
  /// Clauses that were not judged, or not to their end, since the manager did the same there.
  std::vector<const Judged*> unjudged{};
};

/// Groups the failures of a report, the finding that breaks most clauses first.
///
/// Two failures have one cause if they show the same: the same answer of the manager, things left
/// that the same operation made, the same words once numbers and addresses are taken out, or an
/// operation that fails where success is due. A finding also takes in the failures of clauses that
/// are declared to fail with one of its own (Clause::may_fail_with).
std::vector<Finding> findings_of(const Report& report);

/// The command that shows a finding again, whole.
std::string command_of(const Report& report, const Finding& finding);

}  // namespace emm::conformance
