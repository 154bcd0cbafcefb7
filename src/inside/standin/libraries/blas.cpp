// cuBLAS and cuBLASLt: handles with their settings, versions, and one algorithm for each product.
// The products themselves are not computed.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/handles.hpp"

using namespace emm::standin;

namespace {

enum Mode : int { pointer_mode, math_mode, atomics_mode };

Status version_number(int part, int* value) {
  *value = part == 0 ? cuda_version() : 0;  // major, minor, patch
  return 0;
}

/// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  std::uint64_t algorithm[8];
  std::size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int emm_standin_load_kernels();

// Without a device there is a handle all the same, and the first call that needs one says so.
Status cublasCreate_v2(LibraryHandle** out) {
  if (cudart::enter() == cudart::kSuccess) (void)emm_standin_load_kernels();
  constexpr Status kAllocFailed = 3;  // CUBLAS_STATUS_ALLOC_FAILED
  return create(out, blas_handle, kAllocFailed);
}
Status cublasDestroy_v2(LibraryHandle* handle) { return destroy(handle, blas_handle); }
Status cublasSetStream_v2(LibraryHandle* handle, void* stream) {
  handle->stream = stream;
  return 0;
}
Status cublasGetStream_v2(LibraryHandle* handle, void** stream) {
  *stream = handle->stream;
  return 0;
}
Status cublasSetPointerMode_v2(LibraryHandle* handle, int mode) {
  handle->modes[pointer_mode] = mode;
  return 0;
}
Status cublasGetPointerMode_v2(LibraryHandle* handle, int* mode) {
  *mode = handle->modes[pointer_mode];
  return 0;
}
Status cublasSetMathMode(LibraryHandle* handle, int mode) {
  handle->modes[math_mode] = mode;
  return 0;
}
Status cublasGetMathMode(LibraryHandle* handle, int* mode) {
  *mode = handle->modes[math_mode];
  return 0;
}
Status cublasSetAtomicsMode(LibraryHandle* handle, int mode) {
  handle->modes[atomics_mode] = mode;
  return 0;
}
Status cublasGetAtomicsMode(LibraryHandle* handle, int* mode) {
  *mode = handle->modes[atomics_mode];
  return 0;
}
Status cublasGetVersion_v2(LibraryHandle*, int* version) {
  *version = cuda_version() * 10000;
  return 0;
}
Status cublasGetProperty(int part, int* value) { return version_number(part, value); }
std::size_t cublasGetCudartVersion() { return static_cast<std::size_t>(cuda_version()) * 1000; }
const char* cublasGetStatusName(Status status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
const char* cublasGetStatusString(Status status) { return cublasGetStatusName(status); }

Status cublasLtCreate(LibraryHandle** out) { return create(out); }
Status cublasLtDestroy(LibraryHandle* handle) { return destroy(handle); }
std::size_t cublasLtGetVersion() { return static_cast<std::size_t>(cuda_version()) * 10000; }
std::size_t cublasLtGetCudartVersion() { return static_cast<std::size_t>(cuda_version()) * 1000; }
Status cublasLtGetProperty(int part, int* value) { return version_number(part, value); }
const char* cublasLtGetStatusName(Status status) { return cublasGetStatusName(status); }
const char* cublasLtGetStatusString(Status status) { return cublasGetStatusName(status); }
Status cublasLtMatmulDescCreate(LibraryHandle** out, int, int) { return create(out); }
Status cublasLtMatmulDescDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cublasLtMatrixLayoutCreate(LibraryHandle** out, int, std::uint64_t, std::uint64_t,
                                  std::int64_t) {
  return create(out);
}
Status cublasLtMatrixLayoutDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cublasLtMatmulPreferenceCreate(LibraryHandle** out) { return create(out); }
Status cublasLtMatmulPreferenceDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cublasLtMatrixTransformDescCreate(LibraryHandle** out, int) { return create(out); }
Status cublasLtMatrixTransformDescDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*,
                                      int requested, Heuristic* results, int* returned) {
  *returned = 0;
  if (requested < 1) return 7;  // CUBLAS_STATUS_INVALID_VALUE
  std::memset(results, 0, sizeof *results);
  results->waves = 1;
  *returned = 1;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
