#include "driver/decorate/call_log.hpp"

#include "driver/call.hpp"

namespace emm {
namespace {

std::uint64_t shown(const Driver& driver, std::uint64_t address) {
  return driver.log_address(reinterpret_cast<const std::byte*>(address));  // NOLINT
}

/// Replaces the values that the log writes as addresses, since some are host addresses.
CallEvent with_shown_addresses(const Driver& driver, CallEvent event) {
  const auto shape = call_info(event.call).shape;
  const auto bar = shape.find('|');
  const auto arguments = shape.substr(0, bar), result = shape.substr(bar + 1);
  if (arguments.find('p') != arguments.npos) event.pointer = shown(driver, event.pointer);
  if (arguments.find('o') != arguments.npos) event.other = shown(driver, event.other);
  if (result == "p") event.result = shown(driver, event.result);
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
