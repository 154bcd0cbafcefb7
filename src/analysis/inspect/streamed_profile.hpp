#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inspect/categories.hpp"
#include "inspect/extension_members.hpp"
#include "inspect/level.hpp"
#include "inspect/live_walk.hpp"
#include "inspect/profile.hpp"
#include "inspect/space.hpp"
#include "inspect/streamed_percentiles.hpp"

namespace emm::inspect {

/// The first of two walks that make the Profile of a trace that is not in memory.
class ProfileWalk final : public LiveVisitor {
 public:
  void recording_begins(const LiveWalk& walk, std::uint32_t first_moment) override;
  void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const LiveWalk& walk, std::uint32_t event,
              const trace::Operation& operation) override;

  /// Called after the walk. Returns all but the curve and the percentiles. The walk's trace then
  /// knows the places of the peaks.
  Profile finish(LiveWalk& walk);
  std::optional<std::uint32_t> first_refused() const noexcept { return first_refused_; }

 private:
  friend class ProfileDetails;
  struct PlacedLevel : Level {
    trace::Trace::Place place;
    bool update_peak(std::uint32_t event, const trace::Trace::Place& at) {
      if (!Level::update_peak(event)) return false;
      place = at;
      return true;
    }
  };
  struct Past {
    std::uint64_t size = 0;
    SiteId site{};
  };

  Level& thread(ThreadId id);
  Level& stream(StreamId id);
  void step(const LiveWalk& walk, const LiveMemory& memory, bool begins);
  void update_peaks(std::uint32_t event, const trace::Trace::Place& at);
  void count(const LiveWalk& walk, const trace::Event& event);
  void count_row(const LiveWalk& walk, const trace::Event& each, const trace::Operation& operation);

  Profile out_;
  PlacedLevel live_, host_, reserved_;
  std::map<std::uint32_t, PlacedLevel> by_device_;
  std::vector<Level> by_thread_, by_stream_;
  std::vector<Past> over_since_peak_;  ///< Live at the peak, and ended since.
  std::map<std::uint64_t, SizeClass> classes_;
  Backing backing_;
  bool any_backing_ = false;
  StreamedPercentiles sizes_, lifetime_events_, lifetime_ns_;
  std::uint64_t last_time_ = 0;
  std::uint32_t first_moment_ = 0;
  trace::Trace::Place first_place_;
  std::optional<std::uint32_t> first_refused_;
};

/// The second walk, which adds the rest to the Profile.
class ProfileDetails final : public LiveVisitor {
 public:
  ProfileDetails(ProfileWalk& first_walk, Profile& profile);
  void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const LiveWalk& walk, std::uint32_t event,
              const trace::Operation& operation) override;
  void told(std::uint32_t event, const trace::Operation& operation) override;
  void finish();

 private:
  ProfileWalk& first_walk_;
  Profile& profile_;
  std::uint64_t live_ = 0, most_ = 0;
  std::uint64_t moments_ = 0;
  std::size_t part_ = 0;
  std::uint64_t part_end_ = 0;
  CategoryReader category_reader_;
  CategorySums category_sums_;
};

/// Returns where device memory lies after the last passed event, as space_after() does.
std::optional<Space> space_now(const LiveWalk& walk, std::uint32_t event,
                               std::optional<std::uint32_t> device = std::nullopt);
/// Adds up what is live now.
Holding held_now(const LiveWalk& walk, std::optional<std::uint32_t> device = std::nullopt);

/// Finds what is live after one event and where it lies, including what remains of a segment that
/// the event ends in part.
class MapVisitor final : public LiveVisitor {
 public:
  /// Finds nothing if `event` is empty. If `holds`, finds what is live in addition to the map.
  explicit MapVisitor(std::optional<std::uint32_t> event, bool holds = false)
      : event_(event), holds_(holds) {}
  void began(const LiveWalk&, std::uint32_t, const LiveMemory&) override {}
  void ended(const LiveWalk&, std::uint32_t, const LiveMemory&) override {}
  void passed(const LiveWalk& walk, std::uint32_t event,
              const trace::Operation& operation) override {
    if (event_ != event && !(goes_on_ && says_what_stays(operation))) {
      goes_on_ = false;
      return;
    }
    map = space_now(walk, *event_);
    if (holds_) held = held_now(walk);
    goes_on_ = true;
  }
  /// Answers whether the next event may say what remains of a segment.
  bool goes_on() const noexcept { return goes_on_; }
  std::optional<Space> map;
  Holding held;

 private:
  std::optional<std::uint32_t> event_;
  bool holds_, goes_on_ = false;
};

}  // namespace emm::inspect
