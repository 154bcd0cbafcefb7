// cuFFT, cuRAND, cuSPARSE, cuSOLVER and CUPTI: handles, descriptors, and the sizes of workspaces.
// A workspace is said to be empty, which is an assumption: what a card would take is not known.
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "standin/cudart/cudart.hpp"
#include "standin/libraries/handles.hpp"

using namespace emm::standin;

namespace {

std::atomic<int> plans{0};

constexpr Status kAllocFailed = 2;  // CUFFT_ALLOC_FAILED, CUSOLVER_STATUS_ALLOC_FAILED

/// The first plan takes what the library keeps. One that was only created takes nothing yet.
Status plan_made() {
  void* holder = nullptr;
  (void)cudart::enter();  // without a device there is a plan all the same
  return emm_standin_take_for_library(fft_plan, &holder) == 0 ? 0 : kAllocFailed;
}
Status new_plan(int* plan) {
  *plan = ++plans;
  return plan_made();
}
Status made_without_work(std::size_t* work) {
  if (work != nullptr) *work = 0;
  return plan_made();
}
template <class Number>
Status none(Number* size) {
  if (size != nullptr) *size = 0;
  return 0;
}

/// Writes 0 through `count` pointers, the first of which is the argument `at`. In x86-64's calls
/// all arguments of these functions, integers and pointers, take eight bytes each.
template <class Number>
Status no_work(va_list arguments, int at, int count) {
  for (int i = 1; i < at; ++i) (void)va_arg(arguments, std::uint64_t);
  for (int i = 0; i < count; ++i) *va_arg(arguments, Number*) = 0;
  return 0;
}

}  // namespace

#define EMM_WORK(name, at, number, count)                          \
  Status cusolverDn##name##_bufferSize(LibraryHandle* handle...) { \
    va_list arguments;                                             \
    va_start(arguments, handle);                                   \
    const auto status = no_work<number>(arguments, at, count);     \
    va_end(arguments);                                             \
    return status;                                                 \
  }
#define EMM_WORK_OF_2_AND_2(real, complex, at) \
  EMM_WORK(S##real, at, int, 1)                \
  EMM_WORK(D##real, at, int, 1)                \
  EMM_WORK(C##complex, at, int, 1)             \
  EMM_WORK(Z##complex, at, int, 1)
#define EMM_WORK_OF_4(name, at) EMM_WORK_OF_2_AND_2(name, name, at)

#pragma GCC visibility push(default)
extern "C" {

Status cufftCreate(int* plan) {
  *plan = ++plans;
  return 0;
}
Status cufftPlan1d(int* plan, int, int, int) { return new_plan(plan); }
Status cufftPlan2d(int* plan, int, int, int) { return new_plan(plan); }
Status cufftPlan3d(int* plan, int, int, int, int) { return new_plan(plan); }
Status cufftPlanMany(int* plan, int, int*, int*, int, int, int*, int, int, int, int) {
  return new_plan(plan);
}
Status cufftMakePlan1d(int, int, int, int, std::size_t* work) { return made_without_work(work); }
Status cufftMakePlan2d(int, int, int, int, std::size_t* work) { return made_without_work(work); }
Status cufftMakePlan3d(int, int, int, int, int, std::size_t* work) {
  return made_without_work(work);
}
Status cufftMakePlanMany(int, int, int*, int*, int, int, int*, int, int, int, int,
                         std::size_t* work) {
  return made_without_work(work);
}
Status cufftMakePlanMany64(int, int, long long*, long long*, long long, long long, long long*,
                           long long, long long, int, long long, std::size_t* work) {
  return made_without_work(work);
}
Status cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, int, long long*,
                           long long, long long, int, long long, std::size_t* work, int) {
  return made_without_work(work);
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

Status cusolverDnCreate(LibraryHandle** out) {
  (void)cudart::enter();
  return create(out, solver_handle, kAllocFailed);
}
Status cusolverDnDestroy(LibraryHandle* handle) { return destroy(handle, solver_handle); }
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

// The sizes of cuSOLVER's workspaces, and which argument each is written through, from 0.
EMM_WORK_OF_4(potrf, 5)
EMM_WORK_OF_4(potri, 5)
EMM_WORK_OF_4(getrf, 5)
EMM_WORK_OF_4(geqrf, 5)
EMM_WORK_OF_4(sytrf, 4)
EMM_WORK_OF_4(gebrd, 3)
EMM_WORK_OF_4(gesvd, 3)
EMM_WORK_OF_4(gesvdj, 12)
EMM_WORK_OF_4(gesvdjBatched, 11)
EMM_WORK_OF_4(gesvdaStridedBatched, 16)
EMM_WORK_OF_2_AND_2(orgqr, ungqr, 7)
EMM_WORK_OF_2_AND_2(ormqr, unmqr, 11)
EMM_WORK_OF_2_AND_2(syevd, heevd, 7)
EMM_WORK_OF_2_AND_2(syevj, heevj, 7)
EMM_WORK_OF_2_AND_2(syevjBatched, heevjBatched, 7)
EMM_WORK(Xpotrf, 8, std::size_t, 2)  // on the device, and behind it on the host
EMM_WORK(Xgetrf, 8, std::size_t, 2)
EMM_WORK(Xgeqrf, 10, std::size_t, 2)
EMM_WORK(Xsyevd, 11, std::size_t, 2)
EMM_WORK(XsyevBatched, 11, std::size_t, 2)
EMM_WORK(Xsytrs, 11, std::size_t, 2)
EMM_WORK(Xgeev, 17, std::size_t, 2)
EMM_WORK(Xgesvd, 18, std::size_t, 2)
EMM_WORK(Xgesvdp, 18, std::size_t, 2)
EMM_WORK(Xgesvdr, 21, std::size_t, 2)
EMM_WORK(Xtrtri, 7, std::size_t, 2)

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
