#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocators/pytorch/recording.hpp"
#include "cli/console.hpp"
#include "inspect/fit_check.hpp"
#include "trace/trace.hpp"

namespace emm::cli {

/// Answers whether the trace is a state without history, of which nothing can be said that depends
/// on the program. If so, says what to record instead, as lines to paste.
bool is_state_alone(Console& console, const trace::Trace& trace);
/// Says which part of the peak existed before the recording, if any did.
void say_what_was_before(Console& console, const trace::Trace& trace);
/// Keeps a recording of PyTorch's allocator if it has no more than so many requests beside what
/// existed before: the memory that it takes is bounded.
class ShortRecording final : public trace::OperationSink {
 public:
  explicit ShortRecording(std::uint64_t requests_most) : left_(requests_most) {}
  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override { return recording_ ? recording_->finish() : Status(); }
  /// Null if it was too long.
  const allocators::pytorch::Recording* get() const noexcept {
    return recording_ ? &*recording_ : nullptr;
  }

 private:
  std::optional<allocators::pytorch::Recording> recording_{std::in_place};
  std::uint64_t left_;
};

/// Adds what the model of PyTorch's allocator knows of the state at the end: what of the inactive
/// memory would be given back before a request fails, and the largest request that is served.
/// `of_pytorch` may be of another allocator; nothing is added then.
void describe_states(std::vector<inspect::FitCheck>& fit_checks,
                     const allocators::pytorch::Recording& of_pytorch);

/// Returns, for each device of a state without history, which inactive memory is returnable and
/// which is stuck. Empty if the model does not tell.
std::vector<inspect::FitCheck> states_of(const trace::Trace& trace,
                                         const ShortRecording& of_pytorch);

}  // namespace emm::cli
