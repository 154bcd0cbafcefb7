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

/// What a run is given by the process that it is in.
struct RunEnvironment {
  std::span<std::byte> kept;  ///< For ReplayOptions::kept.
  const std::atomic<bool>* interrupted;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  OpenLog open_log;                 ///< Once the clock is known.
  std::vector<std::string>& words;  ///< What is to come back beside the summary.
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

/// Carries out a run: here, or, where `manager.apart` says so, in a child process of its own, which
/// foreign code may end, stop or damage as it likes. The log is written here all the same, a record
/// at a time, and what such a run had found is in the summary, with how it ended in
/// Summary::abnormal. `words` becomes what `work` put into RunEnvironment::words; empty where it
/// did not come to its end.
///
/// Where the manager is foreign, `work` opens the device; nobody may have opened it here.
Result<log::Summary> run_apart(const ApartRun& run, std::vector<std::string>& words);

}  // namespace emm
