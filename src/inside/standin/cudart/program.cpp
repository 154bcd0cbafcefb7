// The part of cudart that whole programs use besides allocators: what a card is, kernels, which are
// skipped, captures, and copies of other shapes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "standin/cudart/cudart.hpp"

using namespace emm::standin::cudart;

namespace {
using Handle = void*;
}  // namespace

extern "C" {
Code cuInit(unsigned);
Code cuDeviceGetCount(int*);
Code cuDeviceGetAttribute(int*, int, int);
Code cuDeviceGetName(char*, int, int);
Code cuDeviceGetUuid(unsigned char*, int);
Code cuDeviceTotalMem_v2(std::size_t*, int);
Code cuDeviceGetByPCIBusId(int*, const char*);
Code cuDeviceCanAccessPeer(int*, int, int);
Code cuCtxGetDevice(int*);
Code cuDevicePrimaryCtxRetain(void**, int);
Code cuCtxDisablePeerAccess(void*);
Code cuGetProcAddress_v2(const char*, void**, int, std::uint64_t, int*);
Code cuGetExportTable(const void**, const void*);
Code cuMemAlloc_v2(Address*, std::size_t);
Code cuMemHostGetFlags(unsigned*, void*);
Code cuMemcpyDtoDAsync_v2(Address, Address, std::size_t, Stream);
Code cuMemsetD8Async(Address, unsigned char, std::size_t, Stream);
Code cuLaunchHostFunc(Stream, void (*)(void*), void*);
Code cuStreamAddCallback(Stream, void (*)(Handle, Code, void*), void*, unsigned);
Code cuStreamBeginCapture_v2(Stream, int);
Code cuStreamEndCapture(Stream, Handle*);
Code cuStreamIsCapturing(Stream, int*);
Code cuThreadExchangeStreamCaptureMode(int*);
Code cuGraphInstantiateWithFlags(Handle*, Handle, unsigned long long);
Code cuGraphLaunch(Handle, Stream);
Code cuGraphGetNodes(Handle, Handle*, std::size_t*);
Code cuGraphExecDestroy(Handle);
Code cuGraphDestroy(Handle);
Code cuEventElapsedTime(float*, Handle, Handle);
Code cudaGetDevice(int*);
Code cudaEventRecord(Handle, Stream);
Code cudaMemcpyAsync(void*, const void*, std::size_t, int, Stream);
Code emm_standin_skip_kernel();
}

