#pragma once

#include <cstdint>

#include "raw/raw.hpp"

/// What `emmctl run` shares with the library inside its program.
namespace emm::record {

/// Kinds of calls that faults tell apart and records do not. Other calls use their number of Call.
enum FaultKind : std::uint16_t {
  kFaultAny = 0,
  kFaultAllocFromPool = static_cast<std::uint16_t>(Call::count_),
  kFaultStreamQuery,
  kFaultEventQuery,
  kFaultKinds
};

/// The file that EMM_RUN_SEEN names. All processes of the program map it and write to it.
struct RunReport {
  std::uint64_t seen = 0;  ///< 1: a process has called cuInit through the library.
  /// Allocations that had no room in the accounts and do not count against the capacity.
  std::uint64_t uncounted = 0;
};

}  // namespace emm::record
