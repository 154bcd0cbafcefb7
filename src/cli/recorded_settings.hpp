#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "allocators/pytorch/recording.hpp"
#include "cli/console.hpp"
#include "log/summary.hpp"

namespace emm::cli {

/// Is `spec`, as --manager takes it, the model of PyTorch's allocator?
bool is_pytorch(std::string_view spec) noexcept;

/// The manager with the settings of the recording: `spec` with those that the recording has and
/// `spec` does not give. Says on stderr what could not be read, and that a limit is not known where
/// the recording has refusals. `spec` itself where the trace is no recording of PyTorch's.
std::string with_recorded_settings(Console& console, const std::string& spec,
                                   const allocators::pytorch::Recording& recording);

/// How far the model, with the settings of `spec`, agrees with the recording, step by step. Nothing
/// where the trace is no recording of PyTorch's, or the settings are other than the recording's.
std::optional<log::ModelAgreement> agreement(const std::string& spec,
                                             const allocators::pytorch::Recording& recording);

}  // namespace emm::cli
