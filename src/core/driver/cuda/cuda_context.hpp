#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver/cuda/cuda_api.hpp"
#include "driver/cuda/held_pages.hpp"
#include "driver/cuda/held_physical.hpp"

namespace emm {

/// Retains the primary context of one device, until its reset. The driver and the runtime of a
/// device share it. Any thread may call.
class CudaContext {
 public:
  static constexpr std::int32_t kContextDestroyed = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED

  /// Takes over a retain of the primary context of `device`.
  CudaContext(const CudaApi& api, CUdevice device, CUcontext context) noexcept
      : api_(api), device_(device), context_(context) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  // A reset does not undo a retain (cuDevicePrimaryCtxReset).
  ~CudaContext() { api_.primary_ctx_release(device_); }

  const CudaApi& api() const noexcept { return api_; }
  CUdevice device() const noexcept { return device_; }
  CUcontext handle() const noexcept { return context_; }
  HeldPages& held() noexcept { return held_; }
  HeldPhysical& held_physical() noexcept { return held_physical_; }
  /// Makes held_bytes() count a stream-ordered pool.
  void count_pool(CUmemoryPool pool);
  /// Likewise for the pool that mem_alloc_async takes memory from.
  void count_default_pool();
  /// Stops counting the pool. Answers whether it was counted.
  bool forget_pool(CUmemoryPool pool) noexcept;
  std::uint64_t held_bytes() noexcept;
  bool is_dead() const noexcept { return dead_.load(std::memory_order_acquire); }
  void mark_dead() noexcept {
    dead_.store(true, std::memory_order_release);
    held_.clear();
    held_physical_.clear();
    const std::lock_guard lock(pools_mutex_);
    pools_.clear();
  }

  /// Makes `call` with this context current on the thread, and restores the thread's stack of
  /// contexts. Returns 709 after a reset, since a new context may have the same handle.
  template <class MakeCall>
  std::int32_t with_current(MakeCall call) noexcept {
    if (is_dead()) return kContextDestroyed;
    CUcontext now = nullptr;
    if (const auto native = api_.ctx_get_current(&now); native != 0)
      return static_cast<std::int32_t>(native);
    if (now == context_) return static_cast<std::int32_t>(call());
    if (const auto native = api_.ctx_push_current(context_); native != 0)
      return static_cast<std::int32_t>(native);
    const auto answer = static_cast<std::int32_t>(call());
    api_.ctx_pop_current(&now);
    return answer;
  }

 private:
  const CudaApi& api_;
  const CUdevice device_;
  const CUcontext context_;
  std::atomic<bool> dead_{false};
  HeldPages held_;
  HeldPhysical held_physical_;
  std::atomic<bool> default_pool_counted_{false};
  std::mutex pools_mutex_;
  std::vector<CUmemoryPool> pools_;
};

}  // namespace emm
