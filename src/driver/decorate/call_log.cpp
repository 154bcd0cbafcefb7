#include "driver/decorate/call_log.hpp"

namespace emm {
namespace {

std::uint64_t shown(const Driver& driver, std::uint64_t address) {
  return driver.log_address(reinterpret_cast<const std::byte*>(address));  // NOLINT
}

/// Which of a call's numbers are, or may be, host addresses.
CallEvent with_shown_addresses(const Driver& driver, CallEvent event) {
  switch (event.call) {
    case Call::event_create:
    case Call::event_destroy:
    case Call::stream_create:
    case Call::stream_destroy:
    case Call::stream_synchronize:
    case Call::library_load:
    case Call::library_unload:
    case Call::ctx_pop_current:
    case Call::mem_get_info:
    case Call::runtime_get_info:
    case Call::can_access_peer:
      return event;
    case Call::memcpy_dtod:
      event.other = shown(driver, event.other);
      break;
    default:
      break;
  }
  event.pointer = shown(driver, event.pointer);
  event.result = shown(driver, event.result);
  return event;
}

}  // namespace

std::string to_text(const CallEvent& event, const Driver& driver) {
  return to_text(with_shown_addresses(driver, event));
}

void CallLog::after(const CallEvent& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

std::vector<CallEvent> CallLog::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::string CallLog::text(const Driver& driver) const {
  std::string out;
  for (const auto& event : events()) {
    out += to_text(event, driver);
    out += '\n';
  }
  return out;
}

void CallLog::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

}  // namespace emm
