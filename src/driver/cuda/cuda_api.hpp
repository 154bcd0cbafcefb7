#pragma once

#include <cuda.h>

#include "base/result.hpp"

namespace emm {

/// The functions of libcuda that are used here, found by their versioned names at run time, so that
/// the program needs no driver to start. Their types come from <cuda.h>; their code from the
/// machine.
struct CudaApi {
  decltype(&::cuInit) init;
  decltype(&::cuDeviceGetCount) device_get_count;
  decltype(&::cuDeviceGet) device_get;
  decltype(&::cuDeviceGetName) device_get_name;
  decltype(&::cuDeviceGetAttribute) device_get_attribute;
  decltype(&::cuDeviceGetByPCIBusId) device_get_by_pci_bus_id;
  decltype(&::cuDeviceCanAccessPeer) device_can_access_peer;
  decltype(&::cuDevicePrimaryCtxRetain) primary_ctx_retain;
  decltype(&::cuDevicePrimaryCtxRelease) primary_ctx_release;
  decltype(&::cuDevicePrimaryCtxReset) primary_ctx_reset;
  decltype(&::cuCtxGetCurrent) ctx_get_current;
  decltype(&::cuCtxPushCurrent) ctx_push_current;
  decltype(&::cuCtxPopCurrent) ctx_pop_current;
  CUresult (*ctx_synchronize)();  // by the name that has had no argument since CUDA 2
  decltype(&::cuMemAlloc) mem_alloc;
  decltype(&::cuMemFree) mem_free;
  decltype(&::cuMemAllocManaged) mem_alloc_managed;
  decltype(&::cuMemHostAlloc) mem_host_alloc;
  decltype(&::cuMemFreeHost) mem_free_host;
  decltype(&::cuMemHostRegister) mem_host_register;
  decltype(&::cuMemHostUnregister) mem_host_unregister;
  decltype(&::cuMemHostGetDevicePointer) mem_host_get_device_pointer;
  decltype(&::cuMemGetInfo) mem_get_info;
  decltype(&::cuMemGetAddressRange) mem_get_address_range;
  decltype(&::cuIpcGetMemHandle) ipc_get_mem_handle;
  decltype(&::cuIpcOpenMemHandle) ipc_open_mem_handle;
  decltype(&::cuIpcCloseMemHandle) ipc_close_mem_handle;
  decltype(&::cuMemsetD8) memset_d8;
  decltype(&::cuMemsetD32) memset_d32;
  decltype(&::cuMemcpyHtoD) memcpy_htod;
  decltype(&::cuMemcpyDtoH) memcpy_dtoh;
  decltype(&::cuMemcpyDtoD) memcpy_dtod;
  decltype(&::cuEventCreate) event_create;
  decltype(&::cuEventDestroy) event_destroy;
  decltype(&::cuStreamCreate) stream_create;
  decltype(&::cuStreamDestroy) stream_destroy;
  decltype(&::cuStreamSynchronize) stream_synchronize;
  decltype(&::cuStreamQuery) stream_query;
  decltype(&::cuStreamWaitEvent) stream_wait_event;
  decltype(&::cuEventRecord) event_record;
  decltype(&::cuEventQuery) event_query;
  decltype(&::cuEventSynchronize) event_synchronize;
  decltype(&::cuMemsetD8Async) memset_d8_async;
  decltype(&::cuMemcpyDtoDAsync) memcpy_dtod_async;
  decltype(&::cuLaunchHostFunc) launch_host_func;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&::cuMemAddressReserve) mem_address_reserve;
  decltype(&::cuMemAddressFree) mem_address_free;
  decltype(&::cuMemCreate) mem_create;
  decltype(&::cuMemRelease) mem_release;
  decltype(&::cuMemMap) mem_map;
  decltype(&::cuMemUnmap) mem_unmap;
  decltype(&::cuMemSetAccess) mem_set_access;
  decltype(&::cuMemPoolCreate) mem_pool_create;
  decltype(&::cuMemPoolDestroy) mem_pool_destroy;
  decltype(&::cuDeviceGetDefaultMemPool) device_get_default_mem_pool;
  decltype(&::cuMemPoolTrimTo) mem_pool_trim_to;
  decltype(&::cuMemPoolSetAttribute) mem_pool_set_attribute;
  decltype(&::cuMemPoolGetAttribute) mem_pool_get_attribute;
  decltype(&::cuMemAllocAsync) mem_alloc_async;
  decltype(&::cuMemAllocFromPoolAsync) mem_alloc_from_pool_async;
  decltype(&::cuMemFreeAsync) mem_free_async;
  decltype(&::cuCtxEnablePeerAccess) ctx_enable_peer_access;
  decltype(&::cuCtxDisablePeerAccess) ctx_disable_peer_access;
  decltype(&::cuMemcpyPeer) memcpy_peer;
  decltype(&::cuLibraryLoadData) library_load_data;
  decltype(&::cuLibraryUnload) library_unload;
};

/// Loads libcuda.so.1, once for the process, and starts it. Fails with no_device. Any thread may
/// call.
Result<const CudaApi*> load_cuda();

}  // namespace emm
