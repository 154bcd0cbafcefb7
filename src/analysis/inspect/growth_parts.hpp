#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inspect/growth.hpp"
#include "trace/event.hpp"

namespace emm::inspect {

// The parts of growth(), for a trace in memory and for one that is read in passes.

/// Gathers the ranges of marks.
class MarkRanges {
 public:
  void mark(std::uint32_t at, const std::string& text, const trace::Event& event);
  /// Returns the iterations of the kind of marks that has most of them, and in `name` what their
  /// texts have in common. To be called once.
  std::vector<Iteration> best(std::size_t events, std::string& name);

 private:
  struct Ranges {
    std::vector<Iteration> closed;  // by begin and end
    std::map<std::string, std::uint32_t> open;
    std::vector<Iteration> instants;  // each lasts to the next
    std::size_t order = 0;
  };
  std::map<std::string, Ranges, std::less<>> kinds_;
};

/// Leaves out the iterations that end before the first moment of a trace. One that begins before it
/// begins with it. Fewer than two iterations are none.
void begin_at(std::size_t first_moment, std::vector<Iteration>& iterations);

inline constexpr std::size_t kPeriodsMin = 3;
inline constexpr std::size_t kStepAllocsMin = 4;  // fewer that repeat are a loop, not a step
inline constexpr std::uint32_t kFloors = 10;
inline constexpr std::uint32_t kFloorEventsMin = 200;  // fewer events than this show no trend

/// How the sizes at the end of a trace repeat. They are read from the end.
struct Repeats {
  std::size_t period = 0;  ///< In requests; 0 if the sizes do not repeat.
  std::size_t length = 0;  ///< How many sizes equal the one a period away.
  std::size_t count() const noexcept { return (length + period) / period; }
};
/// Finds the least period that covers at least half of all sizes (with `all`, every size) and that
/// occurs at least three times.
Repeats repeats_of(const std::vector<std::uint64_t>& sizes, bool all = false);
/// Makes iterations from the steps of a trace with `events` events. births[k] is the first event of
/// the step that is k before the last.
std::vector<Iteration> steps_of(const std::vector<std::uint32_t>& births, std::size_t events);

/// Measures iterations as a walk passes their events. Iterations may overlap.
class IterationMeasure {
 public:
  explicit IterationMeasure(std::vector<Iteration>& iterations);
  void passed(std::uint32_t event, std::uint64_t bytes, std::uint64_t count);

 private:
  std::vector<Iteration>& iterations_;
  std::vector<std::pair<std::uint32_t, std::size_t>> starts_;
  std::vector<std::size_t> current_;
  std::size_t next_ = 0;
};

/// Compares the measured iterations. REQUIRES: there are some.
void compare(Growth& growth);
/// Returns the index of the iteration with which the last one is compared.
constexpr std::size_t base_of(std::size_t iterations) noexcept { return iterations >= 3 ? 1 : 0; }

}  // namespace emm::inspect
