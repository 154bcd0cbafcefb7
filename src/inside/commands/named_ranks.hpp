#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace emm::cli {

/// The ranks of a program that run: `--ranks '0,7 of 64'`.
struct NamedRanks {
  std::vector<int> run;  ///< In their order, each once.
  int all = 0;

  /// Reads '0,7 of 64' or '0..3,60 of 64'. Error: usage.
  static Result<NamedRanks> parse(const std::string& given);
  /// "0,7/64", as the stand-in for NCCL and start-ranks take it.
  std::string words() const;
};

/// A port of this machine on which nobody listens now. Error: io_error.
Result<int> free_port();

}  // namespace emm::cli
