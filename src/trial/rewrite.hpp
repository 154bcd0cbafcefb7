#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trial/draft.hpp"

namespace emm::trial {

/// A draft to be written as a trace for people: those of the original operations that the draft
/// keeps, with all that they say.
struct Rewriting {
  const trace::Trace& trace;  ///< The original.
  const Draft& draft;         ///< What is left of it.
  /// Reads the original from its beginning; the same each time.
  std::function<Status(trace::OperationSink&)> read{};
  /// An event that is to fail here: where the recording refused it, that is left out, so that a
  /// replay finds the failure.
  std::optional<std::uint32_t> target{};
  std::string note{};  ///< JSON of the header's member "x-minimized"; one that is there becomes its
                       ///< member "before".
  /// Each device's in the header, so that a replay takes it over; 0: as it was.
  std::uint64_t capacity = 0;
};

/// Writes it to `to`, in the original's order. An operation that asks for less than it did, or
/// stands for several, says so in "x-recorded_size", the bytes that were asked for, and
/// "x-stands_for"; its own address and granted size are left out then. Definitions stay where they
/// are used. An `end` follows that counts what is there. Errors are those of the reading and of
/// `to`.
Status rewrite(const Rewriting& rewriting, trace::OperationSink& to);

}  // namespace emm::trial
