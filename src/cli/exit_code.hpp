#pragma once

#include "base/error.hpp"

namespace emm::cli {

/// The exit codes. A process that ends on a signal exits with 128 + the signal's number.
enum class ExitCode : int {
  /// It ran and found what it looks for: a failed operation, a difference, a leak.
  fine = 0,
  failure = 1,
  usage = 2,         ///< A wrong command line, or a file that cannot be opened.
  inconclusive = 3,  ///< No judgement, or not on everything: interrupted, or the disk is full.
  damaged = 4,       ///< The input is not what it claims to be.
  no_device = 5,
  bug = 70,
};

/// The exit code of an error that ends a command.
ExitCode exit_code_of(const Error& error) noexcept;

}  // namespace emm::cli
