#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "log/record.hpp"
#include "trace/trace.hpp"

namespace emm::report {

/// What the page shows of a manager that the trace was replayed on: what it held of each device
/// after each event, where it put what it handed out, and which requests it failed. Takes the
/// records of one pass.
class Replayed final : public log::RecordSink {
 public:
  /// A value that holds from an event on.
  struct Step {
    std::uint32_t event = 0;
    std::uint64_t bytes = 0;
  };

  static constexpr std::uint32_t kNever = 0xffffffff;
  /// A segment that the manager took from the driver at an event and released at another.
  struct Held {
    std::uint32_t birth = 0, death = kNever;
    std::uint64_t address = 0, size = 0;
    std::uint32_t device = 0;
    /// Names the physical memory of what is mapped, from 1; 0 of what is not.
    std::uint64_t handle = 0;
  };

  Replayed(const trace::Trace& trace, std::string manager)
      : manager_(std::move(manager)), events_(trace.size()), addresses_(trace.alloc_count()) {}

  void on_record(const log::Record& record, const log::Gauges& gauges) override;

  const std::string& manager() const noexcept { return manager_; }
  const std::map<std::uint32_t, std::vector<Step>>& reserved() const noexcept { return reserved_; }
  const std::vector<std::uint32_t>& failed() const noexcept { return failed_; }
  std::uint64_t address(AllocId id) const noexcept { return addresses_[index(id)]; }

  /// By birth.
  const std::vector<Held>& held() const noexcept { return held_; }
  void set_held(std::vector<Held> held) { held_ = std::move(held); }

  std::string summary;  ///< The JSON of the replay; its report, in its schema.

 private:
  std::string manager_;
  std::uint64_t events_;
  std::map<std::uint32_t, std::vector<Step>> reserved_;  // by device
  std::vector<std::uint32_t> failed_;
  std::vector<Held> held_;
  std::vector<std::uint64_t> addresses_;  // by AllocId; 0: none
};

}  // namespace emm::report
