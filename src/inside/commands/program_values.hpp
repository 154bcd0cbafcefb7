#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.hpp"

namespace emm::cli {

/// A line of a program that got what is not known without a GPU.
struct AskedPlace {
  std::string kind;   ///< "size", "value", "float" or "copy".
  std::string level;  ///< "drawn", "assumed" or "unknown".
  std::uint64_t times = 0;
  std::string where;  ///< file:line.
  std::string what;   ///< The operation.
  std::string taken;  ///< What it got last.
  std::string least, most;
};

/// What emmctl's Python package noted in the processes of a program.
struct ProgramValues {
  std::vector<AskedPlace> places;
  std::string endless;              ///< The line of a loop that was ended.
  std::string stopped;              ///< Why an operation could not be followed.
  std::vector<std::string> native;  ///< Functions that ran in the place of cuDNN's.
  bool times_plans = false;         ///< cuDNN's benchmark mode was on.
  bool without_cudnn = false, compiles = false, compiles_as_written = false;
  struct Peak {
    std::uint64_t process = 0, device = 0, reserved = 0, allocated = 0;
  };
  std::vector<Peak> peaks;  ///< PyTorch's own.
};
ProgramValues values_in(const std::string& folder);

/// Says what was assumed, and where; not PyTorch's peaks. True if a loop was ended.
bool say_values(Console& console, const ProgramValues& values, std::string_view assumed);
void say_peaks(Console& console, const ProgramValues& values);

/// The names in the folder, sorted.
std::vector<std::string> files_in(const std::string& folder);

}  // namespace emm::cli
