#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/statistics/smi_rows.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// What the driver counts for a program beside what its allocator holds: the context, and what
/// libraries and other allocators take. Of a whole device it is also what other processes hold.
struct Beside {
  /// Where the driver's count was read. It is of some moment from here to the next sample.
  struct Sample {
    std::uint64_t time_ns = 0;  ///< Since the recording's clock began.
    Stated used, held, outside;
  };
  /// A series of nvidia-smi beside one device of the recording.
  struct Pair {
    std::string series;
    std::uint32_t device = 0;
    bool is_possible = true;      ///< It never counts less than the allocator held.
    std::vector<Sample> samples;  ///< Those while it was recorded.
  };
  bool of_processes = false;
  bool of_reserved = false;  ///< `held` is what the manager reserved; else what was live.
  std::optional<std::int64_t> zone_seconds{};  ///< How far the file's clock is east of UTC.
  std::string unmatched{};                     ///< Why no times are matched; empty if they are.
  std::vector<Pair> pairs;                     ///< In the order of the file; only if matched.
  /// Where times are not matched: the least that lies outside when most is used, if there is one
  /// series and one device.
  std::optional<std::uint64_t> outside_least{};
};

/// `zone_seconds` is the zone of this machine. It is taken if the file's samples then meet the
/// recording and count no less than it held; else the only one of a quarter of an hour's steps for
/// which that is so.
Beside beside(const trace::Lifetimes& lifetimes, const std::vector<SmiRow>& rows,
              const SmiFile& file, std::int64_t zone_seconds);

std::string to_text(const Beside& beside, const std::string& file, std::size_t top);
/// Writes a JSON object.
std::string to_json(const Beside& beside, const std::string& file);

}  // namespace emm::inspect
