#pragma once

#include <cuda.h>

#include <string>

#include "base/result.hpp"

// The name that has had no argument since CUDA 2. Newer headers map it to another function.
#undef cuCtxSynchronize
extern "C" CUresult CUDAAPI cuCtxSynchronize();

namespace emm {

// clang-format off
/// The functions of libcuda that the implementation needs besides calls.def.
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

/// The functions of libcuda that this folder uses. They are found at run time by their versioned
/// names, so that the program starts without a driver. <cuda.h> gives their types, and its macros
/// the versions.
struct CudaApi {
#define EMM_CUDA_CALL(name, cuda) decltype(&::cuda) name;
#define EMM_CALL(result, name, cuda, ...) EMM_CUDA_CALL(name, cuda)
  EMM_FURTHER_CUDA_CALLS(EMM_CUDA_CALL)
#include "driver/calls.def"
#undef EMM_CUDA_CALL
};

/// Loads and initializes the driver of that file, libcuda.so.1 if it is empty, once for the
/// process. Error no_device. Any thread may call.
Result<const CudaApi*> load_cuda(const std::string& file);

}  // namespace emm
