#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/profile.hpp"

namespace emm::inspect {

/// One iteration of a program: its events [first, last], and its device memory.
struct Iteration {
  std::string name;  ///< The text of the mark; empty where steps were found.
  std::uint32_t first = 0, last = 0;
  std::uint64_t peak_bytes = 0;  ///< Live, at any event of it.
  std::uint64_t live_at_end_bytes = 0;
  std::uint64_t live_at_end = 0;
  bool operator==(const Iteration&) const = default;
};

/// Live memory at the ends of iterations, compared.
///
/// Iterations are the ranges of `mark` operations whose texts differ by no more than digits at the
/// end: from each `begin` to its `end`, or from each instant mark to the next of its kind. Where
/// there are no such marks, they are what repeats: the shortest series of request sizes that the
/// trace ends with at least three times over, so often that it is half of all requests; less may be
/// the layers of a model. Of three or more that nothing ends, the last is left out: the end of the
/// program may be in it. Where nothing repeats either, the least that is live in each tenth of the
/// trace is compared, as if an iteration ended there. The first iteration is warm-up, and compared
/// with nothing, where there are at least three.
struct Growth {
  enum class Source : std::uint8_t { none, marks, steps, floors };
  Source source = Source::none;
  std::string name;  ///< What the marks have in common.
  std::vector<Iteration> iterations;
  std::size_t base = 0;    ///< The iteration that the last one is compared with.
  std::int64_t bytes = 0;  ///< Live at the end of the last, less at the end of the base.
  bool steady = false;     ///< It never went down from one to the next.
  BySite by_site;  ///< Born after the base and live at the last's end: the growth's sites, and
  BySize by_size;  ///< its sizes.

  /// It looks like a leak: more each time, over several iterations.
  bool grows() const noexcept { return bytes > 0 && steady && iterations.size() > 3; }
};
/// Of all devices' memory, or that of one.
Growth growth(const Lifetimes& lifetimes, std::optional<std::uint32_t> device = std::nullopt);

}  // namespace emm::inspect
