#pragma once

#include <cuda.h>

#include "base/result.hpp"

// By the name that has had no argument since CUDA 2: newer headers map it to another.
#undef cuCtxSynchronize
extern "C" CUresult CUDAAPI cuCtxSynchronize();

namespace emm {

// clang-format off
/// What the implementation needs of libcuda beside the calls of the seam.
#define EMM_FURTHER_CUDA_CALLS(call)                    \
  call(init, cuInit)                                    \
  call(device_get_count, cuDeviceGetCount)              \
  call(device_get, cuDeviceGet)                         \
  call(device_get_name, cuDeviceGetName)                \
  call(device_get_attribute, cuDeviceGetAttribute)      \
  call(device_get_by_pci_bus_id, cuDeviceGetByPCIBusId) \
  call(primary_ctx_retain, cuDevicePrimaryCtxRetain)    \
  call(primary_ctx_release, cuDevicePrimaryCtxRelease)  \
  call(ctx_get_current, cuCtxGetCurrent)
// clang-format on

/// The functions of libcuda that are used here, found by their versioned names at run time, so that
/// the program needs no driver to start. Their types come from <cuda.h>, whose macros also give the
/// versions; their code comes from the machine.
struct CudaApi {
#define EMM_CUDA_CALL(name, cuda) decltype(&::cuda) name;
#define EMM_CALL(result, name, cuda, ...) EMM_CUDA_CALL(name, cuda)
  EMM_FURTHER_CUDA_CALLS(EMM_CUDA_CALL)
#include "driver/calls.def"
#undef EMM_CUDA_CALL
};

/// Loads libcuda.so.1, once for the process, and starts it. Fails with no_device. Any thread may
/// call.
Result<const CudaApi*> load_cuda();

}  // namespace emm
