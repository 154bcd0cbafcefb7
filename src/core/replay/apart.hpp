#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emm/manager_entry.hpp"
#include "log/record.hpp"
#include "log/summary.hpp"
#include "log/writer.hpp"
#include "trace/trace.hpp"

namespace emm {

namespace replay {
class Stack;
}

using OpenLog = std::function<Result<log::RecordSink*>(const log::LogOptions&)>;

/// What run_apart() hands to the work of a run.
struct RunEnvironment {
  std::span<std::byte> kept;  ///< For ReplayOptions::kept.
  const std::atomic<bool>* interrupted;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  OpenLog open_log;                 ///< The work calls it once the clock is known.
  std::vector<std::string>& words;  ///< run_apart() returns them beside the summary.
};

/// A run of the engine. `work` does all of it, the device and the managers included.
struct ApartRun {
  const trace::Trace& trace;
  const ManagerFactory& manager;
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
  OpenLog open_log{};
  std::function<Result<log::Summary>(const RunEnvironment&)> work;
};

/// Carries out a run in this process or, if `manager.apart` is set, in a child process, which
/// foreign code may end, stop or damage. In either case this process writes the log, a record at a
/// time. If the child ends early, the summary holds what was found until then, and
/// Summary::abnormal says how the child ended. `words` becomes what `work` put into
/// RunEnvironment::words, or empty if `work` did not return.
///
/// For a foreign manager `work` opens the device; this process must not have opened it.
Result<log::Summary> run_apart(const ApartRun& run, std::vector<std::string>& words);

/// Replays on `stack`, the work's own, into the log that the run opens.
Result<log::Summary> replay_logged(const RunEnvironment& at, const trace::Trace& trace,
                                   replay::Stack& stack);

}  // namespace emm
