#pragma once

#include <string>

#include "base/result.hpp"
#include "driver/gpu_profile.hpp"

namespace emm {

/// A real card as a file of `emmctl doctor --profile`: what its driver answers, a line each.
///
///   device NVIDIA L4
///   total 23034068992
///   context 310378496
///   attribute 16 58

/// The profile of the file, which lives as long as the process. Errors: usage, parse_error with
/// the line.
Result<const GpuProfile*> read_gpu_profile(const std::string& path);

/// The text of a profile of the first device that libcuda.so.1 shows to this process. What the
/// context takes includes what other processes hold of it. Error: no_device.
Result<std::string> profile_of_this_gpu();

}  // namespace emm
