#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "inspect/categories.hpp"
#include "inspect/live_level.hpp"
#include "inspect/profile.hpp"
#include "inspect/walk.hpp"

namespace emm::inspect {

/// The first of two walks that make a Profile.
class ProfileWalk final : public Visitor {
 public:
  void recording_begins(const Walk& walk, std::uint32_t first_moment) override;
  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void completed(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const Walk& walk, std::uint32_t event) override;

  /// Called after the walk. Returns all but the curve, the percentiles and the categories. The
  /// walk's trace then knows the places of the peaks.
  Profile finish(Walk& walk);
  std::optional<std::uint32_t> first_refused() const noexcept { return first_refused_; }

 private:
  friend class ProfileDetails;
  struct PlacedLevel : LiveLevel {
    trace::Trace::Place place;
    bool update_peak(std::uint32_t event, const trace::Trace::Place& at) {
      if (!LiveLevel::update_peak(event)) return false;
      place = at;
      return true;
    }
  };
  struct Past {
    std::uint64_t size = 0;
    SiteId site{};
  };

  LiveLevel& thread(ThreadId id);
  LiveLevel& stream(StreamId id);
  void step(const Walk& walk, const LiveMemory& memory, bool begins);
  void begin_moment(std::uint32_t event, const trace::Trace::Place& at);
  void update_peaks(std::uint32_t event, const trace::Trace::Place& at);
  void count(const Walk& walk);
  void count_row(Action action) { ++out_.actions[static_cast<std::size_t>(action)]; }

  Profile out_;
  PlacedLevel live_, host_, reserved_;
  LiveLevel active_, pending_;  ///< Pending: freed, and not free yet. Active: live or pending.
  std::map<std::uint32_t, PlacedLevel> by_device_;
  std::vector<LiveLevel> by_thread_, by_stream_;
  std::vector<Past> over_since_peak_;  ///< Live at the peak, and ended since.
  std::map<std::uint64_t, SizeClass> classes_;
  Backing backing_;
  bool any_backing_ = false;
  bool grew_ = false;  ///< More is live, or pending, since the last event.
  PercentileFinder sizes_, lifetime_events_, lifetime_ns_;
  std::uint64_t last_time_ = 0;
  std::uint32_t first_moment_ = 0;
  trace::Trace::Place first_place_;
  std::optional<std::uint32_t> first_refused_;
};

/// The second walk, which adds the curve and the percentiles.
class ProfileDetails final : public Visitor {
 public:
  ProfileDetails(ProfileWalk& first_walk, Profile& profile);
  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override;
  void passed(const Walk& walk, std::uint32_t event) override;
  void finish();

 private:
  ProfileWalk& first_walk_;
  Profile& profile_;
  std::uint64_t live_ = 0, most_ = 0;
  std::uint64_t moments_ = 0;
  std::size_t part_ = 0;
  std::uint64_t part_end_ = 0;
};

/// Sums up the categories of a trace that is read, with the second walk.
class CategoryWalk final : public Visitor {
 public:
  CategoryWalk(const Walk& first_walk, const Profile& profile)
      : sums_(static_cast<std::uint32_t>(first_walk.trace().first_moment()), profile.live.event,
              profile.events) {}
  bool listens() const override { return true; }
  void told(const Walk& walk, std::uint32_t event, const trace::Operation& operation) override;
  std::vector<CategoryUse> finish() { return sums_.finish(reader_.names()); }

 private:
  CategoryReader reader_;
  CategorySums sums_;
};

}  // namespace emm::inspect
