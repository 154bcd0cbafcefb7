#pragma once

#include "base/error.hpp"

namespace emm::cli {

/// What a shell sees. A process that a signal ends gives 128 + the signal's number.
enum class ExitCode : int {
  fine = 0,
  failure = 1,  ///< It ran, and found what it looks for: a failing operation, a difference, a leak.
  usage = 2,    ///< The command line, or a file that it names and that cannot be opened.
  inconclusive =
      3,        ///< Nothing could be judged, or not to the end: an interrupted write, a full disk.
  damaged = 4,  ///< Input that is not what it claims to be.
  no_device = 5,
  bug = 70,
};

/// The exit code of an error that ends a command.
ExitCode exit_code_of(const Error& error) noexcept;

}  // namespace emm::cli
