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

using OpenLog = std::function<Result<log::RecordSink*>(const log::LogOptions&)>;

/// What the process of a run hands to it.
struct RunEnvironment {
  std::span<std::byte> kept;  ///< For ReplayOptions::kept.
  const std::atomic<bool>* interrupted;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  OpenLog open_log;                 ///< To be called once the clock is known.
  std::vector<std::string>& words;  ///< Returned beside the summary.
};

/// A run of the engine, with its device and its managers: all that `work` does.
struct ApartRun {
  const trace::Trace& trace;
  const ManagerFactory& manager;
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress{};
  OpenLog open_log{};
  std::function<Result<log::Summary>(const RunEnvironment&)> work;
};

/// Carries out a run: in this process, or, where `manager.apart` says so, in a child process of its
/// own, which foreign code may end, stop or damage. This process writes the log in either case, a
/// record at a time. Where the child ended early, the summary has what was found until then, and
/// how it ended in Summary::abnormal. `words` becomes what `work` put into RunEnvironment::words;
/// empty where `work` did not return.
///
/// For a foreign manager `work` opens the device; this process must not have opened it.
Result<log::Summary> run_apart(const ApartRun& run, std::vector<std::string>& words);

}  // namespace emm
