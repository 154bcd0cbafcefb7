#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// As to_text(CallEvent), with host addresses as `driver` shows them in logs, so that on a
/// simulated device the text is the same in every run.
std::string to_text(const CallEvent& event, const Driver& driver);

/// Every call in the order in which they returned, with arguments and answers. Any thread may call.
class CallLog final : public CallHook {
 public:
  void after(const CallEvent& event) override;

  std::vector<CallEvent> events() const;
  /// One line a call, as to_text(CallEvent, Driver) writes it.
  std::string text(const Driver& driver) const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::vector<CallEvent> events_;
};

/// A driver and its log in one.
class RecordingDriver final : public ForwardingDriver {
 public:
  explicit RecordingDriver(Driver& inner) noexcept : ForwardingDriver(inner, log_) {}
  CallLog& log() noexcept { return log_; }
  std::string text() const { return log_.text(*this); }

 private:
  CallLog log_;
};

}  // namespace emm
