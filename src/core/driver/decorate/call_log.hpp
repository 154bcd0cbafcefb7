#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "driver/decorate/forwarding_driver.hpp"

namespace emm {

/// Like to_text(CallEvent), but with the log addresses of `driver` for host memory, so that the
/// text is the same in every run on a simulated device.
std::string to_text(const CallEvent& event, const Driver& driver);

/// Keeps every call with its arguments and its result, in the order in which the calls returned.
/// Any thread may call.
class CallLog final : public CallHook {
 public:
  void after(const CallEvent& event) override;

  std::vector<CallEvent> events() const;
  /// One line for each call, as by to_text(CallEvent, Driver).
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
