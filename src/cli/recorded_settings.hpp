#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/cupy_recording.hpp"
#include "allocators/pytorch/program.hpp"
#include "allocators/pytorch/recording.hpp"
#include "cli/console.hpp"
#include "log/summary.hpp"

namespace emm::cli {

/// What a replay does with an inferred limit. `as_recorded` keeps it. `is_the_capacity` replaces it
/// by each capacity that a search tries.
enum class InferredLimitUse : std::uint8_t { as_recorded, is_the_capacity };

/// Reads a trace for the model of the library that recorded it, as a second sink.
class ModelRecording final : public trace::OperationSink {
 public:
  /// `spec` is a value of --manager.
  explicit ModelRecording(std::string_view spec);

  /// Is `spec` the model of a library whose recordings are known?
  explicit operator bool() const noexcept { return library_ != Library::none; }

  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// Returns `spec` with the recording's settings added that it does not give; one of
  /// PYTORCH_ALLOC_CONF stands for all of them, as in the variable. Reports on stderr
  /// what could not be read, and if the limit is unknown although the recording has refusals.
  /// Returns `spec` unchanged if the library did not record the trace.
  std::string with_settings(Console& console, const std::string& spec,
                            InferredLimitUse inferred = InferredLimitUse::as_recorded) const;
  /// What a replay tells the manager beyond the operations: the pools of the requests, and the
  /// releases of memory that no row reports.
  trace::PoolSteps pool_steps(const std::string& spec) const;
  /// Names where the manager does not follow the library on this trace, one sentence each.
  std::vector<std::string> not_followed() const;
  /// How well the model with the settings of `spec` agrees with the recording, step by step.
  /// Nothing if the library did not record the trace or its settings differ.
  std::optional<log::ModelAgreement> agreement(const std::string& spec) const;
  /// What PyTorch recorded. Null for other models and recordings.
  const allocators::pytorch::Recording* pytorch() const noexcept;

 private:
  enum class Library : std::uint8_t { none, pytorch, cupy };

  trace::OperationSink* sink() noexcept;

  const allocators::pytorch::Program& program(const std::string& spec) const;

  Library library_ = Library::none;
  mutable std::optional<allocators::pytorch::Program> program_;  ///< Made at the first use.
  allocators::pytorch::Recording pytorch_;
  allocators::CupyRecording cupy_;
};

/// Reports an inferred limit.
void say_inferred_limit(Console& console, const allocators::pytorch::Recording& recording);
/// Reports the bounds of an unknown limit if requests were refused. `how` says how to give the
/// limit.
void say_limit_of_refusals(Console& console, const allocators::pytorch::Recording& recording,
                           std::string_view how);
/// The settings of the recording, overridden by those in `spec`: where that gives one of
/// PYTORCH_ALLOC_CONF, it gives them all.
allocators::pytorch::Settings settings_of(std::string_view spec,
                                          const allocators::pytorch::Recording& recording);
/// The recorded program, to be run under `given`. It is read under the limit that it was recorded
/// under, unless that of `given` may be it.
allocators::pytorch::Program program_under(const allocators::pytorch::Settings& given,
                                           const allocators::pytorch::Recording& recording);
/// Is `spec`, a value of --manager, the model of PyTorch's allocator?
bool is_pytorch(std::string_view spec) noexcept;
/// Like ModelRecording::with_settings(), for PyTorch's model and a recording that was read
/// elsewhere.
std::string with_recorded_settings(Console& console, const std::string& spec,
                                   const allocators::pytorch::Recording& recording,
                                   InferredLimitUse inferred = InferredLimitUse::as_recorded);

}  // namespace emm::cli
