#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trial/draft.hpp"

namespace emm::trial {

/// A draft to be written as a trace for people: the operations of the original that it keeps, with
/// all their members.
struct Rewriting {
  const trace::Trace& trace;  ///< The original.
  const Draft& draft;         ///< What is left of it.
  /// Reads the original from its beginning. Every call gives the same.
  std::function<Status(trace::OperationSink&)> read{};
  /// The event that must fail here. If the recording refused it, that result is left out, so that a
  /// replay finds the failure.
  std::optional<std::uint32_t> target{};
  std::string note{};  ///< JSON of the header's "x-minimized". An earlier one becomes its "before".
  /// Written for each device in the header, so that a replay uses it; 0: the header stays as it
  /// was.
  std::uint64_t capacity = 0;
};

/// Writes the draft to `to`, in the original's order. An operation that asks for less than it did,
/// or that stands for several, has the bytes that were requested in "x-recorded_size" and the
/// number of requests in "x-stands_for"; it loses its address and granted size. Definitions stay if
/// they are used. An `end` with new counts follows. Errors are those of `read` and of `to`.
Status rewrite(const Rewriting& rewriting, trace::OperationSink& to);

}  // namespace emm::trial
