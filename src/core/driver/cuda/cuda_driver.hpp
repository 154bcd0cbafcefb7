#pragma once

#include <memory>
#include <string>

#include "driver/call.hpp"
#include "driver/cuda/cuda_context.hpp"
#include "driver/driver.hpp"

namespace emm {

/// The driver API over the primary context of a real device. Each method makes the CUDA call with
/// the context current, and returns CUDA's result. After primary_ctx_reset every call except
/// ctx_pop_current returns 709. Any thread may call.
class CudaDriver final : public Driver {
 public:
  CudaDriver(std::shared_ptr<CudaContext> context, int ordinal);

#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  DeviceIdentity device_identity() const noexcept override { return identity_; }
  std::string_view device_name() const noexcept override { return name_; }
  int device_ordinal() const noexcept override { return ordinal_; }
  bool can_map_host_memory() const noexcept override { return can_map_host_memory_; }
  ContextHandle context_handle() const noexcept override;
  std::uint64_t held_bytes() const noexcept override { return context_->held_bytes(); }
  std::uint64_t largest_free_bytes() const noexcept override { return 0; }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  std::int32_t attribute(CUdevice_attribute attribute) const noexcept;
  static Status status_of(Call call, std::int32_t native) {
    if (native != 0) return driver_error(call, native);
    return {};
  }
  /// Makes a call of libcuda in the context, and returns its code as a Status.
  template <class MakeCall>
  Status make(Call call, MakeCall make_call) {
    return status_of(call, context_->with_current([&] { return make_call(context_->api()); }));
  }
  /// Makes a call that asks whether work is done: false for the code "not ready".
  template <class MakeCall>
  Result<bool> ask(Call call, MakeCall make_call) {
    constexpr std::int32_t kNotReady = 600;  // CUDA_ERROR_NOT_READY
    const auto native = context_->with_current([&] { return make_call(context_->api()); });
    if (native == kNotReady) return false;
    if (native != 0) return driver_error(call, native);
    return true;
  }

  std::shared_ptr<CudaContext> context_;
  const int ordinal_;
  std::string name_;
  DeviceIdentity identity_;
  bool can_map_host_memory_;
};

}  // namespace emm