namespace {

int attribute(int number, int of) {
  int value = 0;
  (void)cuDeviceGetAttribute(&value, number, of);
  return value;
}

/// Writes the members of a structure one after another, each at a multiple of its size.
class Members {
 public:
  explicit Members(void* to) noexcept : to_(static_cast<std::byte*>(to)) {}
  template <class T>
  Members& add(T value) noexcept {
    at_ = (at_ + sizeof value - 1) / sizeof value * sizeof value;
    std::memcpy(to_ + at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  Members& bytes(const void* from, std::size_t size) noexcept {
    std::memcpy(to_ + at_, from, size);
    at_ += size;
    return *this;
  }
  /// Integers: attributes of the device.
  template <class... Numbers>
  Members& ints(int of, Numbers... numbers) noexcept {
    (add(numbers < 0 ? 0 : attribute(numbers, of)), ...);
    return *this;
  }
  Members& size(int of, int number) noexcept {
    return add(static_cast<std::size_t>(attribute(number, of)));
  }

 private:
  std::byte* to_;
  std::size_t at_ = 0;
};

/// Which members a version of cudaDeviceProp has. CUDA 13 took some out.
enum class Layout { cuda11, cuda12, cuda13 };
constexpr int kZero = -1;  // in a list of attributes: a member without one, which is 0

void write_properties(void* out, int of, Layout layout) {
  const bool old = layout != Layout::cuda13;
  char name[256] = {};
  unsigned char uuid[16] = {};
  const char luid[8] = {};
  std::size_t total = 0;
  (void)cuDeviceGetName(name, sizeof name, of);
  (void)cuDeviceGetUuid(uuid, of);
  (void)cuDeviceTotalMem_v2(&total, of);
  Members to(out);
  to.bytes(name, sizeof name).bytes(uuid, sizeof uuid).bytes(luid, sizeof luid).add(0u);
  to.add(total).size(of, 8).ints(of, 12, 10).size(of, 11);
  to.ints(of, 1, 2, 3, 4, 5, 6, 7);
  if (old) to.ints(of, 13);  // clockRate
  to.size(of, 9).ints(of, 75, 76).size(of, 14).size(of, 51);
  if (old) to.ints(of, 15);  // deviceOverlap
  to.ints(of, 16);
  if (old) to.ints(of, 17);  // kernelExecTimeoutEnabled
  to.ints(of, 18, 19);
  if (old) to.ints(of, 20);  // computeMode
  // textures: 1D, mipmapped and linear; 2D; gathered; 3D; cubes; layers
  to.ints(of, 21, 77);
  if (old) to.ints(of, 69);
  to.ints(of, 22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27, 28, 29,
          53, 54);
  to.ints(of, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68);  // surfaces
  to.size(of, 30).ints(of, 31, 32, 33, 34, 50, 35, 40, 41);
  if (old) to.ints(of, 36);  // memoryClockRate
  to.ints(of, 37, 38, 108, 39, 78, 79, 80).size(of, 81).ints(of, 82, 83, 84, 85, 86);
  if (old) to.ints(of, 87);  // singleToDoublePrecisionPerfRatio
  to.ints(of, 88, 89, 90, 91, 95);
  if (old) to.ints(of, 96);  // cooperativeMultiDeviceLaunch
  to.size(of, 97).ints(of, 100, 101, 106, 109).size(of, 111);
  if (layout == Layout::cuda11) return;
  to.ints(of, 99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129);
  if (layout == Layout::cuda13) to.ints(of, kZero, kZero, 133, kZero, kZero, kZero, kZero);
  // Ints at the end of cudaDeviceProp, in cuda_runtime_api.h.
  constexpr int kReservedOf12 = 63, kReservedOf13 = 56;
  for (int i = 0; i < (old ? kReservedOf12 : kReservedOf13); ++i) to.add(0);
}

Code properties(void* out, int of, Layout layout) {
  int count = 0;
  if (const auto code = cuInit(0); code != kSuccess) return conclude(code);
  (void)cuDeviceGetCount(&count);
  if (of < 0 || of >= count) return conclude(kInvalidDevice);
  write_properties(out, of, layout);
  return kSuccess;
}

Code entry_point(const char* symbol, void** function, int version, std::uint64_t flags,
                 int* status) {
  int found = 0;
  const auto code = cuGetProcAddress_v2(symbol, function, version, flags, &found);
  if (status == nullptr) return conclude(code);
  *status = found;
  return kSuccess;
}

Code copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t width, std::size_t height, int kind, Stream stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const auto code = cudaMemcpyAsync(static_cast<std::byte*>(to) + row * to_pitch,
                                      static_cast<const std::byte*>(from) + row * from_pitch, width,
                                      kind, stream);
    if (code != kSuccess) return code;
  }
  return kSuccess;
}

Code skip() {
  return in_context([] { return emm_standin_skip_kernel(); });
}

Code capture_state(Stream stream, int* status, unsigned long long* id, Handle* graph,
                   std::size_t* count) {
  return in_context([&] {
    const auto code = cuStreamIsCapturing(stream, status);
    if (id != nullptr) *id = *status != 0 ? address(stream) : 0;
    if (graph != nullptr) *graph = nullptr;
    if (count != nullptr) *count = 0;
    return code;
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// What a card is
Code cudaGetDeviceProperties(void* out, int of) { return properties(out, of, Layout::cuda13); }
Code cudaGetDeviceProperties_of_12(void* out, int of) {
  return properties(out, of, Layout::cuda11);  // under its old name it kept its old structure
}
Code cudaGetDeviceProperties_of_11(void* out, int of) {
  return properties(out, of, Layout::cuda11);
}
Code cudaGetDeviceProperties_v2(void* out, int of) { return properties(out, of, Layout::cuda12); }
Code cudaDeviceGetPCIBusId(char* out, int size, int of) {
  std::snprintf(out, static_cast<std::size_t>(std::max(size, 0)), "%04x:%02x:%02x.0",
                static_cast<unsigned>(attribute(50, of)), static_cast<unsigned>(attribute(33, of)),
                static_cast<unsigned>(attribute(34, of)));
  return kSuccess;
}
Code cudaDeviceGetByPCIBusId(int* device, const char* id) {
  if (const auto code = cuInit(0); code != kSuccess) return conclude(code);
  return conclude(cuDeviceGetByPCIBusId(device, id));
}
Code cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  // Like most calls of the runtime, it makes the device's context current.
  return in_context([&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return kSuccess;
  });
}
Code cudaDeviceGetLimit(std::size_t* value, int) {
  *value = 0;
  return kSuccess;
}
Code cudaDeviceGetP2PAttribute(int* value, int number, int of, int peer) {
  constexpr int kAccess = 2;  // cudaDevP2PAttrAccessSupported
  *value = 0;
  return number == kAccess ? conclude(cuDeviceCanAccessPeer(value, of, peer)) : kSuccess;
}
Code cudaDeviceDisablePeerAccess(int peer) {
  return in_context([&] {
    void* context = nullptr;
    const auto code = cuDevicePrimaryCtxRetain(&context, peer);
    return code != kSuccess ? code : cuCtxDisablePeerAccess(context);
  });
}
Code cudaInitDevice(int, unsigned, unsigned) { return conclude(cuInit(0)); }
Code cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return kSuccess;
}
Code cudaChooseDevice(int* device, const void*) {
  *device = 0;
  return conclude(cuInit(0));
}
Code cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                             int* status) {
  return entry_point(symbol, function, 13000, flags, status);
}
Code cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                      unsigned long long flags, int* status) {
  return entry_point(symbol, function, static_cast<int>(version), flags, status);
}
Code cudaGetExportTable(const void** table, const void* id) { return cuGetExportTable(table, id); }

