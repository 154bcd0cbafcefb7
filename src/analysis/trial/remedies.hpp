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
  std::uint64_t peak_reserved = 0;
  Reserved reserved{};                       ///< Whenever late frees complete.
  std::optional<std::uint64_t> fit_bytes{};  ///< The smallest capacity that serves the program.
};

struct Advice {
  std::uint64_t event = 0;       ///< The request's index in the trace.
  std::uint64_t capacity = 0;    ///< What the allocator had, as far as the recording tells.
  std::uint64_t need = 0;        ///< Live bytes at the peak, with every request served.
  std::vector<Remedy> remedies;  ///< Those that serve it first, the thriftiest of them first.
  std::optional<pytorch::Gap> gap{};
  /// Bytes that the device held for others when the request failed: the context, other libraries,
  /// other processes. Empty unless the recording has both the device's total and its free bytes.
  std::optional<std::uint64_t> outside{};
  Lateness lateness{};
  std::string_view pool_untried{};  ///< From why_no_pool().
  bool interrupted = false;
  std::optional<pytorch::InferredLimit> inferred_limit{};  ///< A limit that the recording lacks.
};

/// Returns what the allocator could hold when the request failed, as far as the recording tells:
/// what it held, and what the device had left. If a limit refused the request, the most that the
/// allocator ever held, because the limit is no lower.
std::uint64_t capacity_at(const inspect::Oom& oom, const pytorch::Recording& recording);

/// Tries every remedy by a replay of the recording at `capacity`: settings of the allocator, the
/// pool, empty_cache() before the request, smaller requests, more memory. Errors are those of
/// tune().
Result<Advice> advise(const pytorch::Recording& recording, const trace::Trace& trace,
                      std::uint64_t event, std::uint64_t capacity, const TuneOptions& options);

/// Says for a person what to do, and where the memory was. Ends with a line feed.
std::string to_text(const Advice& advice, const trace::Trace& trace, std::size_t top, int width);
/// Writes members of an object: `"remedies":[...],"gap":[...]`.
std::string to_json_members(const Advice& advice, const trace::Trace& trace);

}  // namespace emm::trial
