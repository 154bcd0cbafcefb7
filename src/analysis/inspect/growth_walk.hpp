#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspect/growth.hpp"
#include "inspect/walk.hpp"

namespace emm::inspect {

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

/// The first of two or three walks that make a Growth. It looks for marks, and for sizes that
/// repeat among the last `last_sizes` requests, of which it does not see periods longer than a
/// third. If there are more requests, and more than kStepsMost repeats, several are one iteration.
class GrowthWalk final : public Visitor {
 public:
  // Requests in which a repeat is looked for, 8 MiB.
  static constexpr std::size_t kLastSizes = std::size_t{1} << 20;
  static constexpr std::size_t kStepsMost = std::size_t{1} << 20;  // iterations that are kept

  /// Looks at the memory of all devices, or of `device` alone.
  explicit GrowthWalk(std::optional<std::uint32_t> device = std::nullopt,
                      std::size_t last_sizes = kLastSizes)
      : only_(device), last_sizes_(last_sizes) {}
  /// Keeps the sizes of all requests.
  static GrowthWalk of_all_sizes(std::optional<std::uint32_t> device = std::nullopt) {
    return GrowthWalk(device, std::numeric_limits<std::size_t>::max());
  }
  void recording_begins(const Walk&, std::uint32_t first_moment) override {
    first_moment_ = first_moment;
  }
  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const Walk& walk, std::uint32_t event) override;

 private:
  friend class GrowthDetails;
  std::optional<std::uint32_t> only_;
  std::size_t last_sizes_;
  MarkRanges marks_;
  std::vector<std::uint64_t> sizes_;   // a ring
  std::vector<std::uint32_t> births_;  // likewise
  std::uint64_t requests_ = 0;
  bool any_ = false;
  std::uint32_t first_moment_ = 0;
};

/// The second walk and, if prepare_next_walk(), the third.
class GrowthDetails final : public Visitor {
 public:
  /// To be made after `walk`, which the first one was.
  GrowthDetails(GrowthWalk& visitor, const Walk& walk);
  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const Walk& walk, std::uint32_t event) override;

  /// Called after a walk. Returns true if sizes repeat; another walk then measures the steps.
  bool prepare_next_walk();
  /// Called after the last walk.
  Growth finish();

 private:
  struct Past {
    std::uint64_t size = 0;
    SiteId site{};
    std::uint32_t birth = 0;
    bool preexisting = false;
  };
  bool counts(const Walk& walk, const LiveMemory& memory) const;
  void note_size(std::uint32_t event, std::uint64_t size);
  void pass_floor(std::uint32_t event);
  void begin_measure();
  void add_grown(const Walk& walk);

  std::optional<std::uint32_t> only_;
  std::uint32_t events_, first_moment_;
  Growth out_;
  std::optional<IterationMeasure> measure_;
  std::uint64_t bytes_ = 0, count_ = 0;
  // For steps that may repeat:
  std::uint64_t requests_ = 0, request_ = 0;
  std::vector<std::uint64_t> last_period_;
  std::uint64_t alike_ = 0;  ///< How many sizes in a row equal those of one period before.
  std::size_t at_once_ = 1;  ///< Periods in one iteration.
  std::vector<std::uint32_t> firsts_;
  // For floors:
  bool floors_ = false, any_;
  std::uint32_t part_ = 0;
  std::uint64_t part_end_ = 0, least_ = 0, most_since_ = 0;
  std::vector<Past> over_since_floor_;  ///< Live at the last floor, and ended since.
  HeldMemorySum grown_;
};

}  // namespace emm::inspect
