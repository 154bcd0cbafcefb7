#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "inspect/gap.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// What one could do about a cause for which PyTorch's allocator held more than was live.
struct GapRemedy {
  inspect::Beyond cause{};
  std::uint32_t device = 0;
  std::string how;                 ///< The variable, line or habit.
  std::uint64_t reserved = 0;      ///< What all devices hold after the event with it, by a replay.
  std::uint64_t device_calls = 0;  ///< For memory, up to then.
};

struct GapRemedies {
  std::uint64_t event = 0;
  std::uint64_t reserved = 0;       ///< With today's settings, by the same replay.
  std::uint64_t device_calls = 0;   ///< With today's settings.
  std::vector<GapRemedy> remedies;  ///< The causes in the order of their bytes.
  bool interrupted = false;
};

/// A device of a recording, and what the program asked of it.
struct DeviceProgram {
  std::uint32_t device = 0;
  pytorch::Program program;
};

/// Tries by replays of the recording up to the event of `gap`, for each cause in it and each of the
/// devices, what may lower it: other settings, and programs that do without what makes it. Of the
/// settings for one cause the one that holds least is told; what holds no less than today's is not.
GapRemedies gap_remedies(const std::vector<DeviceProgram>& programs, const inspect::Gap& gap,
                         const std::atomic<bool>* interrupted);

/// For a person. Ends with a line feed.
std::string to_text(const GapRemedies& remedies, const inspect::Gap& gap);
/// A value: an object.
std::string to_json(const GapRemedies& remedies);

}  // namespace emm::trial
