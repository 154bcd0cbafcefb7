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
  // With --manager. The peaks are those of the process that had most.
  std::uint64_t served = 0;         ///< Requests that the manager served.
  std::uint64_t refused = 0;        ///< Requests for which it had no memory.
  std::uint64_t left = 0;           ///< Requests that were left to the driver, and got memory.
  std::uint64_t driver_calls = 0;   ///< How often the managers asked the driver for memory.
  std::uint64_t waits = 0;          ///< Frees that waited for the device.
  std::uint64_t peak_live = 0;      ///< Requested bytes.
  std::uint64_t peak_reserved = 0;  ///< Bytes that the managers had from the driver; 0: not known.
  std::uint64_t unserved = 0;       ///< Managers that could not be loaded or made.
  std::uint64_t unshared = 0;       ///< IPC handles that were refused.
};

}  // namespace emm::record
