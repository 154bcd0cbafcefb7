#pragma once

#include <atomic>
#include <cstdint>

#include "driver/decorate/call_hook.hpp"

namespace emm::standin {

/// Passes the calls that reach a device to a hook of another part of the program, which may fail
/// them. Null: nobody listens. Any thread. A hook may be set while calls run: such a call may tell
/// before() to the former hook and after() to the next, so a hook must outlive the last call and
/// may not count on pairs.
class Tap final : public CallHook {
 public:
  void set(CallHook* hook) noexcept { hook_.store(hook, std::memory_order_release); }
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  std::atomic<CallHook*> hook_{nullptr};
};

}  // namespace emm::standin
