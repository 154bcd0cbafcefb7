#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/profile.hpp"

namespace emm::inspect {

/// One iteration of a program: its events from `first` to `last`, and its device memory.
struct Iteration {
  std::string name;  ///< The text of the mark; empty if there are no marks.
  std::uint32_t first = 0, last = 0;
  std::uint64_t peak_bytes = 0;  ///< The most that is live at an event of this iteration.
  std::uint64_t live_at_end_bytes = 0;
  std::uint64_t live_at_end = 0;
  bool operator==(const Iteration&) const = default;
};

/// Compares live memory at the ends of iterations.
///
/// Iterations are the ranges of `mark` operations whose texts differ by no more than digits at the
/// end: from each `begin` to its `end`, or from each instant mark to the next of its kind. Where
/// there are no such marks, an iteration is the shortest series of request sizes that the trace
/// ends with at least three times. The repeats must be half of all requests; fewer may be the
/// layers of a model. If there are three or more instant marks, the iteration of the last is left
/// out, as the end of the program may be in it. If no series repeats either, each tenth of the
/// trace counts as an iteration that ends where the least is live. The first of three or more
/// iterations is warm-up, and nothing is compared with it. No iteration begins before the trace's
/// first_moment(), and a state without history has none.
struct Growth {
  enum class Source : std::uint8_t { none, marks, steps, floors };
  Source source = Source::none;
  std::string name;  ///< What the marks have in common.
  std::vector<Iteration> iterations;
  std::size_t base = 0;    ///< The iteration that the last one is compared with.
  std::int64_t bytes = 0;  ///< Live bytes at the end of the last, less those of the base.
  bool steady = false;  ///< It grew, and no iteration ended with less live than the one before it.
  BySite by_site;       ///< Allocated after the base, and live at the end of the last.
  BySize by_size;       ///< The same allocations by size.

  /// Answers whether it looks like a leak: more is live after each of several iterations.
  bool grows() const noexcept { return steady && iterations.size() > 3; }
};
/// Looks at the memory of all devices, or of `device` alone.
Growth growth(const trace::Lifetimes& lifetimes,
              std::optional<std::uint32_t> device = std::nullopt);

}  // namespace emm::inspect
