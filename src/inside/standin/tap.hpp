#pragma once

#include <atomic>
#include <cstdint>

#include "driver/decorate/call_hook.hpp"

namespace emm::standin {

/// Passes the calls that reach a device to a hook of another part of the program, which may fail
/// them. Any thread may call. A hook may be set while calls run. Such a call may then reach
/// before() of the old hook and after() of the new one. So a hook must outlive the last call, and
/// must not expect pairs.
class Tap final : public CallHook {
 public:
  /// Null removes the hook.
  void set(CallHook* hook) noexcept { hook_.store(hook, std::memory_order_release); }
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  std::atomic<CallHook*> hook_{nullptr};
};

}  // namespace emm::standin
