#pragma once

#include <optional>

#include "driver/decorate/forwarding_driver.hpp"
#include "stream_order/checker.hpp"

namespace emm::stream_order {

/// Observes the driver calls of one device and tells the checker what they order.
class Watch final : public CallHook {
 public:
  Watch(Checker& checker, std::uint32_t device) noexcept : checker_(checker), device_(device) {}

  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

  /// Called when a host function is put on `stream`. Returns the work that the function waits for.
  /// began() reports that the function runs, so that this work is done.
  VectorClock launched(StreamHandle stream);
  void began(const VectorClock& clock);

 private:
  VectorClock waited_for(const CallEvent& event);
  void mark_freed(const CallEvent& event, std::optional<Point> at);
  void follow_former_owners(const CallEvent& event);
  void apply(const CallEvent& event);

  Checker& checker_;
  const std::uint32_t device_;
};

}  // namespace emm::stream_order
