#pragma once

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
/// Adds what the model of PyTorch's allocator knows of the state at the end: what of the inactive
/// memory would be given back before a request fails, and the largest request that is served.
/// `of_pytorch` may be of another allocator; nothing is added then.
void describe_states(std::vector<inspect::FitCheck>& fit_checks,
                     const allocators::pytorch::Recording& of_pytorch);

}  // namespace emm::cli
