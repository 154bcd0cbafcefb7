// A stand-in for libcudart.so.13: the calls that allocators use, over the stand-in for
// libcuda.so.1. Like cudart, it adds a current device for each thread, primary contexts that are
// made at first use, a last error, and sizes of 0 that are no error. Its codes for these calls
// equal CUresult's.
#include "standin/cudart/cudart.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

using namespace emm::standin::cudart;

namespace {

using Event = void*;
using Pool = void*;

}  // namespace

extern "C" {
// Functions of the stand-in for libcuda.so.1.
Code cuInit(unsigned);
Code cuDriverGetVersion(int*);
Code cuGetErrorName(Code, const char**);
Code cuDeviceGetCount(int*);
Code cuDeviceGetAttribute(int*, int, int);
Code cuDeviceGetName(char*, int, int);
Code cuDeviceTotalMem_v2(std::size_t*, int);
Code cuDeviceCanAccessPeer(int*, int, int);
Code cuDevicePrimaryCtxRetain(void**, int);
Code cuDevicePrimaryCtxReset_v2(int);
Code cuCtxGetCurrent(void**);
Code cuCtxSetCurrent(void*);
Code cuCtxGetDevice(int*);
Code cuCtxSynchronize();
Code cuCtxEnablePeerAccess(void*, unsigned);
Code cuMemAlloc_v2(Address*, std::size_t);
Code cuMemFree_v2(Address);
Code cuMemAllocManaged(Address*, std::size_t, unsigned);
Code cuMemHostAlloc(void**, std::size_t, unsigned);
Code cuMemFreeHost(void*);
Code cuMemHostRegister_v2(void*, std::size_t, unsigned);
Code cuMemHostUnregister(void*);
Code cuMemHostGetDevicePointer_v2(Address*, void*, unsigned);
Code cuMemGetInfo_v2(std::size_t*, std::size_t*);
Code cuPointerGetAttribute(void*, int, Address);
Code cuMemcpyHtoD_v2(Address, const void*, std::size_t);
Code cuMemcpyDtoH_v2(void*, Address, std::size_t);
Code cuMemcpyDtoD_v2(Address, Address, std::size_t);
Code cuMemcpyHtoDAsync_v2(Address, const void*, std::size_t, Stream);
Code cuMemcpyDtoHAsync_v2(void*, Address, std::size_t, Stream);
Code cuMemcpyDtoDAsync_v2(Address, Address, std::size_t, Stream);
Code cuMemsetD8_v2(Address, unsigned char, std::size_t);
Code cuMemsetD8Async(Address, unsigned char, std::size_t, Stream);
Code cuStreamCreate(Stream*, unsigned);
Code cuStreamDestroy_v2(Stream);
Code cuStreamSynchronize(Stream);
Code cuStreamQuery(Stream);
Code cuStreamIsCapturing(Stream, int*);
Code cuStreamWaitEvent(Stream, Event, unsigned);
Code cuEventCreate(Event*, unsigned);
Code cuEventDestroy_v2(Event);
Code cuEventRecord(Event, Stream);
Code cuEventQuery(Event);
Code cuEventSynchronize(Event);
Code cuMemPoolCreate(Pool*, const void*);
Code cuMemPoolDestroy(Pool);
Code cuMemPoolTrimTo(Pool, std::size_t);
Code cuMemPoolSetAttribute(Pool, int, const void*);
Code cuMemPoolGetAttribute(Pool, int, void*);
Code cuDeviceGetDefaultMemPool(Pool*, int);
Code cuMemAllocAsync(Address*, std::size_t, Stream);
Code cuMemAllocFromPoolAsync(Address*, std::size_t, Pool, Stream);
Code cuMemFreeAsync(Address, Stream);
Code cuIpcGetMemHandle(void*, Address);
struct CudartIpcHandle {
  char bytes[64];
};
Code cuIpcOpenMemHandle_v2(Address*, CudartIpcHandle, unsigned);
Code cuIpcCloseMemHandle(Address);
}

