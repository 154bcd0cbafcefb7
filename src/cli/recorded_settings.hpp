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
#include "trial/tune.hpp"

namespace emm::cli {

/// What a replay does with a limit that was inferred. `as_recorded`: it keeps the limit.
/// `is_the_capacity`: each capacity that a search tries takes the place of the limit.
enum class InferredLimitUse : std::uint8_t { as_recorded, is_the_capacity };

/// A trace as the model of the library that recorded it takes it: a sink beside the trace's own.
class ModelRecording final : public trace::OperationSink {
 public:
  /// `spec` is a manager, as --manager takes it.
  explicit ModelRecording(std::string_view spec);

  /// Is that the model of a library whose recordings are known?
  explicit operator bool() const noexcept { return library_ != Library::none; }

  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// The manager with the settings of the recording: `spec` with those that the recording has and
  /// `spec` does not give. Says on stderr what could not be read, and that a limit is not known
  /// where the recording has refusals. `spec` itself where the library did not record the trace.
  std::string with_settings(Console& console, const std::string& spec,
                            InferredLimitUse inferred = InferredLimitUse::as_recorded) const;
  /// What a replay is to tell the manager beside the operations: the pools of the requests, and
  /// what released memory that no row says.
  trace::PoolSteps pool_steps(const std::string& spec) const;
  /// Says what the manager does not do as the library does on this trace, a sentence each.
  std::vector<std::string> not_followed() const;
  /// How far the model, with the settings of `spec`, agrees with the recording, step by step.
  /// Nothing where the library did not record the trace, or its settings were others.
  std::optional<log::ModelAgreement> agreement(const std::string& spec) const;
  /// The smallest capacity of PyTorch's allocator with the settings of `spec`, over what the
  /// driver's addresses leave open. Nothing for other models and recordings.
  std::optional<trial::FitRange> fit_range(const std::string& spec,
                                           const std::atomic<bool>* interrupted) const;

 private:
  enum class Library : std::uint8_t { none, pytorch, cupy };

  trace::OperationSink* sink() noexcept;

  const allocators::pytorch::Program& program(const std::string& spec) const;

  Library library_ = Library::none;
  mutable std::optional<allocators::pytorch::Program> program_;  ///< Made at the first need.
  allocators::pytorch::Recording pytorch_;
  allocators::CupyRecording cupy_;
};

/// Says so where the limit is inferred.
void say_inferred_limit(Console& console, const allocators::pytorch::Recording& recording);
/// Says within which bounds an unknown limit was, where requests were refused, and `how` to give
/// it.
void say_limit_of_refusals(Console& console, const allocators::pytorch::Recording& recording,
                           std::string_view how);
/// Is `spec`, as --manager takes it, the model of PyTorch's allocator?
bool is_pytorch(std::string_view spec) noexcept;
/// The same for PyTorch's model and a recording that was read elsewhere.
std::string with_recorded_settings(Console& console, const std::string& spec,
                                   const allocators::pytorch::Recording& recording,
                                   InferredLimitUse inferred = InferredLimitUse::as_recorded);

}  // namespace emm::cli
