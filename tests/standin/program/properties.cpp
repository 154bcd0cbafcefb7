// cudaDeviceProp as the toolkit declares it, against the attributes that it is made of.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

namespace {
int wrong = 0;
}

#define EMM_SAME(member, attribute)                                                          \
  do {                                                                                       \
    int value = 0;                                                                           \
    cudaDeviceGetAttribute(&value, attribute, 0);                                            \
    if (static_cast<long long>(told.member) != static_cast<long long>(value)) {              \
      std::printf("%s is %lld: expected %d\n", #member, static_cast<long long>(told.member), \
                  value);                                                                    \
      ++wrong;                                                                               \
    }                                                                                        \
  } while (false)

int main() {
  struct {
    cudaDeviceProp told;
    unsigned char behind[16];
  } both;
  std::memset(&both, 0xee, sizeof both);
  const auto& told = both.told;
  if (cudaGetDeviceProperties(&both.told, 0) != cudaSuccess) return 2;
  EMM_SAME(sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
  EMM_SAME(regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
  EMM_SAME(warpSize, cudaDevAttrWarpSize);
  EMM_SAME(maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
  EMM_SAME(maxGridSize[2], cudaDevAttrMaxGridDimZ);
  EMM_SAME(totalConstMem, cudaDevAttrTotalConstantMemory);
  EMM_SAME(major, cudaDevAttrComputeCapabilityMajor);
  EMM_SAME(minor, cudaDevAttrComputeCapabilityMinor);
  EMM_SAME(multiProcessorCount, cudaDevAttrMultiProcessorCount);
  EMM_SAME(maxTexture1D, cudaDevAttrMaxTexture1DWidth);
  EMM_SAME(maxTexture3D[2], cudaDevAttrMaxTexture3DDepth);
  EMM_SAME(surfaceAlignment, cudaDevAttrSurfaceAlignment);
  EMM_SAME(concurrentKernels, cudaDevAttrConcurrentKernels);
  EMM_SAME(pciBusID, cudaDevAttrPciBusId);
  EMM_SAME(asyncEngineCount, cudaDevAttrAsyncEngineCount);
  EMM_SAME(unifiedAddressing, cudaDevAttrUnifiedAddressing);
  EMM_SAME(memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth);
  EMM_SAME(l2CacheSize, cudaDevAttrL2CacheSize);
  EMM_SAME(maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
  EMM_SAME(sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  EMM_SAME(regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
  EMM_SAME(managedMemory, cudaDevAttrManagedMemory);
  EMM_SAME(cooperativeLaunch, cudaDevAttrCooperativeLaunch);
  EMM_SAME(sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  EMM_SAME(maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
  EMM_SAME(reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
  EMM_SAME(hostRegisterSupported, cudaDevAttrHostRegisterSupported);
  EMM_SAME(memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported);
  EMM_SAME(clusterLaunch, cudaDevAttrClusterLaunch);
  std::printf("%s has %zu bytes, %d wrong, behind it %x\n", told.name, told.totalGlobalMem, wrong,
              both.behind[0]);
  return wrong == 0 ? 0 : 1;
}
