#include "driver/cuda/cuda_api.hpp"

#include <dlfcn.h>

#include "base/host_memory.hpp"

namespace emm {
namespace {

/// Finds functions by name and remembers the first that is missing.
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
  symbols.find(api.init, "cuInit");
  symbols.find(api.device_get_count, "cuDeviceGetCount");
  symbols.find(api.device_get, "cuDeviceGet");
  symbols.find(api.device_get_name, "cuDeviceGetName");
  symbols.find(api.device_get_attribute, "cuDeviceGetAttribute");
  symbols.find(api.device_get_by_pci_bus_id, "cuDeviceGetByPCIBusId");
  symbols.find(api.device_can_access_peer, "cuDeviceCanAccessPeer");
  symbols.find(api.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  symbols.find(api.primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  symbols.find(api.primary_ctx_reset, "cuDevicePrimaryCtxReset_v2");
  symbols.find(api.ctx_get_current, "cuCtxGetCurrent");
  symbols.find(api.ctx_push_current, "cuCtxPushCurrent_v2");
  symbols.find(api.ctx_pop_current, "cuCtxPopCurrent_v2");
  symbols.find(api.ctx_synchronize, "cuCtxSynchronize");
  symbols.find(api.mem_alloc, "cuMemAlloc_v2");
  symbols.find(api.mem_free, "cuMemFree_v2");
  symbols.find(api.mem_alloc_managed, "cuMemAllocManaged");
  symbols.find(api.mem_host_alloc, "cuMemHostAlloc");
  symbols.find(api.mem_free_host, "cuMemFreeHost");
  symbols.find(api.mem_host_register, "cuMemHostRegister_v2");
  symbols.find(api.mem_host_unregister, "cuMemHostUnregister");
  symbols.find(api.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  symbols.find(api.mem_get_info, "cuMemGetInfo_v2");
  symbols.find(api.mem_get_address_range, "cuMemGetAddressRange_v2");
  symbols.find(api.ipc_get_mem_handle, "cuIpcGetMemHandle");
  symbols.find(api.ipc_open_mem_handle, "cuIpcOpenMemHandle_v2");
  symbols.find(api.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  symbols.find(api.memset_d8, "cuMemsetD8_v2");
  symbols.find(api.memset_d32, "cuMemsetD32_v2");
  symbols.find(api.memcpy_htod, "cuMemcpyHtoD_v2");
  symbols.find(api.memcpy_dtoh, "cuMemcpyDtoH_v2");
  symbols.find(api.memcpy_dtod, "cuMemcpyDtoD_v2");
  symbols.find(api.event_create, "cuEventCreate");
  symbols.find(api.event_destroy, "cuEventDestroy_v2");
  symbols.find(api.stream_create, "cuStreamCreate");
  symbols.find(api.stream_destroy, "cuStreamDestroy_v2");
  symbols.find(api.stream_synchronize, "cuStreamSynchronize");
  symbols.find(api.stream_query, "cuStreamQuery");
  symbols.find(api.stream_wait_event, "cuStreamWaitEvent");
  symbols.find(api.event_record, "cuEventRecord");
  symbols.find(api.event_query, "cuEventQuery");
  symbols.find(api.event_synchronize, "cuEventSynchronize");
  symbols.find(api.memset_d8_async, "cuMemsetD8Async");
  symbols.find(api.memcpy_dtod_async, "cuMemcpyDtoDAsync_v2");
  symbols.find(api.launch_host_func, "cuLaunchHostFunc");
  symbols.find(api.mem_get_allocation_granularity, "cuMemGetAllocationGranularity");
  symbols.find(api.mem_address_reserve, "cuMemAddressReserve");
  symbols.find(api.mem_address_free, "cuMemAddressFree");
  symbols.find(api.mem_create, "cuMemCreate");
  symbols.find(api.mem_release, "cuMemRelease");
  symbols.find(api.mem_map, "cuMemMap");
  symbols.find(api.mem_unmap, "cuMemUnmap");
  symbols.find(api.mem_set_access, "cuMemSetAccess");
  symbols.find(api.mem_pool_create, "cuMemPoolCreate");
  symbols.find(api.mem_pool_destroy, "cuMemPoolDestroy");
  symbols.find(api.device_get_default_mem_pool, "cuDeviceGetDefaultMemPool");
  symbols.find(api.mem_pool_trim_to, "cuMemPoolTrimTo");
  symbols.find(api.mem_pool_set_attribute, "cuMemPoolSetAttribute");
  symbols.find(api.mem_pool_get_attribute, "cuMemPoolGetAttribute");
  symbols.find(api.mem_alloc_async, "cuMemAllocAsync");
  symbols.find(api.mem_alloc_from_pool_async, "cuMemAllocFromPoolAsync");
  symbols.find(api.mem_free_async, "cuMemFreeAsync");
  symbols.find(api.ctx_enable_peer_access, "cuCtxEnablePeerAccess");
  symbols.find(api.ctx_disable_peer_access, "cuCtxDisablePeerAccess");
  symbols.find(api.memcpy_peer, "cuMemcpyPeer");
  symbols.find(api.library_load_data, "cuLibraryLoadData");
  symbols.find(api.library_unload, "cuLibraryUnload");
  return symbols.missing();
}

// The library stays loaded to the end of the process: it has threads and exit handlers of its own.
Result<const CudaApi*> load_once() {
  static CudaApi api{};
  auto* library = open_shared_object("libcuda.so.1", RTLD_NOW | RTLD_LOCAL).handle;
  if (library == nullptr) {
    return fail(Errc::no_device,
                "no CUDA driver (libcuda.so.1 not found); --device sim needs none");
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

Result<const CudaApi*> load_cuda() {
  static const Result<const CudaApi*> loaded = load_once();
  return loaded;
}

}  // namespace emm
