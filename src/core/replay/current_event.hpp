#pragma once

#include <cstdint>

namespace emm::replay {

/// The event of the trace that this thread executes, or 0 if there is none. A manager's reports are
/// attributed to it.
std::uint64_t current_event() noexcept;
/// Answers whether this thread executes an event. A signal handler may call it.
bool has_current_event() noexcept;

/// While it lives, `event` holds the index of the event that this thread executes. They nest.
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