// Kernels
int __cudaPushCallConfiguration(...) {
  (void)conclude(emm_standin_skip_kernel());  // a failure is the last error
  return 1;                                   // <<<>>> then leaves out the launch
}
Code __cudaPopCallConfiguration(void*, void*, std::size_t*, void*) { return kSuccess; }
Code cudaLaunchKernel(...) { return skip(); }
Code cudaLaunchKernelExC(...) { return skip(); }
Code cudaLaunchCooperativeKernel(...) { return skip(); }
Code __cudaLaunchKernel(...) { return skip(); }
Code cudaFuncGetAttributes(void* out, const void*) {
  Members(out)
      .add(std::size_t{0})  // sharedSizeBytes
      .add(std::size_t{0})  // constSizeBytes
      .add(std::size_t{0})  // localSizeBytes
      .add(1024)            // maxThreadsPerBlock
      .add(32)              // numRegs
      .add(attribute(75, 0) * 10 + attribute(76, 0))
      .add(attribute(75, 0) * 10 + attribute(76, 0))
      .add(0)                 // cacheModeCA
      .add(attribute(97, 0))  // maxDynamicSharedSizeBytes
      .add(0);                // preferredShmemCarveout
  return kSuccess;
}
Code cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                   std::size_t) {
  *blocks = std::max(1, attribute(39, 0) / std::max(threads, 32));
  return kSuccess;
}
Code cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                            int threads, std::size_t shared,
                                                            unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
Code cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* size, const void*, int, int) {
  *size = static_cast<std::size_t>(attribute(8, 0));
  return kSuccess;
}
Code cudaOccupancyMaxActiveClusters(int* clusters, const void*, const void*) {
  *clusters = 1;
  return kSuccess;
}
// A symbol of the device's memory has no address here: its kernels do not run.
Code cudaGetSymbolAddress(void** out, const void*) {
  *out = nullptr;
  return conclude(13);  // cudaErrorInvalidSymbol
}

