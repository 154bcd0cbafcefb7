#include "driver/types.hpp"

namespace emm {
namespace {

constexpr std::array<CallInfo, kCallCount> kCalls{{
    {"mem_alloc", "cuMemAlloc"},
    {"mem_free", "cuMemFree"},
    {"mem_alloc_managed", "cuMemAllocManaged"},
    {"mem_host_alloc", "cuMemHostAlloc"},
    {"mem_free_host", "cuMemFreeHost"},
    {"mem_host_register", "cuMemHostRegister"},
    {"mem_host_unregister", "cuMemHostUnregister"},
    {"mem_host_get_device_pointer", "cuMemHostGetDevicePointer"},
    {"mem_get_info", "cuMemGetInfo"},
    {"mem_get_address_range", "cuMemGetAddressRange"},
    {"ipc_get_mem_handle", "cuIpcGetMemHandle"},
    {"ipc_open_mem_handle", "cuIpcOpenMemHandle"},
    {"ipc_close_mem_handle", "cuIpcCloseMemHandle"},
    {"memset_d8", "cuMemsetD8"},
    {"memset_d32", "cuMemsetD32"},
    {"memcpy_htod", "cuMemcpyHtoD"},
    {"memcpy_dtoh", "cuMemcpyDtoH"},
    {"memcpy_dtod", "cuMemcpyDtoD"},
    {"event_create", "cuEventCreate"},
    {"event_destroy", "cuEventDestroy"},
    {"stream_create", "cuStreamCreate"},
    {"stream_destroy", "cuStreamDestroy"},
    {"stream_synchronize", "cuStreamSynchronize"},
    {"ctx_synchronize", "cuCtxSynchronize"},
    {"ctx_push_current", "cuCtxPushCurrent"},
    {"ctx_pop_current", "cuCtxPopCurrent"},
    {"library_load", "cuLibraryLoadData"},
    {"library_unload", "cuLibraryUnload"},
    {"primary_ctx_reset", "cuDevicePrimaryCtxReset"},
    {"can_access_peer", "cuDeviceCanAccessPeer"},
    {"stream_query", "cuStreamQuery"},
    {"stream_wait_event", "cuStreamWaitEvent"},
    {"event_record", "cuEventRecord"},
    {"event_query", "cuEventQuery"},
    {"event_synchronize", "cuEventSynchronize"},
    {"memset_d8_async", "cuMemsetD8Async"},
    {"memcpy_dtod_async", "cuMemcpyDtoDAsync"},
    {"launch_host_func", "cuLaunchHostFunc"},
    {"mem_get_allocation_granularity", "cuMemGetAllocationGranularity"},
    {"mem_address_reserve", "cuMemAddressReserve"},
    {"mem_address_free", "cuMemAddressFree"},
    {"mem_create", "cuMemCreate"},
    {"mem_release", "cuMemRelease"},
    {"mem_map", "cuMemMap"},
    {"mem_unmap", "cuMemUnmap"},
    {"mem_set_access", "cuMemSetAccess"},
    {"mem_pool_create", "cuMemPoolCreate"},
    {"mem_pool_destroy", "cuMemPoolDestroy"},
    {"device_get_default_mem_pool", "cuDeviceGetDefaultMemPool"},
    {"mem_pool_trim_to", "cuMemPoolTrimTo"},
    {"mem_pool_set_attribute", "cuMemPoolSetAttribute"},
    {"mem_pool_get_attribute", "cuMemPoolGetAttribute"},
    {"mem_alloc_async", "cuMemAllocAsync"},
    {"mem_alloc_from_pool_async", "cuMemAllocFromPoolAsync"},
    {"mem_free_async", "cuMemFreeAsync"},
    {"ctx_enable_peer_access", "cuCtxEnablePeerAccess"},
    {"ctx_disable_peer_access", "cuCtxDisablePeerAccess"},
    {"memcpy_peer", "cuMemcpyPeer"},
    {"runtime_malloc", "cudaMalloc"},
    {"runtime_free", "cudaFree"},
    {"runtime_get_info", "cudaMemGetInfo"},
}};

Errc meaning(std::int32_t native) noexcept {
  switch (native) {
    case 1:
      return Errc::invalid_value;
    case 2:
      return Errc::out_of_memory;
    case 3:
      return Errc::not_initialized;
    case 100:
    case 101:
      return Errc::no_device;
    case 201:
      return Errc::invalid_context;
    case 500:
      return Errc::not_found;
    case 709:
      return Errc::context_destroyed;
    case 712:
      return Errc::already_registered;
    case 713:
      return Errc::not_registered;
    case 801:
      return Errc::not_supported;
    default:
      return Errc::driver_error;
  }
}

}  // namespace

const CallInfo& call_info(Call call) noexcept { return kCalls[static_cast<std::size_t>(call)]; }

Error driver_error(Call call, std::int32_t native) noexcept {
  return Error{.code = meaning(native), .native = native, .call = call_info(call).cuda_name};
}

}  // namespace emm
