// A driver that does nothing, as fast as that can be done: what recording a call costs is measured
// before it. Addresses differ for each call.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#pragma GCC visibility push(default)
extern "C" {
using Code = int;
// A driver loads what this names; before the forwarding library none is to be seen.
int cuInit(unsigned) { return std::getenv("CUDA_INJECTION64_PATH") != nullptr ? 999 : 0; }
Code cuDriverGetVersion(int* version) { return *version = 13000, 0; }
Code cuDeviceGetCount(int* count) { return *count = 1, 0; }
Code cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
Code cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "no-op", static_cast<std::size_t>(size)), 0;
}
Code cuDeviceTotalMem_v2(std::size_t* total, int) { return *total = std::size_t{1} << 40, 0; }
Code cuDevicePrimaryCtxRetain(std::uint64_t* context, int) { return *context = 1, 0; }
Code cuCtxSetCurrent(std::uint64_t) { return 0; }
Code cuCtxGetCurrent(std::uint64_t* context) { return *context = 1, 0; }
Code cuCtxGetDevice(int* device) { return *device = 0, 0; }
Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return *free = *total = std::size_t{1} << 40, 0;
}
Code cuMemAllocAsync(std::uint64_t* out, std::size_t size, std::uint64_t) {
  static thread_local std::uint64_t next = std::uint64_t{1} << 40;
  return *out = next += size, 0;
}
Code cuMemFreeAsync(std::uint64_t, std::uint64_t) { return 0; }
Code cuGetProcAddress_v2(const char* symbol, void** function, int, std::uint64_t, int*) {
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
