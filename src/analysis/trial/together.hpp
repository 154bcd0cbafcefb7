#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trial/setting.hpp"

namespace emm::trial {

/// The results of one process with one manager.
struct TogetherPart {
  std::uint64_t peak_reserved = 0;  ///< On a device with enough memory.
  std::uint64_t peak_event = 0;     ///< The first event after which it holds the peak.
  std::uint64_t peak_ns = 0;        ///< That event's time since the first event, or its number.
  std::uint64_t least = 0;          ///< The smallest capacity that serves it, found by halving.
};

/// The results of several processes on one device, each with an instance of one manager.
struct TogetherRow {
  std::string manager;
  std::string failure;  ///< Why there is no answer; empty if there is one.
  std::vector<TogetherPart> parts;
  /// The capacity that suffices at any offset in time: the sum of the peaks, which may coincide.
  std::uint64_t any_offset = 0;
  std::uint64_t at_once = 0;  ///< The most that they hold at once if all begin at the same time.
  std::uint64_t limited = 0;  ///< What suffices if each process is limited to its `least`.
};

/// What the processes need, and the results of each manager.
struct Together {
  std::vector<std::string> traces;
  std::vector<std::uint64_t> peak_live;  ///< One for each process.
  std::uint64_t need = 0;  ///< Sum of peak_live. At the worst offset, no manager takes less.
  bool has_times = false;  ///< All traces have times; else times are numbers of events.
  std::vector<TogetherRow> rows;
  bool interrupted = false;
};

/// A manager with a setting for each trace, because each recording may have its own settings.
struct TogetherManager {
  std::string name;
  std::vector<Setting> settings;
};

/// Replays each trace alone with each manager on a device with enough memory, and searches the
/// smallest device that serves it. What a process holds does not depend on the others unless the
/// device is full. So the sum of the peaks suffices at any offset, and is needed when the peaks
/// meet.
Result<Together> together(const std::vector<const trace::Trace*>& traces,
                          const std::vector<TogetherManager>& managers,
                          const std::function<void(std::uint64_t done, std::uint64_t total)>& tell);

std::string to_text(const Together& together);
/// "emmctl.fit-together/1"
std::string to_json(const Together& together);

}  // namespace emm::trial
