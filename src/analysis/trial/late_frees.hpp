#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocators/pytorch/program.hpp"
#include "format/json_writer.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;

/// What a program may reserve at its peak.
struct Reserved {
  std::uint64_t low = 0, high = 0;

  bool is_range() const noexcept { return low != high; }
  bool operator==(const Reserved&) const = default;
};

/// How late the frees of a recording completed: blocks that other streams used, too. When such a
/// free completes is the device's affair, and differs from run to run and from setting to setting.
struct Lateness {
  std::uint64_t frees = 0, late = 0;
  /// The longest that a free waited, in requests: PyTorch looks for completions at each request. A
  /// free that no row completes waited until the last one.
  std::uint64_t longest_requests = 0;
};
EMM_MEMBERS_OF(Lateness, frees, late, longest_requests)
Lateness lateness_of(const pytorch::Program& program);
/// Says why a figure is a range. Empty if no free was late.
std::string why_range(const Lateness& lateness);
/// The same in one short sentence.
std::string why_range_briefly(const Lateness& lateness, std::uint64_t caught);

/// Failures that the program caught: it asked for memory after them. Which requests fail depends on
/// the setting, and what the program does then on which fail.
std::uint64_t caught_failures(const pytorch::Program& program);

/// The program with each late free completed at the first request after it, which is the earliest
/// that PyTorch can notice, and after more and more requests, up to the longest that any waited.
/// Empty if no free is late.
std::vector<pytorch::Program> as_late(const pytorch::Program& program);

/// What a program reserves under one setting, whenever its late frees complete and whatever it does
/// once other requests fail than in the recording. `late` is as_late() of the program,
/// `as_recorded` its run with `options`; the limit is below `limit_below`, if that is not 0. A run
/// that reaches its limit reserves up to the limit, and at least the limit without its largest
/// segment. If the limit is unknown, it is at least what the recording reserved.
Reserved reserved_of(const std::vector<pytorch::Program>& late, const pytorch::RunOptions& options,
                     const pytorch::Program& program, const pytorch::Outcome& as_recorded,
                     std::uint64_t limit_below = 0);

/// Returns the least and the most that is reserved after the last call, whenever the late frees
/// complete. `late` is as_late() of the program, `as_recorded` its run with `options`.
Reserved reserved_after(const std::vector<pytorch::Program>& late,
                        const pytorch::RunOptions& options, const pytorch::Outcome& as_recorded);

/// Writes the members "peak_reserved_low_bytes" and "peak_reserved_high_bytes".
void write(format::JsonWriter& json, const Reserved& reserved);

}  // namespace emm::trial
