#include "driver/cuda/cudart_runtime.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/host_memory.hpp"
#include "driver/call.hpp"

namespace emm {
namespace {

/// The functions of libcudart that this file uses. Their codes for memory equal CUresult's.
struct CudartApi {
  int (*malloc)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*mem_get_info)(std::size_t*, std::size_t*) = nullptr;
  int (*get_last_error)() = nullptr;
};

void* open_library() {
  for (const auto* name : {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}) {
    for (const auto* folder : {"", "/usr/local/cuda/lib64/"}) {
      const auto file = std::string(folder) + name;
      if (auto* library = open_shared_object(file.c_str(), RTLD_NOW | RTLD_LOCAL).handle)
        return library;
    }
  }
  return nullptr;
}

template <class Function>
bool find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

const CudartApi* load_cudart() {
  static CudartApi api;
  auto* library = open_library();
  if (library == nullptr) return nullptr;
  const bool whole = find(library, api.malloc, "cudaMalloc") &&
                     find(library, api.free, "cudaFree") &&
                     find(library, api.mem_get_info, "cudaMemGetInfo") &&
                     find(library, api.get_last_error, "cudaGetLastError");
  return whole ? &api : nullptr;
}

class CudartRuntime final : public Runtime {
 public:
  CudartRuntime(const CudartApi& api, std::shared_ptr<CudaContext> context) noexcept
      : api_(api), context_(std::move(context)) {}

  Result<DevicePtr> malloc(std::uint64_t size) override {
    void* ptr = nullptr;
    const auto native = make([&] { return api_.malloc(&ptr, size); });
    if (native != 0) return driver_error(Call::runtime_malloc, native);
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    if (address != 0) context_->held().add(address, size);
    return DevicePtr{address};
  }

  Status free(DevicePtr ptr) override {
    const auto native = make([&] {
      const auto size = context_->held().remove(ptr.value);
      const auto answer = api_.free(reinterpret_cast<void*>(ptr.value));  // NOLINT
      if (answer != 0 && size != 0) context_->held().add(ptr.value, size);
      return answer;
    });
    if (native != 0) return driver_error(Call::runtime_free, native);
    return {};
  }

  Result<MemoryInfo> mem_get_info() override {
    std::size_t free = 0, total = 0;
    const auto native = make([&] { return api_.mem_get_info(&free, &total); });
    if (native != 0) return driver_error(Call::runtime_get_info, native);
    return MemoryInfo{.free = free, .total = total};
  }

 private:
  // cudart works in the current context, and keeps a failure until cudaGetLastError.
  template <class MakeCall>
  std::int32_t make(MakeCall call) {
    return context_->with_current([&] {
      const auto native = call();
      if (native != 0) api_.get_last_error();
      return native;
    });
  }

  const CudartApi& api_;
  std::shared_ptr<CudaContext> context_;
};

}  // namespace

std::unique_ptr<Runtime> make_cudart_runtime(std::shared_ptr<CudaContext> context) {
  static const CudartApi* api = load_cudart();
  if (api == nullptr) return nullptr;
  return std::make_unique<CudartRuntime>(*api, std::move(context));
}

}  // namespace emm
