#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/brief.hpp"
#include "inspect/fit_check.hpp"
#include "inspect/growth.hpp"
#include "inspect/oom.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {

/// What a description looks up at the events that its report names.
class Moments {
 public:
  virtual ~Moments() = default;
  virtual HeldMemory held_after(std::uint32_t event, std::uint32_t device) const = 0;
  virtual Growth growth(std::uint32_t device) const = 0;
};

/// Looks into a trace in memory. The lifetimes must outlive it.
class MomentsInMemory final : public Moments {
 public:
  explicit MomentsInMemory(const trace::Lifetimes& lifetimes) : lifetimes_(lifetimes) {}
  HeldMemory held_after(std::uint32_t event, std::uint32_t device) const override {
    return inspect::held_after(lifetimes_, event, device);
  }
  Growth growth(std::uint32_t device) const override { return inspect::growth(lifetimes_, device); }

 private:
  const trace::Lifetimes& lifetimes_;
};

/// The most failures that to_json() describes.
inline constexpr std::size_t kFailuresListed = 100;

/// Describes the failure at `which` for a person: a paragraph with the numbers, what was live then,
/// and what would have been enough.
std::string to_text(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const Shown& shown);
inline std::string to_text(const Recording& recording, const trace::Lifetimes& lifetimes,
                           const OomReport& report, std::size_t which, const Shown& shown) {
  return to_text(recording.trace(), MomentsInMemory(lifetimes), report, which, shown);
}
/// Describes each device of a trace in which no request failed: whether one would fail with
/// `capacity`, where and why; or what a state without history holds. `path` names the trace in the
/// commands that the text suggests.
std::string to_text(const trace::Trace& trace, const Moments& moments,
                    const std::vector<FitCheck>& fit_checks, std::string_view path,
                    const Shown& shown);
inline std::string to_text(const Recording& recording, const trace::Lifetimes& lifetimes,
                           const std::vector<FitCheck>& fit_checks, std::string_view path,
                           const Shown& shown) {
  return to_text(recording.trace(), MomentsInMemory(lifetimes), fit_checks, path, shown);
}
/// Lists what of the inactive memory is returnable, and what is stuck, by device, pool and stream.
/// Empty if there is none, or a model of the allocator has not told it.
std::string inactive_table(const std::vector<FitCheck>& fit_checks);
/// Writes a JSON array: the same by device.
std::string inactive_json(const std::vector<FitCheck>& fit_checks);
/// Did what stays live only ever grow until that failure, as it does with a leak?
bool grew_until(const Growth& growth, const Oom& oom);
/// The same in one breath. The command to paste is the caller's. `growth` is of the failure's
/// device if it grew until then, else null.
format::Brief brief(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const Growth* growth, const Shown& shown);
/// REQUIRES: there is a device.
format::Brief brief(const trace::Trace& trace, const Moments& moments,
                    const std::vector<FitCheck>& fit_checks, const Shown& shown);
/// Writes all of it as "emmctl.explain/2". The outer figures are those of the device of the failure
/// at `which`, or of the only device.
std::string to_json(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const std::vector<FitCheck>& fit_checks, std::size_t top);
inline std::string to_json(const Recording& recording, const trace::Lifetimes& lifetimes,
                           const OomReport& report, std::size_t which,
                           const std::vector<FitCheck>& fit_checks, std::size_t top) {
  return to_json(recording.trace(), MomentsInMemory(lifetimes), report, which, fit_checks, top);
}

}  // namespace emm::inspect
