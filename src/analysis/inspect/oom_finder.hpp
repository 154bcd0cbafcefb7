#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "inspect/fit_check.hpp"
#include "inspect/oom.hpp"

namespace emm::inspect {

// The parts of find_ooms() and fit_checks(), for a trace in memory and for one that is read in
// passes.

/// Tracks what each device holds as a walk goes, and collects the failures.
class OomFinder {
 public:
  static constexpr std::size_t kSpacesMax = 16;  // each looks at all that is live

  OomFinder(const trace::Trace& trace, std::optional<std::uint64_t> capacity)
      : trace_(trace), capacity_(capacity) {}

  /// Called when memory of the program or of its manager begins or ends.
  void change(trace::Lifetime::What what, std::uint32_t device, std::uint64_t size, bool begins);
  /// Called as FitFinder::recording_begins().
  void recording_begins();
  /// Returns the failure at this event, without its space. Empty if the event is no failure.
  std::optional<Oom> look(std::uint32_t event, const trace::Event& each,
                          std::optional<std::uint64_t> device_free);
  /// Adds a failure that look() returned, with its space.
  void add(Oom oom);
  bool looks_at_space() const noexcept { return report_.all.size() < kSpacesMax; }
  OomReport report() { return std::move(report_); }

 private:
  /// What one device holds as the walk goes.
  struct Account {
    std::uint64_t live = 0, live_count = 0, reserved = 0, reserved_most = 0, segments = 0;
    std::uint64_t told_total = 0;  ///< From get_memory_info; 0: not yet.
    bool any_backing = false;
  };

  const trace::Trace& trace_;
  std::optional<std::uint64_t> capacity_;
  OomReport report_;
  std::map<std::uint32_t, Account> accounts_;
  bool has_begun_ = false;
};

/// Tracks what each device holds as a walk goes, and finds where it exceeds a capacity.
class FitFinder {
 public:
  explicit FitFinder(std::optional<std::uint64_t> capacity) : capacity_(capacity) {}

  struct Change {
    trace::Lifetime::What what{};
    std::uint64_t size = 0;
    bool begins = false;
    bool within = false;  ///< It begins, or ends for good, within the recording.
  };
  /// Called when memory of the program or of its manager begins or ends.
  void change(std::uint32_t event, std::uint32_t device, const Change& change);
  /// Called when all that existed before the recording has begun, the first event after which it is
  /// live. Until then nothing is a peak.
  void recording_begins(std::uint32_t first_moment);
  /// Returns the checks by device, without what is held at the end, the no-wait need and the
  /// verdict.
  std::vector<FitCheck> fit_checks() const;
  const FitCheck& of(std::uint32_t device) { return devices_[device].first; }

 private:
  struct Totals {
    std::uint64_t live = 0, live_count = 0, reserved = 0, segments = 0, requests = 0;
    bool any_before = false, any_within = false;
  };
  using Device = std::pair<FitCheck, Totals>;
  void look(std::uint32_t event, Device& device, bool backing, std::uint64_t request);

  std::optional<std::uint64_t> capacity_;
  bool has_begun_ = false;
  std::map<std::uint32_t, std::pair<FitCheck, Totals>> devices_;
};

/// Sets the verdict, once all else is known.
void judge(FitCheck& fit_check);

}  // namespace emm::inspect
