#pragma once

#include <memory>

#include "driver/decorate/call_hook.hpp"
#include "driver/device_entry.hpp"

namespace emm {

/// A driver that passes every call to another one, with a hook around it. Returns the other
/// driver's result unless the hook refuses. Queries that are not CUDA calls (names, held_bytes,
/// ...) bypass the hook. The other driver and the hook must outlive it. It may be called on the
/// threads that both allow.
class ForwardingDriver : public Driver {
 public:
  ForwardingDriver(Driver& inner, CallHook& hook) noexcept : inner_(inner), hook_(hook) {}

#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  DeviceIdentity device_identity() const noexcept override { return inner_.device_identity(); }
  std::string_view device_name() const noexcept override { return inner_.device_name(); }
  int device_ordinal() const noexcept override { return inner_.device_ordinal(); }
  bool can_map_host_memory() const noexcept override { return inner_.can_map_host_memory(); }
  ContextHandle context_handle() const noexcept override { return inner_.context_handle(); }
  std::uint64_t held_bytes() const noexcept override { return inner_.held_bytes(); }
  std::uint64_t largest_free_bytes() const noexcept override { return inner_.largest_free_bytes(); }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override {
    return inner_.log_address(ptr);
  }

 private:
  Driver& inner_;
  CallHook& hook_;
};

/// Does for a Runtime what ForwardingDriver does for a Driver.
class ForwardingRuntime final : public Runtime {
 public:
  ForwardingRuntime(Runtime& inner, CallHook& hook) noexcept : inner_(inner), hook_(hook) {}

  Result<DevicePtr> malloc(std::uint64_t size) override;
  Status free(DevicePtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

 private:
  Runtime& inner_;
  CallHook& hook_;
};

/// Puts `hook` around every call of a device's driver and runtime. The result owns the device that
/// it decorates.
OpenedDevice hooked(OpenedDevice device, CallHook& hook);

}  // namespace emm
