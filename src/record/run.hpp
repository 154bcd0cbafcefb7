#pragma once

#include <cstdint>

#include "record/raw.hpp"

/// What `emmctl run` and the library inside its program agree on.
namespace emm::record {

/// Calls that records do not tell apart, and faults do. Other calls have their number of Call.
enum FaultKind : std::uint16_t {
  kFaultAny = 0,
  kFaultAllocFromPool = static_cast<std::uint16_t>(Call::count_),
  kFaultStreamQuery,
  kFaultEventQuery,
  kFaultKinds
};

/// The file that EMM_RUN_SEEN names. All processes of the program map it and write to it.
struct RunReport {
  std::uint64_t seen = 0;       ///< 1: a process called cuInit through the library.
  std::uint64_t uncounted = 0;  ///< Allocations for which there was no room in the accounts.
};

}  // namespace emm::record
