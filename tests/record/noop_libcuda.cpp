// A driver that does nothing, as fast as that can be done: what recording a call costs is measured
// before it. Addresses differ for each call. It has functions that the stand-in lacks, too: they
// show that these are recorded.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

/// What nothing else has: an address, or a handle.
std::uint64_t fresh() {
  static std::uint64_t next = std::uint64_t{1} << 32;
  return next += std::uint64_t{1} << 21;
}

// Contexts: handle 1 is the primary one, others are of the lowest number that no other has.
constexpr std::uint64_t kFirstContext = 0x1000;
constexpr int kContexts = 1024;
int context_devices[kContexts];  // from 1; 0: no context
thread_local std::uint64_t current_context = 1;

int create_context(std::uint64_t* out, int device) {
  int at = 0;
  while (at < kContexts && context_devices[at] != 0) ++at;
  if (at == kContexts) return 2;
  context_devices[at] = device + 1;
  current_context = *out = kFirstContext + static_cast<std::uint64_t>(at);
  return 0;
}
int destroy_context(std::uint64_t context) {
  if (context >= kFirstContext) context_devices[context - kFirstContext] = 0;
  if (context == current_context) current_context = 1;
  return 0;
}

/// A version of cuCtxCreate that is younger than the recorder, and has no symbol.
int younger_context(std::uint64_t* out) { return *out = fresh(), 0; }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
using Code = int;
// A driver loads what this names; before the forwarding library none is to be seen.
int cuInit(unsigned) { return std::getenv("CUDA_INJECTION64_PATH") != nullptr ? 999 : 0; }
Code cuDriverGetVersion(int* version) { return *version = 13000, 0; }
Code cuDeviceGetCount(int* count) { return *count = 2, 0; }
Code cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
Code cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "no-op", static_cast<std::size_t>(size)), 0;
}
Code cuDeviceTotalMem_v2(std::size_t* total, int) { return *total = std::size_t{1} << 40, 0; }
Code cuDevicePrimaryCtxRetain(std::uint64_t* context, int) { return *context = 1, 0; }
Code cuCtxSetCurrent(std::uint64_t context) { return current_context = context, 0; }
Code cuCtxGetCurrent(std::uint64_t* context) { return *context = current_context, 0; }
Code cuCtxGetDevice(int* device) {
  const bool is_primary = current_context < kFirstContext;
  return *device = is_primary ? 0 : context_devices[current_context - kFirstContext] - 1, 0;
}
Code cuCtxCreate(std::uint64_t* out, unsigned, int device) { return create_context(out, device); }
Code cuCtxCreate_v2(std::uint64_t* out, unsigned, int device) {
  return create_context(out, device);
}
Code cuCtxDestroy(std::uint64_t context) { return destroy_context(context); }
Code cuCtxDestroy_v2(std::uint64_t context) { return destroy_context(context); }
Code cuCtxDetach(std::uint64_t context) { return destroy_context(context); }
Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return *free = *total = std::size_t{1} << 40, 0;
}
Code cuMemAllocAsync(std::uint64_t* out, std::size_t size, std::uint64_t) {
  static thread_local std::uint64_t next = std::uint64_t{1} << 40;
  return *out = next += size, 0;
}
Code cuMemFreeAsync(std::uint64_t, std::uint64_t) { return 0; }
// A function that gives something to its first parameter, and one that gives nothing. Which
// parameters follow is no matter to a caller of the C convention.
#define EMM_GIVES(symbol) \
  Code symbol(std::uint64_t* out) { return *out = fresh(), 0; }
#define EMM_ANSWERS(symbol) \
  Code symbol() { return 0; }
