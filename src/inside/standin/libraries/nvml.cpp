// libnvidia-ml.so.1 for programs without a GPU: the devices, their memory, and the process itself.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
int cuInit(unsigned);
int cuDeviceGetCount(int*);
int cuDeviceGetName(char*, int, int);
int cuDeviceGetAttribute(int*, int, int);
int cuDeviceGetUuid(unsigned char*, int);
int cuDeviceTotalMem_v2(std::size_t*, int);
int cuDeviceGetByPCIBusId(int*, const char*);
int cuDevicePrimaryCtxGetState(int, unsigned*, int*);
int cuDriverGetVersion(int*);
/// What this process and the context hold of a device, without a context of the caller's.
std::uint64_t emm_standin_used_bytes(int);
/// Between the two, all devices are seen, whatever CUDA_VISIBLE_DEVICES says.
void emm_standin_see_all(bool begins);
}

namespace {

using Return = int;
// NvmlReturn_t.
constexpr Return kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6,
                 kInsufficientSize = 7, kUnknown = 999;

/// A device's handle is its number, and 1, so that none is null.
using Device = std::uintptr_t;
int ordinal(Device device) { return static_cast<int>(device) - 1; }

/// Each function sees the machine as NVML does.
struct AllDevices {
  AllDevices() { emm_standin_see_all(true); }
  AllDevices(const AllDevices&) = delete;
  AllDevices& operator=(const AllDevices&) = delete;
  ~AllDevices() { emm_standin_see_all(false); }
};

Return started(int code) { return code == 0 ? kSuccess : kUnknown; }

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Pci {
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
struct ProcessInfoV1 {
  unsigned process;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned process;
  unsigned long long used;
  unsigned instance, compute_instance;
};

Return memory_of(Device device, Memory& out) {
  const AllDevices all;
  std::size_t total = 0;
  if (cuDeviceTotalMem_v2(&total, ordinal(device)) != 0) return kInvalidArgument;
  out.total = total;
  out.used = emm_standin_used_bytes(ordinal(device));
  out.free = total - out.used;
  return kSuccess;
}

int attribute(int number, Device device) {
  const AllDevices all;
  int value = 0;
  (void)cuDeviceGetAttribute(&value, number, ordinal(device));
  return value;
}

/// The processes of a device: this one alone is known here.
template <class Info>
Return itself(Device device, unsigned* count, Info* out) {
  const AllDevices all;
  const bool fits = *count >= 1;
  *count = 1;
  if (!fits) return kInsufficientSize;
  std::memset(out, 0, sizeof *out);
  out->process = static_cast<unsigned>(getpid());
  out->used = emm_standin_used_bytes(ordinal(device));
  return kSuccess;
}

void write(char* out, unsigned size, const char* words) { std::snprintf(out, size, "%s", words); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Return nvmlInit_v2() {
  const AllDevices all;
  return started(cuInit(0));
}
Return nvmlInit() { return nvmlInit_v2(); }
Return nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
Return nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(Return code) {
  return code == kSuccess        ? "Success"
         : code == kNotSupported ? "Not Supported"
                                 : "Invalid Argument";
}
Return nvmlSystemGetDriverVersion(char* out, unsigned size) {
  write(out, size, "580.0 (simulated)");
  return kSuccess;
}
Return nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  write(out, size, "13.580.0");
  return kSuccess;
}
Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return started(cuDriverGetVersion(version));
}
Return nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
Return nvmlDeviceGetCount_v2(unsigned* count) {
  const AllDevices all;
  int found = 0;
  const auto code = cuDeviceGetCount(&found);
  *count = static_cast<unsigned>(found);
  return started(code);
}
Return nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  const AllDevices all;
  int count = 0;
  (void)cuDeviceGetCount(&count);
  if (index >= static_cast<unsigned>(count)) return kInvalidArgument;
  *out = index + 1;
  return kSuccess;
}
Return nvmlDeviceGetHandleByIndex(unsigned index, Device* out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}
Return nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* out) {
  const AllDevices all;
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) return kInvalidArgument;
  char name[32];
  std::snprintf(name, sizeof name, "%04x:%02x:%02x.0", domain, bus, device);
  int found = 0;
  if (cuDeviceGetByPCIBusId(&found, name) != 0) return kNotFound;
  *out = static_cast<Device>(found) + 1;
  return kSuccess;
}
Return nvmlDeviceGetHandleByPciBusId(const char* id, Device* out) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}
Return nvmlDeviceGetIndex(Device device, unsigned* index) {
  *index = static_cast<unsigned>(ordinal(device));
  return kSuccess;
}
Return nvmlDeviceGetName(Device device, char* out, unsigned size) {
  const AllDevices all;
  return started(cuDeviceGetName(out, static_cast<int>(size), ordinal(device)));
}
Return nvmlDeviceGetUUID(Device device, char* out, unsigned size) {
  const AllDevices all;
  unsigned char uuid[16] = {};
  if (cuDeviceGetUuid(uuid, ordinal(device)) != 0) return kInvalidArgument;
  char text[41] = "GPU-";
  for (int i = 0, at = 4; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    at += std::snprintf(text + at, sizeof text - static_cast<std::size_t>(at), "%02x", uuid[i]);
  }
  write(out, size, text);
  return kSuccess;
}
Return nvmlDeviceGetMemoryInfo(Device device, Memory* out) { return memory_of(device, *out); }
Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* out) {
  Memory memory{};
  const auto code = memory_of(device, memory);
  out->total = memory.total;
  out->reserved = 0;
  out->free = memory.free;
  out->used = memory.used;
  return code;
}
Return nvmlDeviceGetPciInfo_v3(Device device, Pci* out) {
  std::memset(out, 0, sizeof *out);
  out->domain = static_cast<unsigned>(attribute(50, device));
  out->bus = static_cast<unsigned>(attribute(33, device));
  out->device = static_cast<unsigned>(attribute(34, device));
  std::snprintf(out->id, sizeof out->id, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
  return kSuccess;
}
Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  *major = attribute(75, device);
  *minor = attribute(76, device);
  return kSuccess;
}
Return nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, ProcessInfoV1* out) {
  return itself(device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo* out) {
  return itself(device, count, out);
}
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* out) {
  return itself(device, count, out);
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device, unsigned, int*) { return kNotSupported; }
Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device, unsigned, Pci*) { return kNotSupported; }
Return nvmlDeviceGetNvLinkState(Device, unsigned, int*) { return kNotSupported; }
Return nvmlDeviceGetUtilizationRates(Device, void*) { return kNotSupported; }
Return nvmlDeviceGetTemperature(Device, int, unsigned*) { return kNotSupported; }
Return nvmlDeviceGetPowerUsage(Device, unsigned*) { return kNotSupported; }

}  // extern "C"
#pragma GCC visibility pop