namespace {

thread_local int device = 0;
thread_local Code last = kSuccess;

void* pointer(Address value) { return reinterpret_cast<void*>(value); }  // NOLINT

bool is_on_device(const void* ptr) {
  unsigned type = 0;
  return cuPointerGetAttribute(&type, 2, address(ptr)) == kSuccess && type == 2;
}

}  // namespace

namespace emm::standin::cudart {

Code conclude(Code code) {
  if (code != kSuccess && code != kNotReady) last = code;
  return code;
}

Code enter() {
  if (const auto code = cuInit(0); code != kSuccess) return code;
  void* context = nullptr;
  if (const auto code = cuCtxGetCurrent(&context); code != kSuccess || context != nullptr)
    return code;
  if (const auto code = cuDevicePrimaryCtxRetain(&context, device); code != kSuccess) return code;
  return cuCtxSetCurrent(context);
}

int kind_of(int kind, const void* to, const void* from) {
  if (kind != by_address) return kind;
  return (is_on_device(to) ? 1 : 0) | (is_on_device(from) ? 2 : 0);
}

}  // namespace emm::standin::cudart

#pragma GCC visibility push(default)
extern "C" {

// Errors and versions
Code cudaGetLastError() {
  const auto code = last;
  last = kSuccess;
  return code;
}
Code cudaPeekAtLastError() { return last; }
const char* cudaGetErrorName(Code code) {
  const char* name = "";
  cuGetErrorName(code, &name);
  return name;
}
const char* cudaGetErrorString(Code code) { return cudaGetErrorName(code); }
Code cudaRuntimeGetVersion(int* out) {
  *out = program_version;
  return kSuccess;
}
Code cudaDriverGetVersion(int* version) { return cuDriverGetVersion(version); }

// Devices
Code cudaGetDeviceCount(int* count) {
  if (const auto code = cuInit(0); code != kSuccess) return conclude(code);
  return conclude(cuDeviceGetCount(count));
}
Code cudaGetDevice(int* out) {
  void* context = nullptr;
  if (cuInit(0) == kSuccess && cuCtxGetCurrent(&context) == kSuccess && context != nullptr)
    return conclude(cuCtxGetDevice(out));
  *out = device;
  return kSuccess;
}
Code cudaSetDevice(int wanted) {
  int count = 0;
  if (const auto code = cudaGetDeviceCount(&count); code != kSuccess) return code;
  if (wanted < 0 || wanted >= count) return conclude(kInvalidDevice);
  device = wanted;
  void* context = nullptr;
  if (const auto code = cuDevicePrimaryCtxRetain(&context, wanted); code != kSuccess)
    return conclude(code);
  return conclude(cuCtxSetCurrent(context));
}
Code cudaDeviceGetAttribute(int* value, int attribute, int of) {
  if (const auto code = cuInit(0); code != kSuccess) return conclude(code);
  return conclude(cuDeviceGetAttribute(value, attribute, of));
}
Code cudaDeviceSynchronize() {
  return in_context([] { return cuCtxSynchronize(); });
}
Code cudaDeviceReset() {
  return in_context([] { return cuDevicePrimaryCtxReset_v2(device); });
}
Code cudaDeviceCanAccessPeer(int* can, int of, int peer) {
  return in_context([&] { return cuDeviceCanAccessPeer(can, of, peer); });
}
Code cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return in_context([&] {
    void* context = nullptr;
    const auto code = cuDevicePrimaryCtxRetain(&context, peer);
    return code != kSuccess ? code : cuCtxEnablePeerAccess(context, flags);
  });
}

