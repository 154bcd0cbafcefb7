#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// Like to_text(CallEvent), with host addresses as `driver` shows them in logs, so that the text is
/// the same in every run on a simulated device.
std::string to_text(const CallEvent& event, const Driver& driver);

/// Keeps every call with its arguments and its answer, in the order in which the calls returned.
/// Any thread may call.
class CallLog final : public CallHook {
 public:
  void after(const CallEvent& event) override;

  std::vector<CallEvent> events() const;
  /// Answers one line for each call, as to_text(CallEvent, Driver) writes it.
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
