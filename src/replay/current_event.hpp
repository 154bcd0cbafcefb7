#pragma once

#include <cstdint>

namespace emm::replay {

/// The event of the trace that this thread executes, or 0 where it executes none. What a manager
/// does meanwhile is attributed to it.
std::uint64_t current_event() noexcept;
/// Whether this thread executes one. A signal handler may ask.
bool has_current_event() noexcept;

/// While one lives, `event` holds what this thread executes. They nest.
class CurrentEvent {
 public:
  explicit CurrentEvent(const std::uint64_t& event) noexcept;
  ~CurrentEvent();
  CurrentEvent(const CurrentEvent&) = delete;
  CurrentEvent& operator=(const CurrentEvent&) = delete;

 private:
  const std::uint64_t* outer_;
};

}  // namespace emm::replay
