#pragma once

#include "driver/decorate/forwarding_driver.hpp"
#include "order/checker.hpp"

namespace emm::order {

/// Reads off the driver calls of one device what they order, for the checker.
class Watch final : public CallHook {
 public:
  Watch(Checker& checker, std::uint32_t device) noexcept : checker_(checker), device_(device) {}

  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

  /// All that a host function put on `stream` now waits for; and it has begun.
  VectorClock launched(StreamHandle stream);
  void began(const VectorClock& clock);

 private:
  VectorClock waited_for(const CallEvent& event);
  void apply(const CallEvent& event);

  Checker& checker_;
  const std::uint32_t device_;
};

}  // namespace emm::order
