// cuFFT, cuRAND, cuSPARSE, cuSOLVER and CUPTI: handles, descriptors, and the sizes of workspaces.
// A workspace is said to be empty, which is an assumption: what a card would take is not known.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "standin/libraries/handles.hpp"

using namespace emm::standin;

namespace {

std::atomic<int> plans{0};

Status new_plan(int* plan) {
  *plan = ++plans;
  return 0;
}
template <class Number>
Status none(Number* size) {
  if (size != nullptr) *size = 0;
  return 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Status cufftCreate(int* plan) { return new_plan(plan); }
Status cufftPlan1d(int* plan, int, int, int) { return new_plan(plan); }
Status cufftPlan2d(int* plan, int, int, int) { return new_plan(plan); }
Status cufftPlan3d(int* plan, int, int, int, int) { return new_plan(plan); }
Status cufftPlanMany(int* plan, int, int*, int*, int, int, int*, int, int, int, int) {
  return new_plan(plan);
}
Status cufftMakePlan1d(int, int, int, int, std::size_t* work) { return none(work); }
Status cufftMakePlan2d(int, int, int, int, std::size_t* work) { return none(work); }
Status cufftMakePlan3d(int, int, int, int, int, std::size_t* work) { return none(work); }
Status cufftMakePlanMany(int, int, int*, int*, int, int, int*, int, int, int, int,
                         std::size_t* work) {
  return none(work);
}
Status cufftMakePlanMany64(int, int, long long*, long long*, long long, long long, long long*,
                           long long, long long, int, long long, std::size_t* work) {
  return none(work);
}
Status cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int, long long*,
                           long long, long long, int, long long, std::size_t* work, int) {
  return none(work);
}
Status cufftGetSize(int, std::size_t* work) { return none(work); }
Status cufftGetVersion(int* version) {
  *version = (cuda_version() - 1) * 1000;
  return 0;
}

Status curandCreateGenerator(LibraryHandle** out, int) { return create(out); }
Status curandCreateGeneratorHost(LibraryHandle** out, int) { return create(out); }
Status curandDestroyGenerator(LibraryHandle* handle) { return destroy(handle); }

Status cusparseCreate(LibraryHandle** out) { return create(out); }
Status cusparseDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cusparseGetVersion(LibraryHandle*, int* version) {
  *version = 12000;
  return 0;
}
Status cusparseSetStream(LibraryHandle* handle, void* stream) {
  handle->stream = stream;
  return 0;
}
Status cusparseGetStream(LibraryHandle* handle, void** stream) {
  *stream = handle->stream;
  return 0;
}
Status cusparseSetPointerMode(LibraryHandle* handle, int mode) {
  handle->modes[0] = mode;
  return 0;
}
Status cusparseGetPointerMode(LibraryHandle* handle, int* mode) {
  *mode = handle->modes[0];
  return 0;
}
Status cusparseCreateMatDescr(LibraryHandle** out) { return create(out); }
Status cusparseDestroyMatDescr(LibraryHandle* handle) { return destroy(handle); }
Status cusparseCreateCsr(LibraryHandle** out, std::int64_t, std::int64_t, std::int64_t, void*,
                         void*, void*, int, int, int, int) {
  return create(out);
}
Status cusparseCreateCoo(LibraryHandle** out, std::int64_t, std::int64_t, std::int64_t, void*,
                         void*, void*, int, int, int) {
  return create(out);
}
Status cusparseCreateDnMat(LibraryHandle** out, std::int64_t, std::int64_t, std::int64_t, void*,
                           int, int) {
  return create(out);
}
Status cusparseCreateDnVec(LibraryHandle** out, std::int64_t, void*, int) { return create(out); }
Status cusparseDestroySpMat(LibraryHandle* handle) { return destroy(handle); }
Status cusparseDestroyDnMat(LibraryHandle* handle) { return destroy(handle); }
Status cusparseDestroyDnVec(LibraryHandle* handle) { return destroy(handle); }
Status cusparseSpMM_bufferSize(void*, int, int, void*, void*, void*, void*, void*, int, int,
                               std::size_t* size) {
  return none(size);
}
Status cusparseSpMV_bufferSize(void*, int, void*, void*, void*, void*, void*, int, int,
                               std::size_t* size) {
  return none(size);
}
const char* cusparseGetErrorString(Status status) { return status == 0 ? "success" : "failure"; }
const char* cusparseGetErrorName(Status status) { return cusparseGetErrorString(status); }

Status cusolverDnCreate(LibraryHandle** out) { return create(out); }
Status cusolverDnDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cusolverDnCreateParams(LibraryHandle** out) { return create(out); }
Status cusolverDnDestroyParams(LibraryHandle* handle) { return destroy(handle); }
Status cusolverSpCreate(LibraryHandle** out) { return create(out); }
Status cusolverSpDestroy(LibraryHandle* handle) { return destroy(handle); }
Status cusolverDnSetStream(LibraryHandle* handle, void* stream) {
  handle->stream = stream;
  return 0;
}
Status cusolverDnGetStream(LibraryHandle* handle, void** stream) {
  *stream = handle->stream;
  return 0;
}

Status cuptiGetVersion(std::uint32_t* version) {
  *version = 130000;
  return 0;
}
Status cuptiGetTimestamp(std::uint64_t* time) { return none(time); }
Status cuptiSubscribe(LibraryHandle** out, void*, void*) { return create(out); }
Status cuptiUnsubscribe(LibraryHandle* handle) { return destroy(handle); }
Status cuptiGetResultString(Status, const char** words) {
  *words = "";
  return 0;
}
Status cuptiActivityGetNextRecord(unsigned char*, std::size_t, void** record) {
  *record = nullptr;
  return 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED: there is none
}

}  // extern "C"
#pragma GCC visibility pop