// Streams, events and captures
Code cudaStreamGetPriority(Stream, int* priority) {
  *priority = 0;
  return kSuccess;
}
Code cudaStreamGetFlags(Stream, unsigned* flags) {
  *flags = 0;
  return kSuccess;
}
Code cudaStreamGetId(Stream stream, unsigned long long* id) {
  *id = address(stream);
  return kSuccess;
}
Code cudaStreamGetDevice(Stream, int* device) { return cudaGetDevice(device); }
Code cudaStreamAddCallback(Stream stream, void (*call)(Handle, Code, void*), void* argument,
                           unsigned flags) {
  return in_context([&] { return cuStreamAddCallback(stream, call, argument, flags); });
}
Code cudaLaunchHostFunc(Stream stream, void (*call)(void*), void* argument) {
  return in_context([&] { return cuLaunchHostFunc(stream, call, argument); });
}
Code cudaEventRecordWithFlags(Handle event, Stream stream, unsigned) {
  return cudaEventRecord(event, stream);
}
Code cudaEventElapsedTime(float* ms, Handle from, Handle to) {
  return in_context([&] { return cuEventElapsedTime(ms, from, to); });
}
Code cudaEventElapsedTime_v2(float* ms, Handle from, Handle to) {
  return cudaEventElapsedTime(ms, from, to);
}
Code cudaThreadExchangeStreamCaptureMode(int* mode) {
  return in_context([&] { return cuThreadExchangeStreamCaptureMode(mode); });
}
Code cudaStreamBeginCapture(Stream stream, int mode) {
  return in_context([&] { return cuStreamBeginCapture_v2(stream, mode); });
}
Code cudaStreamEndCapture(Stream stream, Handle* graph) {
  return in_context([&] { return cuStreamEndCapture(stream, graph); });
}
Code cudaStreamGetCaptureInfo(Stream stream, int* status, unsigned long long* id, Handle* graph,
                              const Handle**, const void**, std::size_t* count) {
  return capture_state(stream, status, id, graph, count);
}
Code cudaStreamGetCaptureInfo_v3(Stream stream, int* status, unsigned long long* id, Handle* graph,
                                 const Handle**, const void**, std::size_t* count) {
  return capture_state(stream, status, id, graph, count);
}
Code cudaStreamGetCaptureInfo_v2(Stream stream, int* status, unsigned long long* id, Handle* graph,
                                 const Handle**, std::size_t* count) {
  return capture_state(stream, status, id, graph, count);
}
Code cudaStreamGetCaptureInfo_of_12(Stream stream, int* status, unsigned long long* id) {
  return capture_state(stream, status, id, nullptr, nullptr);
}
Code cudaStreamGetCaptureInfo_of_11(Stream stream, int* status, unsigned long long* id) {
  return capture_state(stream, status, id, nullptr, nullptr);
}
Code cudaGraphInstantiate(Handle* out, Handle graph, unsigned long long flags) {
  return in_context([&] { return cuGraphInstantiateWithFlags(out, graph, flags); });
}
Code cudaGraphInstantiate_of_11(Handle* out, Handle graph, Handle*, char*, std::size_t) {
  return cudaGraphInstantiate(out, graph, 0);
}
Code cudaGraphInstantiateWithFlags(Handle* out, Handle graph, unsigned long long flags) {
  return cudaGraphInstantiate(out, graph, flags);
}
Code cudaGraphLaunch(Handle graph, Stream stream) {
  return in_context([&] { return cuGraphLaunch(graph, stream); });
}
Code cudaGraphExecDestroy(Handle graph) {
  return in_context([&] { return cuGraphExecDestroy(graph); });
}
Code cudaGraphDestroy(Handle graph) {
  return in_context([&] { return cuGraphDestroy(graph); });
}
Code cudaGraphGetNodes(Handle graph, Handle* nodes, std::size_t* count) {
  return in_context([&] { return cuGraphGetNodes(graph, nodes, count); });
}

// Memory of other shapes
Code cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t height) {
  return in_context([&] {
    constexpr std::size_t kStep = 512;  // bytes: an H200's CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT
    *pitch = (width + kStep - 1) / kStep * kStep;
    Address made = 0;
    *out = nullptr;
    if (*pitch * height == 0) return kSuccess;
    const auto code = cuMemAlloc_v2(&made, *pitch * height);
    *out = reinterpret_cast<void*>(made);  // NOLINT
    return code;
  });
}
Code cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                  std::size_t width, std::size_t height, int kind) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
Code cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                       std::size_t width, std::size_t height, int kind, Stream stream) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream);
}
Code cudaMemset2DAsync(void* ptr, std::size_t pitch, int value, std::size_t width,
                       std::size_t height, Stream stream) {
  return in_context([&] {
    for (std::size_t row = 0; row < height; ++row) {
      const auto code = cuMemsetD8Async(address(ptr) + row * pitch,
                                        static_cast<unsigned char>(value), width, stream);
      if (code != kSuccess) return code;
    }
    return kSuccess;
  });
}
Code cudaMemset2D(void* ptr, std::size_t pitch, int value, std::size_t width, std::size_t height) {
  return cudaMemset2DAsync(ptr, pitch, value, width, height, nullptr);
}
Code cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t size, Stream stream) {
  return in_context([&] { return cuMemcpyDtoDAsync_v2(address(to), address(from), size, stream); });
}
Code cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t size) {
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, size, nullptr);
}
Code cudaHostGetFlags(unsigned* flags, void* ptr) {
  return in_context([&] { return cuMemHostGetFlags(flags, ptr); });
}

}  // extern "C"
#pragma GCC visibility pop
