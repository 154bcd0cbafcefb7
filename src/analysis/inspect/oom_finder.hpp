#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "inspect/fit_check.hpp"
#include "inspect/oom.hpp"
#include "inspect/walk.hpp"

namespace emm::inspect {

/// Tracks what each device holds as a walk goes, and collects the failures. `capacity`, if given,
/// replaces what the trace says.
class OomFinder final : public Visitor {
 public:
  static constexpr std::size_t kSpacesMax = 16;  // each looks at all that is live

  explicit OomFinder(std::optional<std::uint64_t> capacity) : capacity_(capacity) {}

  void recording_begins(const Walk& walk, std::uint32_t first_moment) override;
  void began(const Walk& walk, std::uint32_t, const LiveMemory& memory) override {
    change(walk, memory, true);
  }
  void ended(const Walk& walk, std::uint32_t, const LiveMemory& memory) override {
    change(walk, memory, false);
  }
  void passed(const Walk& walk, std::uint32_t event) override;

  const std::vector<Oom>& found() const noexcept { return report_.all; }
  OomReport report() { return std::move(report_); }

 private:
  /// What one device holds as the walk goes.
  struct Account {
    std::uint64_t live = 0, live_count = 0, reserved = 0, reserved_most = 0, segments = 0;
    std::uint64_t told_total = 0;  ///< From get_memory_info; 0: not yet.
    bool any_backing = false;
  };
  void change(const Walk& walk, const LiveMemory& memory, bool begins);
  void add(const Walk& walk, std::uint32_t event, std::uint32_t device);

  std::optional<std::uint64_t> capacity_;
  OomReport report_;
  std::map<std::uint32_t, Account> accounts_;
};

/// Tracks what each device holds as a walk goes, and finds where it exceeds a capacity.
class FitFinder final : public Visitor {
 public:
  explicit FitFinder(std::optional<std::uint64_t> capacity) : capacity_(capacity) {}

  /// Until then nothing is a peak.
  void recording_begins(const Walk& walk, std::uint32_t first_moment) override;
  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override {
    change(walk, event, memory, true);
  }
  void ended(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override {
    change(walk, event, memory, false);
  }
  /// Called after the walk. Returns the checks by device. `no_wait_need` says what a device's
  /// streams need; it is asked if there is a capacity.
  std::vector<FitCheck> fit_checks(
      const Walk& walk, const std::function<std::uint64_t(std::uint32_t device)>& no_wait_need);
  std::vector<FitCheck> fit_checks(const Walk& walk, const trace::Lifetimes& lifetimes);
  const FitCheck& of(std::uint32_t device) { return devices_[device].first; }

 private:
  struct Totals {
    std::uint64_t live = 0, live_count = 0, reserved = 0, segments = 0, requests = 0;
    bool any_before = false, any_within = false;
  };
  using Device = std::pair<FitCheck, Totals>;
  void change(const Walk& walk, std::uint32_t event, const LiveMemory& memory, bool begins);
  void look(std::uint32_t event, Device& device, bool backing, std::uint64_t request);

  std::optional<std::uint64_t> capacity_;
  std::map<std::uint32_t, Device> devices_;
};

}  // namespace emm::inspect
