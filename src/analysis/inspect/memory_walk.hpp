#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "inspect/recording.hpp"
#include "inspect/walk.hpp"

namespace emm::inspect {

/// Goes over a trace in memory. The lifetimes and the recording must outlive it. It leaves out the
/// addresses of LiveMemory, which only space() looks at.
class MemoryWalk final : public Walk {
 public:
  /// Without a recording, every event has a row, and nothing has an address.
  explicit MemoryWalk(const trace::Lifetimes& lifetimes, const Recording* recording = nullptr)
      : Walk(lifetimes.trace()), lifetimes_(lifetimes), recording_(recording) {}

  void pass(const std::vector<Visitor*>& visitors);

  bool has_row() const override { return recording_ == nullptr || recording_->has_row(events_); }
  std::optional<std::uint64_t> device_free() const override;
  void each_live(const std::function<void(const LiveMemory&)>& each) const override;
  std::optional<AddressSpace> space(std::uint32_t event,
                                    std::optional<std::uint32_t> device) const override;

 private:
  void look_up(AllocId id, LiveMemory& out) const;
  void begin_recording(const std::vector<Visitor*>& visitors);

  const trace::Lifetimes& lifetimes_;
  const Recording* recording_;
  LiveMemory of_event_;
};

}  // namespace emm::inspect
