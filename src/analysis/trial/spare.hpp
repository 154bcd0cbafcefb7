#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trial/tune.hpp"

namespace emm::trial {

/// The largest block that still fits beside a program under a setting.
struct Spare {
  std::string manager;  ///< As --manager takes it.
  std::string how;      ///< How to tell a program.
  bool is_today = false;
  /// Served in every order of addresses that was tried, and whenever late frees complete. Empty if
  /// not even 2 MiB is.
  std::optional<std::uint64_t> bytes{};
  /// Served in one of these cases. Empty if not even 2 MiB is.
  std::optional<std::uint64_t> most_bytes{};
  /// The event that fails with 2 MiB more, in the likeliest case: its index in the trace.
  std::optional<std::uint64_t> limited_at{};
  std::uint64_t limited_size = 0;
};

/// A block is requested and freed before these events. `to` may be the trace's size.
struct Lifespan {
  std::uint64_t from = 0, to = 0;
};

/// Finds the largest block, such as a cache of keys and values, that fits from one event to another
/// beside all that the program asks for. Tries the model with every setting of PyTorch's allocator
/// that tune() tries; the largest block comes first. `options.capacity` is what the allocator has.
/// Blocks are multiples of 2 MiB.
std::vector<Spare> spare(const pytorch::Program& program, const Lifespan& lifespan,
                         const TuneOptions& options);

/// Does the same, and adds our pool by replays of `trace`, which `program` is of. Skips the pool if
/// the recording has private pools or several devices. Errors are those of a replay that leaves
/// nothing to report.
Result<std::vector<Spare>> spare(const pytorch::Program& program, const trace::Trace& trace,
                                 const Lifespan& lifespan, const TuneOptions& options);

/// Writes at most `width` columns and `top` rows for a person.
std::string to_text(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const Lateness& lateness, const trace::Trace& trace,
                    std::size_t top, int width);
/// "emmctl.spare/1"
std::string to_json(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const Lateness& lateness, const trace::Trace& trace);

}  // namespace emm::trial
