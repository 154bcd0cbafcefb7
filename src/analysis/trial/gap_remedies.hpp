#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "inspect/gap.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// A remedy for one cause why PyTorch's allocator held more than was live.
struct GapRemedy {
  inspect::Beyond cause{};
  std::uint32_t device = 0;
  std::string how;                 ///< The variable, line of code or habit.
  std::uint64_t reserved = 0;      ///< Bytes of all devices after the event, replayed with it.
  Reserved range{};                ///< The same, whenever late frees complete.
  std::uint64_t device_calls = 0;  ///< Calls for memory until then.
};

struct GapRemedies {
  std::uint64_t event = 0;
  std::uint64_t reserved = 0;       ///< With today's settings, by the same replay.
  std::uint64_t device_calls = 0;   ///< With today's settings.
  std::vector<GapRemedy> remedies;  ///< In the order of the causes' bytes.
  Lateness lateness{};              ///< That of the device whose frees waited longest.
  bool interrupted = false;
};

/// A device of a recording, and the program's calls on it.
struct DeviceProgram {
  std::uint32_t device = 0;
  pytorch::Program program;
};

/// For each cause in `gap` and each device, replays the recording up to the event with changes that
/// may lower it: other settings, and programs that avoid the cause. Of the settings for one cause,
/// only the one that holds least is returned. What holds no less than today's, whenever late frees
/// complete, is left out.
GapRemedies gap_remedies(const std::vector<DeviceProgram>& programs, const inspect::Gap& gap,
                         const std::atomic<bool>* interrupted);

/// Writes them for a person, at most `width` columns wide but for names. Ends with a line feed.
std::string to_text(const GapRemedies& remedies, const inspect::Gap& gap, std::size_t width);
/// Writes a JSON object.
std::string to_json(const GapRemedies& remedies);

}  // namespace emm::trial
