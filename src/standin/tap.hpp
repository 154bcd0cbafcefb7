#pragma once

#include <atomic>
#include <cstdint>

#include "driver/decorate/call_hook.hpp"

namespace emm::standin {

/// Who listens to the calls that reach a device, and may fail them: a hook of another program part
/// (null: nobody), which outlives the last call. Any thread.
class Tap final : public CallHook {
 public:
  void set(CallHook* hook) noexcept { hook_.store(hook, std::memory_order_release); }
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  std::atomic<CallHook*> hook_{nullptr};
};

}  // namespace emm::standin