// Memory
Code cudaMalloc(void** out, std::size_t size) {
  return in_context([&] {
    *out = nullptr;
    if (size == 0) return kSuccess;  // measured on an H200
    Address made = 0;
    const auto code = cuMemAlloc_v2(&made, size);
    *out = pointer(made);
    return code;
  });
}
Code cudaFree(void* ptr) {
  return in_context([&] { return cuMemFree_v2(address(ptr)); });
}
Code cudaMallocManaged(void** out, std::size_t size, unsigned flags) {
  return in_context([&] {
    Address made = 0;
    const auto code = cuMemAllocManaged(&made, size, flags);
    *out = pointer(made);
    return code;
  });
}
Code cudaHostAlloc(void** out, std::size_t size, unsigned flags) {
  return in_context([&] { return cuMemHostAlloc(out, size, flags); });
}
Code cudaMallocHost(void** out, std::size_t size) { return cudaHostAlloc(out, size, 0); }
Code cudaFreeHost(void* ptr) {
  return in_context([&] { return cuMemFreeHost(ptr); });
}
Code cudaHostRegister(void* ptr, std::size_t size, unsigned flags) {
  return in_context([&] { return cuMemHostRegister_v2(ptr, size, flags); });
}
Code cudaHostUnregister(void* ptr) {
  return in_context([&] { return cuMemHostUnregister(ptr); });
}
Code cudaHostGetDevicePointer(void** out, void* ptr, unsigned flags) {
  return in_context([&] {
    Address found = 0;
    const auto code = cuMemHostGetDevicePointer_v2(&found, ptr, flags);
    *out = pointer(found);
    return code;
  });
}
Code cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return in_context([&] { return cuMemGetInfo_v2(free, total); });
}
struct CudartPointerAttributes {
  int type;  // 0 unregistered, 1 host, 2 device, 3 managed
  int device;
  void* devicePointer;
  void* hostPointer;
};
struct CudartPointerAttributes13 {
  CudartPointerAttributes attributes;
  long reserved[8];
};
static Code get_attributes(CudartPointerAttributes* out, const void* ptr) {
  return in_context([&] {
    unsigned type = 0;
    *out = {};
    out->device = device;
    if (cuPointerGetAttribute(&type, 2, address(ptr)) != kSuccess) return kSuccess;
    out->type = static_cast<int>(type);
    out->devicePointer = const_cast<void*>(ptr);
    if (type == 1) out->hostPointer = const_cast<void*>(ptr);
    cuPointerGetAttribute(&out->device, 9, address(ptr));
    return kSuccess;
  });
}

Code cudaPointerGetAttributes(CudartPointerAttributes13* out, const void* ptr) {
  *out = {};
  return get_attributes(&out->attributes, ptr);
}
// Before CUDA 13 nothing was reserved behind it.
Code cudaPointerGetAttributes_of_12(CudartPointerAttributes* out, const void* ptr) {
  return get_attributes(out, ptr);
}
Code cudaPointerGetAttributes_of_11(CudartPointerAttributes* out, const void* ptr) {
  return get_attributes(out, ptr);
}

// Content
Code cudaMemcpy(void* to, const void* from, std::size_t size, int kind) {
  return in_context([&] {
    switch (kind_of(kind, to, from)) {
      case host_to_host:
        std::memmove(to, from, size);
        return kSuccess;
      case host_to_device:
        return cuMemcpyHtoD_v2(address(to), from, size);
      case device_to_host:
        return cuMemcpyDtoH_v2(to, address(from), size);
      case device_to_device:
        return cuMemcpyDtoD_v2(address(to), address(from), size);
      default:
        return kInvalidValue;
    }
  });
}
Code cudaMemcpyAsync(void* to, const void* from, std::size_t size, int kind, Stream stream) {
  return in_context([&] {
    switch (kind_of(kind, to, from)) {
      case host_to_host:
        std::memmove(to, from, size);
        return kSuccess;
      case host_to_device:
        return cuMemcpyHtoDAsync_v2(address(to), from, size, stream);
      case device_to_host:
        return cuMemcpyDtoHAsync_v2(to, address(from), size, stream);
      case device_to_device:
        return cuMemcpyDtoDAsync_v2(address(to), address(from), size, stream);
      default:
        return kInvalidValue;
    }
  });
}
Code cudaMemset(void* ptr, int value, std::size_t size) {
  return in_context(
      [&] { return cuMemsetD8_v2(address(ptr), static_cast<unsigned char>(value), size); });
}
Code cudaMemsetAsync(void* ptr, int value, std::size_t size, Stream stream) {
  return in_context([&] {
    return cuMemsetD8Async(address(ptr), static_cast<unsigned char>(value), size, stream);
  });
}

