#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/gap.hpp"
#include "inspect/oom.hpp"
#include "trial/tune.hpp"

namespace emm::trial {

/// Something that one could do about a request that failed, and what a replay says of it.
struct Remedy {
  std::string what;     ///< "expandable_segments:True", "requests 1/8 smaller"
  std::string how;      ///< The command, line or variable.
  bool served = false;  ///< The request, and all before it.
  std::uint64_t peak_reserved = 0;
  std::optional<std::uint64_t> fit_bytes{};  ///< The smallest capacity that serves the program.
};

struct Advice {
  std::uint64_t event = 0;       ///< Of the request, as its index in the trace.
  std::uint64_t capacity = 0;    ///< What the allocator had, as far as the recording tells.
  std::uint64_t need = 0;        ///< Live bytes at the peak, with every request served.
  std::vector<Remedy> remedies;  ///< Those that serve it first, the thriftiest of them first.
  std::optional<pytorch::Gap> gap{};
  /// What the device held for others when the request failed: the context, other libraries, other
  /// processes. Nothing where the recording has not both the device's total and what it had free.
  std::optional<std::uint64_t> outside{};
  std::string_view pool_untried{};  ///< As why_no_pool() says.
  bool interrupted = false;
  std::optional<pytorch::InferredLimit> inferred_limit{};  ///< Which the recording does not have.
};

/// What the allocator could hold when the request failed, as far as the recording tells: what it
/// held, and what the device had left. Where a limit was set elsewhere, the most that it ever held:
/// the limit is no lower.
std::uint64_t capacity_at(const inspect::Oom& oom, const pytorch::Recording& recording);

/// Tries every remedy by a replay of the recording at `capacity`: settings of the allocator, the
/// pool, empty_cache() in front of the request, smaller requests, more memory. Errors are tune()'s.
Result<Advice> advise(const pytorch::Recording& recording, const trace::Trace& trace,
                      std::uint64_t event, std::uint64_t capacity, const TuneOptions& options);

/// For a person: what to do, and where the memory was. Ends with a line feed.
std::string to_text(const Advice& advice, const trace::Trace& trace, std::size_t top, int width);
/// `"remedies":[...],"gap":[...]`: members of an object.
std::string to_json_members(const Advice& advice, const trace::Trace& trace);

}  // namespace emm::trial
