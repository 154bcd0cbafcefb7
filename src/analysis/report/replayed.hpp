#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "log/record.hpp"
#include "trace/trace.hpp"

namespace emm::report {

/// What the page shows of a manager that the trace was replayed on: the bytes that it held of each
/// device after each event, the addresses that it handed out, and the requests that it failed.
/// Takes the records of one pass.
class Replayed final : public log::RecordSink {
 public:
  /// A value that holds from an event on.
  struct Step {
    std::uint32_t event = 0;
    std::uint64_t bytes = 0;
  };

  static constexpr std::uint32_t kNever = 0xffffffff;  // held to the end
  /// A segment that the manager took from the driver at event `birth` and released at event
  /// `death`.
  struct Held {
    std::uint32_t birth = 0, death = kNever;
    std::uint64_t address = 0, size = 0;
    std::uint32_t device = 0;
    /// Names the physical memory of a mapping, from 1. 0 if the segment is no mapping.
    std::uint64_t handle = 0;
  };

  Replayed(const trace::Trace& trace, std::string manager)
      : manager_(std::move(manager)), events_(trace.size()), addresses_(trace.alloc_count()) {}

  void on_record(const log::Record& record, const log::Gauges& gauges) override;

  const std::string& manager() const noexcept { return manager_; }
  const std::map<std::uint32_t, std::vector<Step>>& reserved() const noexcept { return reserved_; }
  const std::vector<std::uint32_t>& failed() const noexcept { return failed_; }
  std::uint64_t address(AllocId id) const noexcept { return addresses_[index(id)]; }

  /// The segments, sorted by birth.
  const std::vector<Held>& held() const noexcept { return held_; }
  void set_held(std::vector<Held> held) { held_ = std::move(held); }

  std::string summary;  ///< The JSON of the replay, in the schema of its report.

 private:
  std::string manager_;
  std::uint64_t events_;
  std::map<std::uint32_t, std::vector<Step>> reserved_;  // by device
  std::vector<std::uint32_t> failed_;
  std::vector<Held> held_;
  std::vector<std::uint64_t> addresses_;  // by AllocId; 0: none
};

}  // namespace emm::report