EMM_GIVES(cuMemAlloc_v2)
Code cuMemAllocPitch_v2(std::uint64_t* out, std::size_t* pitch, std::size_t width) {
  *pitch = (width + 511) / 512 * 512;
  return *out = fresh(), 0;
}
EMM_GIVES(cuArrayCreate_v2)
EMM_GIVES(cuArray3DCreate_v2)
EMM_GIVES(cuMipmappedArrayCreate)
EMM_ANSWERS(cuArrayDestroy)
EMM_ANSWERS(cuMipmappedArrayDestroy)
EMM_ANSWERS(cuMemFree_v2)
EMM_GIVES(cuMemAddressReserve)
EMM_ANSWERS(cuMemAddressFree)
std::uint64_t physical = 0;
Code cuMemCreate(std::uint64_t* out) { return *out = physical = fresh(), 0; }
Code cuMemRetainAllocationHandle(std::uint64_t* out) { return *out = physical, 0; }
EMM_ANSWERS(cuMemRelease)
EMM_ANSWERS(cuMemMap)
EMM_ANSWERS(cuMemUnmap)
EMM_ANSWERS(cuMemSetAccess)
EMM_ANSWERS(cuMemExportToShareableHandle)
EMM_GIVES(cuMemImportFromShareableHandle)
EMM_ANSWERS(cuMemGetHandleForAddressRange)
EMM_ANSWERS(cuMemMapArrayAsync)
EMM_GIVES(cuMulticastCreate)
EMM_ANSWERS(cuMulticastAddDevice)
EMM_ANSWERS(cuMulticastBindMem)
EMM_ANSWERS(cuMulticastBindAddr)
EMM_ANSWERS(cuMulticastUnbind)
EMM_ANSWERS(cuIpcGetEventHandle)
EMM_GIVES(cuIpcOpenEventHandle)
EMM_GIVES(cuEventCreate)
EMM_ANSWERS(cuEventDestroy_v2)
EMM_ANSWERS(cuStreamWaitEvent)
EMM_GIVES(cuMemPoolCreate)
EMM_GIVES(cuMemAllocFromPoolAsync)
EMM_ANSWERS(cuMemPoolDestroy)
EMM_ANSWERS(cuMemPoolSetAccess)
EMM_ANSWERS(cuMemPoolSetAttribute)
EMM_ANSWERS(cuMemPoolTrimTo)
Code cuMemGetDefaultMemPool(std::uint64_t* out) { return *out = 0x900000, 0; }
Code cuMemGetMemPool(std::uint64_t* out) { return *out = 0x900000, 0; }
EMM_ANSWERS(cuMemSetMemPool)
EMM_ANSWERS(cuDeviceSetMemPool)
EMM_ANSWERS(cuMemPoolExportToShareableHandle)
EMM_GIVES(cuMemPoolImportFromShareableHandle)
EMM_ANSWERS(cuMemPoolExportPointer)
EMM_GIVES(cuMemPoolImportPointer)
EMM_GIVES(cuImportExternalMemory)
EMM_GIVES(cuExternalMemoryGetMappedBuffer)
EMM_GIVES(cuExternalMemoryGetMappedMipmappedArray)
EMM_ANSWERS(cuDestroyExternalMemory)
EMM_GIVES(cuGreenCtxCreate)
EMM_ANSWERS(cuGreenCtxDestroy)
EMM_GIVES(cuGreenCtxStreamCreate)
EMM_ANSWERS(cuStreamDestroy_v2)
EMM_ANSWERS(cuCtxSynchronize_v2)
EMM_ANSWERS(cuStreamWaitValue32_v2)
EMM_ANSWERS(cuStreamWaitValue64_v2)
EMM_ANSWERS(cuStreamBeginCaptureToGraph)
Code cuStreamEndCapture(std::uint64_t, std::uint64_t* graph) { return *graph = 0x800000, 0; }
EMM_GIVES(cuGraphAddNode)
EMM_GIVES(cuGraphAddNode_v2)
EMM_ANSWERS(cuDeviceGraphMemTrim)
EMM_GIVES(cuModuleLoadData)
EMM_ANSWERS(cuModuleUnload)
EMM_GIVES(cuLibraryLoadFromFile)
EMM_ANSWERS(cuLibraryUnload)

Code cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t, int*) {
  if (version >= 14000 && std::strcmp(symbol, "cuCtxCreate") == 0)
    return *function = reinterpret_cast<void*>(&younger_context), 0;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&cuInit), &info);
  void* const self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  char name[128];
  std::strncpy(name, symbol, sizeof name - 4);
  std::strcat(name, "_v2");
  *function = dlsym(self, name);
  if (*function == nullptr) *function = dlsym(self, symbol);
  return *function != nullptr ? 0 : 500;
}
}
#pragma GCC visibility pop
