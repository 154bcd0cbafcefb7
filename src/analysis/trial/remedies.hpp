#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/gap.hpp"
#include "inspect/oom.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// A remedy for a request that failed, with the result of a replay.
struct Remedy {
  std::string what;     ///< "expandable_segments:True", "requests 1/8 smaller"
  std::string how;      ///< The command, line or variable.
  bool served = false;  ///< Whether the request and all before it are served.
  bool serves_program = false;
  std::uint64_t peak_reserved = 0;
  Reserved reserved{};                       ///< Whenever late frees complete.
  std::optional<std::uint64_t> fit_bytes{};  ///< The smallest capacity that serves the program.
};

struct Advice {
  /// The request's index in the trace. Empty if none failed: then only the program is asked about.
  std::optional<std::uint64_t> event{};
  /// What every setting does with the whole program, as `tune` has it.
  Tuning tuning;
  /// Those first that serve the whole program, as they rank; then those that serve the request.
  std::vector<Remedy> remedies;
  std::optional<pytorch::Gap> gap{};
  /// Bytes that the device held for others when the request failed: the context, other libraries,
  /// other processes. Empty unless the recording has both the device's total and its free bytes.
  std::optional<std::uint64_t> outside{};
};

/// Tries every remedy by a replay of the recording at the capacity of `question`: settings of the
/// allocator, the pool, empty_cache() before the request, smaller requests, more memory. Errors are
/// those of tune().
Result<Advice> advise(const pytorch::Recording& recording, const trace::Trace& trace,
                      std::optional<std::uint64_t> event, const Question& question,
                      const TuneOptions& options);

/// Puts in front what the whole run needs, and what to do about it.
void add_advice(format::Brief& brief, const Advice& advice);
/// Says for a person what to do, and where the memory was. Ends with a line feed.
std::string to_text(const Advice& advice, const trace::Trace& trace, std::size_t top, int width);
/// Writes members of an object: `"remedies":[...],"gap":[...]`.
std::string to_json_members(const Advice& advice, const trace::Trace& trace);

}  // namespace emm::trial
