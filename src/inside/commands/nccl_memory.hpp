#pragma once

#include <cstdint>
#include <string_view>

#include "standin/process_report.hpp"

namespace emm::cli {

/// What NCCL itself takes of a process's card, as far as it was measured.
struct NcclMemory {
  std::uint64_t bytes = 0;     ///< What the measured communicators take.
  std::uint64_t measured = 0;  ///< How many these are.
  std::uint64_t unknown = 0;   ///< Those of which no measurement is known.
  std::string_view source{};   ///< Where the last of them was measured.
};

/// `card`: what the device calls itself, as "NVIDIA H200".
NcclMemory nccl_memory(const standin::ProcessReport& report, std::string_view card);

}  // namespace emm::cli
