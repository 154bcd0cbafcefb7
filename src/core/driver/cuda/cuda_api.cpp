#include "driver/cuda/cuda_api.hpp"

#include <dlfcn.h>

#include "base/host_memory.hpp"

namespace emm {
namespace {

/// Finds functions by name, and keeps the name of the first missing one.
class Symbols {
 public:
  explicit Symbols(void* library) noexcept : library_(library) {}

  template <class Function>
  void find(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const noexcept { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

const char* find_all(CudaApi& api, void* library) noexcept {
  Symbols symbols(library);
#define EMM_TEXT(symbol) #symbol
#define EMM_CUDA_CALL(name, cuda) symbols.find(api.name, EMM_TEXT(cuda));
#define EMM_CALL(result, name, cuda, ...) EMM_CUDA_CALL(name, cuda)
  EMM_FURTHER_CUDA_CALLS(EMM_CUDA_CALL)
#include "driver/calls.def"
#undef EMM_CUDA_CALL
#undef EMM_TEXT
  return symbols.missing();
}

// The library stays loaded until the process ends, because it has threads and exit handlers.
Result<const CudaApi*> load_once(const std::string& file) {
  static CudaApi api{};
  auto* library = open_shared_object(file.c_str(), RTLD_NOW | RTLD_LOCAL).handle;
  if (library == nullptr) {
    return fail(Errc::no_device, "no CUDA driver ({} not found); --device sim needs none", file);
  }
  if (const auto* missing = find_all(api, library); missing != nullptr) {
    return fail(Errc::no_device, "the CUDA driver has no {}: expected one for CUDA 12.0 or later",
                missing);
  }
  if (const auto native = static_cast<std::int32_t>(api.init(0)); native != 0) {
    auto error =
        fail(Errc::no_device, "the CUDA driver does not start ({}); --device sim needs none",
             native_name(native));
    error.native = native;
    error.call = "cuInit";
    return error;
  }
  return &api;
}

}  // namespace

Result<const CudaApi*> load_cuda(const std::string& file) {
  static const Result<const CudaApi*> loaded = load_once(file.empty() ? "libcuda.so.1" : file);
  return loaded;
}

}  // namespace emm
