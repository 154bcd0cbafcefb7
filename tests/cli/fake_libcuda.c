/* A libcuda.so.1 that answers as told when it was compiled: for the messages of machines whose
   driver is too old (WITHOUT_LIBRARIES), does not start (INIT), or finds no device (COUNT). */
#ifndef INIT
#define INIT 0
#endif
#ifndef COUNT
#define COUNT 0
#endif

int cuInit(unsigned flags) {
  (void)flags;
  return INIT;
}

int cuDeviceGetCount(int* count) {
  *count = COUNT;
  return 0;
}

#define UNUSED(name) \
  int name(void) { return 999; }
UNUSED(cuDeviceGet)
UNUSED(cuDeviceGetName)
UNUSED(cuDeviceGetAttribute)
UNUSED(cuDeviceGetByPCIBusId)
UNUSED(cuDeviceCanAccessPeer)
UNUSED(cuDevicePrimaryCtxRetain)
UNUSED(cuDevicePrimaryCtxRelease_v2)
UNUSED(cuDevicePrimaryCtxReset_v2)
UNUSED(cuCtxGetCurrent)
UNUSED(cuCtxPushCurrent_v2)
UNUSED(cuCtxPopCurrent_v2)
UNUSED(cuCtxSynchronize)
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemFree_v2)
UNUSED(cuMemAllocManaged)
UNUSED(cuMemHostAlloc)
UNUSED(cuMemFreeHost)
UNUSED(cuMemHostRegister_v2)
UNUSED(cuMemHostUnregister)
UNUSED(cuMemHostGetDevicePointer_v2)
UNUSED(cuMemGetInfo_v2)
UNUSED(cuMemGetAddressRange_v2)
UNUSED(cuIpcGetMemHandle)
UNUSED(cuIpcOpenMemHandle_v2)
UNUSED(cuIpcCloseMemHandle)
UNUSED(cuMemsetD8_v2)
UNUSED(cuMemsetD32_v2)
UNUSED(cuMemcpyHtoD_v2)
UNUSED(cuMemcpyDtoH_v2)
UNUSED(cuMemcpyDtoD_v2)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuStreamCreate)
UNUSED(cuStreamDestroy_v2)
UNUSED(cuStreamSynchronize)
UNUSED(cuStreamQuery)
UNUSED(cuStreamWaitEvent)
UNUSED(cuEventRecord)
UNUSED(cuEventQuery)
UNUSED(cuEventSynchronize)
UNUSED(cuMemsetD8Async)
UNUSED(cuMemcpyDtoDAsync_v2)
UNUSED(cuLaunchHostFunc)
UNUSED(cuMemGetAllocationGranularity)
UNUSED(cuMemAddressReserve)
UNUSED(cuMemAddressFree)
UNUSED(cuMemCreate)
UNUSED(cuMemRelease)
UNUSED(cuMemMap)
UNUSED(cuMemUnmap)
UNUSED(cuMemSetAccess)
UNUSED(cuMemPoolCreate)
UNUSED(cuMemPoolDestroy)
UNUSED(cuDeviceGetDefaultMemPool)
UNUSED(cuMemPoolTrimTo)
UNUSED(cuMemPoolSetAttribute)
UNUSED(cuMemPoolGetAttribute)
UNUSED(cuMemAllocAsync)
UNUSED(cuMemAllocFromPoolAsync)
UNUSED(cuMemFreeAsync)
UNUSED(cuCtxEnablePeerAccess)
UNUSED(cuCtxDisablePeerAccess)
UNUSED(cuMemcpyPeer)
#ifndef WITHOUT_LIBRARIES
UNUSED(cuLibraryLoadData)
UNUSED(cuLibraryUnload)
#endif
