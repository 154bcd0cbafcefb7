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
  std::string how;      ///< How a program is told.
  bool is_today = false;
  /// Served in every order of addresses that was tried; nothing where the program itself is not.
  std::optional<std::uint64_t> bytes{};
  /// What fails with 2 MiB more, in the likeliest order: the event's index in the trace.
  std::optional<std::uint64_t> limited_at{};
  std::uint64_t limited_size = 0;
};

/// When a block is asked for and freed: in front of these events. `to` may be the trace's size.
struct Lifespan {
  std::uint64_t from = 0, to = 0;
};

/// How large a block, as a cache of keys and values, may be that lives from one event to another,
/// beside all that the program asks for; for every setting of PyTorch's allocator that tune()
/// tries, by its model, the largest first. `options.capacity` is what the allocator has. To 2 MiB.
std::vector<Spare> spare(const pytorch::Program& program, const Lifespan& lifespan,
                         const TuneOptions& options);

/// The same with our pool, by replays of `trace`, which the program is of; but for a recording with
/// private pools. Errors are those of a replay that leaves nothing to report.
Result<std::vector<Spare>> spare(const pytorch::Program& program, const trace::Trace& trace,
                                 const Lifespan& lifespan, const TuneOptions& options);

/// For a person, at most `width` columns; `top` rows.
std::string to_text(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const trace::Trace& trace, std::size_t top, int width);
/// "emmctl.spare/1"
std::string to_json(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const trace::Trace& trace);

}  // namespace emm::trial