// Streams and events
Code cudaStreamCreateWithFlags(Stream* out, unsigned flags) {
  return in_context([&] { return cuStreamCreate(out, flags); });
}
Code cudaStreamCreate(Stream* out) { return cudaStreamCreateWithFlags(out, 0); }
Code cudaStreamCreateWithPriority(Stream* out, unsigned flags, int) {
  return cudaStreamCreateWithFlags(out, flags);
}
Code cudaStreamDestroy(Stream stream) {
  return in_context([&] { return cuStreamDestroy_v2(stream); });
}
Code cudaStreamSynchronize(Stream stream) {
  return in_context([&] { return cuStreamSynchronize(stream); });
}
Code cudaStreamQuery(Stream stream) {
  return in_context([&] { return cuStreamQuery(stream); });
}
Code cudaStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return in_context([&] { return cuStreamWaitEvent(stream, event, flags); });
}
Code cudaStreamIsCapturing(Stream stream, int* status) {
  return in_context([&] { return cuStreamIsCapturing(stream, status); });
}
Code cudaEventCreateWithFlags(Event* out, unsigned flags) {
  return in_context([&] { return cuEventCreate(out, flags); });
}
Code cudaEventCreate(Event* out) { return cudaEventCreateWithFlags(out, 0); }
Code cudaEventDestroy(Event event) {
  return in_context([&] { return cuEventDestroy_v2(event); });
}
Code cudaEventRecord(Event event, Stream stream) {
  return in_context([&] { return cuEventRecord(event, stream); });
}
Code cudaEventQuery(Event event) {
  return in_context([&] { return cuEventQuery(event); });
}
Code cudaEventSynchronize(Event event) {
  return in_context([&] { return cuEventSynchronize(event); });
}

// Stream-ordered memory
Code cudaMemPoolCreate(Pool* out, const void* props) {
  return in_context([&] { return cuMemPoolCreate(out, props); });
}
Code cudaMemPoolDestroy(Pool pool) {
  return in_context([&] { return cuMemPoolDestroy(pool); });
}
Code cudaMemPoolTrimTo(Pool pool, std::size_t keep) {
  return in_context([&] { return cuMemPoolTrimTo(pool, keep); });
}
Code cudaMemPoolSetAttribute(Pool pool, int attribute, void* value) {
  return in_context([&] { return cuMemPoolSetAttribute(pool, attribute, value); });
}
Code cudaMemPoolGetAttribute(Pool pool, int attribute, void* value) {
  return in_context([&] { return cuMemPoolGetAttribute(pool, attribute, value); });
}
Code cudaDeviceGetDefaultMemPool(Pool* out, int of) {
  return in_context([&] { return cuDeviceGetDefaultMemPool(out, of); });
}
Code cudaDeviceGetMemPool(Pool* out, int of) { return cudaDeviceGetDefaultMemPool(out, of); }
Code cudaMallocAsync(void** out, std::size_t size, Stream stream) {
  return in_context([&] {
    Address made = 0;
    const auto code = cuMemAllocAsync(&made, size, stream);
    *out = pointer(made);
    return code;
  });
}
Code cudaMallocFromPoolAsync(void** out, std::size_t size, Pool pool, Stream stream) {
  return in_context([&] {
    Address made = 0;
    const auto code = cuMemAllocFromPoolAsync(&made, size, pool, stream);
    *out = pointer(made);
    return code;
  });
}
Code cudaFreeAsync(void* ptr, Stream stream) {
  return in_context([&] { return cuMemFreeAsync(address(ptr), stream); });
}

// IPC
Code cudaIpcGetMemHandle(CudartIpcHandle* out, void* ptr) {
  return in_context([&] { return cuIpcGetMemHandle(out, address(ptr)); });
}
Code cudaIpcOpenMemHandle(void** out, CudartIpcHandle handle, unsigned flags) {
  return in_context([&] {
    Address opened = 0;
    const auto code = cuIpcOpenMemHandle_v2(&opened, handle, flags);
    *out = pointer(opened);
    return code;
  });
}
Code cudaIpcCloseMemHandle(void* ptr) {
  return in_context([&] { return cuIpcCloseMemHandle(address(ptr)); });
}

// A library with kernels registers them when it is loaded. The stand-in cannot launch them.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

}  // extern "C"
#pragma GCC visibility pop
