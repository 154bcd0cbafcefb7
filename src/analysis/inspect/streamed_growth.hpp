#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inspect/growth_parts.hpp"
#include "inspect/live_walk.hpp"

namespace emm::inspect {

/// The first of two or three walks that make the Growth of a trace that is not in memory. It looks
/// for marks, and for sizes that repeat among the last kLastSizes requests. It does not see periods
/// longer than a third of these. If there are more than kStepsMost repeats, several are one
/// iteration.
class GrowthWalk final : public LiveVisitor {
 public:
  static constexpr std::size_t kLastSizes = std::size_t{1} << 20;
  static constexpr std::size_t kStepsMost = std::size_t{1} << 20;

  /// Looks at the memory of all devices, or of `device` alone. `last_sizes` is for tests.
  explicit GrowthWalk(std::optional<std::uint32_t> device = std::nullopt,
                      std::size_t last_sizes = kLastSizes)
      : only_(device), last_sizes_(last_sizes) {}
  void recording_begins(const LiveWalk&, std::uint32_t first_moment) override {
    first_moment_ = first_moment;
  }
  void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const LiveWalk&, std::uint32_t, const LiveMemory&) override {}
  void passed(const LiveWalk& walk, std::uint32_t event, const trace::Operation&) override;

 private:
  friend class GrowthDetails;
  std::optional<std::uint32_t> only_;
  std::size_t last_sizes_;
  MarkRanges marks_;
  std::vector<std::uint64_t> sizes_;   // a ring
  std::vector<std::uint32_t> births_;  // likewise
  std::uint64_t requests_ = 0;
  bool any_ = false, is_state_ = false;
  std::uint32_t first_moment_ = 0;
};

/// The second walk and, if prepare_next_walk(), the third.
class GrowthDetails final : public LiveVisitor {
 public:
  /// `events` is the number of events of the first walk.
  GrowthDetails(GrowthWalk& first_walk, std::uint32_t events);
  void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const LiveWalk& walk, std::uint32_t event, const trace::Operation&) override;

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
  bool counts(const LiveWalk& walk, const LiveMemory& memory) const;
  void note_size(std::uint32_t event, std::uint64_t size);
  void pass_floor(std::uint32_t event);
  void begin_measure();
  void add_grown(const LiveWalk& walk);

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
  std::uint32_t part_ = kFloors;
  std::uint64_t part_end_ = 0, least_ = 0, most_since_ = 0;
  std::vector<Past> over_since_floor_;  ///< Live at the last floor, and ended since.
  HoldingSum grown_;
};

}  // namespace emm::inspect
