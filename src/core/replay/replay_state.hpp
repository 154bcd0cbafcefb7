#pragma once

#include <cstdint>
#include <optional>

#include "replay/engine.hpp"
#include "trace/trace.hpp"

namespace emm::replay {

/// When a call to a manager began and returned.
struct Times {
  std::uint64_t begin_ns = 0, end_ns = 0;
};

/// The trace, the options, and how far the replay has come. Every part of a replay reads it.
struct ReplayState {
  const trace::Trace& trace;
  const ReplayOptions& options;
  std::uint64_t at = 0;  ///< Index of the current event; trace.size() behind the last.
  unsigned pass = 0;
  bool stop = false;
  bool has_threads = false;  ///< Each thread of the trace is replayed by its own thread.
  bool threads_running =
      false;  ///< The threads are executing events, so entries may change at any time.
  std::optional<Error> fatal{};

  /// Ends the run with an error and no summary.
  void end_with(Error error) {
    fatal = std::move(error);
    stop = true;
  }
};

/// The outcome that a log shows for an error.
trace::Outcome outcome_of(const Error& error) noexcept;
template <class T>
trace::Outcome outcome_of(const Result<T>& result) noexcept {
  return result ? trace::Outcome::ok : outcome_of(result.error());
}
/// The error of a failed result, else null.
template <class T>
const Error* error_of(const Result<T>& result) noexcept {
  return result ? nullptr : &result.error();
}

/// Answers whether Event::id is the id of an allocation.
constexpr bool names_memory(trace::Op op) noexcept {
  return op >= trace::Op::memalloc && op <= trace::Op::close_ipc_handle;
}

}  // namespace emm::replay
