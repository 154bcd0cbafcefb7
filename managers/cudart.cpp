#include "managers/host_only.hpp"

namespace emm {
namespace {

/// The simple plugin of Numba's tutorial: calls cudaMalloc and cudaFree at once. The rest is
/// HostOnlyManager's.
class CudartManager final : public HostOnlyManager {
 public:
  CudartManager(const ManagerContext& context, const Settings& settings)
      : HostOnlyManager(context, settings), runtime_(context.runtime) {}
  ~CudartManager() override {
    if (profile() == Profile::standard) end_all();
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle) override {
    auto ptr = runtime_->malloc(size);
    if (!ptr) return std::move(ptr).error();
    if (!*ptr) return MemoryPointer({}, size);  // cudaMalloc(0)
    const std::lock_guard lock(mutex_);
    const auto cookie =
        records_.add({.address = ptr->value, .size = size, .kind = MemoryKind::device});
    if (!cookie) return address_is_alive(ptr->value);
    return MemoryPointer(
        *ptr, size, Lifetime({.run = finalize, .self = this, .cookie = *cookie}, epoch_.mark()));
  }

  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    return ipc_handle_from_address_range(driver(), memory);
  }

  Result<MemoryInfo> get_memory_info() override { return runtime_->mem_get_info(); }

  // Numba's plugin keeps no record of device memory, so its reset ends only host memory.
  void reset() noexcept override {
    if (profile() == Profile::standard) end_all();
    HostOnlyManager::reset();
  }

  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const std::lock_guard lock(mutex_);
    *state.live_bytes += records_.device_bytes();
    return state;
  }

 private:
  static void finalize(void* self, std::uint64_t cookie, StreamHandle) noexcept {
    auto& manager = *static_cast<CudartManager*>(self);
    std::unique_lock lock(manager.mutex_);
    const auto record = manager.records_.take(cookie);
    lock.unlock();
    if (record) manager.free(*record);
  }

  void end_all() noexcept {
    std::unique_lock lock(mutex_);
    epoch_.advance();
    const auto mark = records_.mark();
    while (const auto record = records_.take_first(mark)) {
      lock.unlock();
      free(*record);
      lock.lock();
    }
  }

  void free(const LiveRecord& record) noexcept {
    if (auto freed = runtime_->free({record.address}); !freed) tell(freed.error());
  }

  Runtime* runtime_;  ///< Null in a probe.
  mutable std::mutex mutex_;
  LiveRecords records_;
  Epoch epoch_;
};

Result<std::unique_ptr<MemoryManager>> make_cudart(const ManagerContext& context, Options options) {
  constexpr std::string_view kOwner = "manager cudart";
  const auto settings = HostOnlyManager::read_settings(context, options, kOwner);
  if (!settings) return settings.error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (context.driver != nullptr && context.runtime == nullptr) {
    return fail(Errc::no_device, "{}: libcudart was not found; the other managers need none",
                kOwner);
  }
  return std::make_unique<CudartManager>(context, *settings);
}

}  // namespace

extern constinit const ManagerEntry cudart_manager{
    .name = "cudart",
    .summary = "cudaMalloc and cudaFree at once, nothing kept: the plugin of Numba's tutorial",
    .options = HostOnlyManager::kOptions,
    .promise = Promise::host_only,
    .variants = {"profile=numba"},
    .make = make_cudart,
};

}  // namespace emm
