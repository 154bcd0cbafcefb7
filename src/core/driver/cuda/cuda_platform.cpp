#include "driver/cuda/cuda_platform.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/launcher.hpp"
#include "base/text.hpp"
#include "driver/call.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/cuda/cudart_runtime.hpp"

namespace emm {
namespace {

/// All or some of the real devices, by CUDA's numbers.
class CudaPlatform final : public Platform {
 public:
  CudaPlatform(const CudaApi& api, std::vector<int> devices, std::string spec)
      : api_(api),
        contexts_(devices.size()),
        devices_(std::move(devices)),
        spec_(std::move(spec)) {}

  int device_count() const noexcept override { return static_cast<int>(devices_.size()); }
  Clock& clock() noexcept override { return clock_; }
  std::string spec() const override { return spec_; }
  std::string_view kind() const noexcept override { return "cuda"; }
  int machine_ordinal(int ordinal) const noexcept override {
    return devices_[static_cast<std::size_t>(ordinal)];
  }

  Result<OpenedDevice> open(int ordinal) override {
    if (ordinal < 0 || ordinal >= device_count()) {
      return fail(Errc::no_device, "no device {}: there are {}, counted from 0", ordinal,
                  device_count());
    }
    const auto index = static_cast<std::size_t>(ordinal);
    const std::lock_guard lock(mutex_);
    auto context = contexts_[index].lock();
    if (!context || context->is_dead()) {
      CUdevice device = 0;
      CUcontext handle = nullptr;
      auto native = api_.device_get(&device, devices_[index]);
      if (native == 0) native = api_.primary_ctx_retain(&handle, device);
      if (native != 0) {
        auto error = driver_error(Call::ctx_push_current, static_cast<std::int32_t>(native));
        error.call = "cuDevicePrimaryCtxRetain";
        return error;
      }
      context = std::make_shared<CudaContext>(api_, device, handle);
      contexts_[index] = context;
    }
    return OpenedDevice{.driver = std::make_unique<CudaDriver>(context, devices_[index]),
                        .runtime = make_cudart_runtime(context)};
  }

 private:
  const CudaApi& api_;
  SteadyClock clock_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<CudaContext>> contexts_;
  const std::vector<int> devices_;
  const std::string spec_;
};

}  // namespace

Result<std::unique_ptr<Platform>> open_cuda_platform(std::string_view options,
                                                     const DeviceDefaults& defaults) {
  auto number = text::to_u64(options);
  const bool local = options == "local";
  if (!options.empty() && !number && !local) {
    return fail(Errc::usage, "device cuda: '{}' is not a device: expected its number, or local",
                options);
  }
  if (local) {
    const auto rank = launched();
    if (!rank || !rank->local_rank) {
      return fail(Errc::usage,
                  "device cuda:local: no launcher told the rank on this machine: expected the "
                  "variables of srun, mpirun or torchrun");
    }
    number = rank->local_rank;
  }
  const auto api = load_cuda(defaults.cuda_driver);
  if (!api) return api.error();
  int count = 0;
  if ((*api)->device_get_count(&count) != 0 || count == 0) {
    return fail(Errc::no_device, "no CUDA device (the driver found none); --device sim needs none");
  }
  // A launcher may show each rank only its own device.
  if (local && count == 1) number = 0;
  if (number && *number >= static_cast<std::uint64_t>(count)) {
    return fail(Errc::no_device, "no device {}: there are {}, counted from 0", *number, count);
  }
  std::vector<int> devices;
  const int first = number ? static_cast<int>(*number) : 0;
  const int end = number ? std::min(count, first + defaults.devices) : count;
  for (int device = first; device < end; ++device) devices.push_back(device);
  auto spec = number ? text::format("cuda:{}", *number) : std::string("cuda");
  return std::unique_ptr<Platform>(
      std::make_unique<CudaPlatform>(**api, std::move(devices), std::move(spec)));
}

}  // namespace emm
