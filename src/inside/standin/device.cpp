// Devices and contexts.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "standin/calls.hpp"

using namespace emm::standin;

namespace {

constexpr int kDriverVersion = 13000;
std::atomic<std::uint64_t> asked_for_tables{0};

/// Returns CU_DEVICE_ATTRIBUTE_*: an H200's value for those that programs use, and 0 for the rest.
int attribute_of(emm::Driver& driver, int attribute) {
  const auto identity = driver.device_identity();
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return 1024;  // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, Y
    case 4:
      return 64;
    case 5:
      return 2147483647;  // MAX_GRID_DIM_X
    case 6:
    case 7:
      return 65535;
    case 8:
      return 49152;  // MAX_SHARED_MEMORY_PER_BLOCK
    case 9:
      return 65536;  // TOTAL_CONSTANT_MEMORY
    case 10:
      return 32;  // WARP_SIZE
    case 12:
      return 65536;  // MAX_REGISTERS_PER_BLOCK
    case 16:
      return 132;  // MULTIPROCESSOR_COUNT
    case 19:
      return driver.can_map_host_memory() ? 1 : 0;
    case 31:
      return 1;  // CONCURRENT_KERNELS
    case 33:
      return identity.pci_bus_id;
    case 34:
      return identity.pci_device_id;
    case 39:
      return 2048;  // MAX_THREADS_PER_MULTIPROCESSOR
    case 40:
      return 3;  // ASYNC_ENGINE_COUNT
    case 41:
      return 1;  // UNIFIED_ADDRESSING
    case 50:
      return identity.pci_domain_id;
    case 75:
      return 9;  // COMPUTE_CAPABILITY_MAJOR
    case 76:
      return 0;
    case 83:
    case 102:
    case 115:
      return 1;  // MANAGED_MEMORY, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, MEMORY_POOLS_SUPPORTED
    default:
      return 0;
  }
}

template <class Use>
Code with_device(Device ordinal, Use use) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* driver = machine->device(ordinal);
  if (driver == nullptr) return Machine::kInvalidDevice;
  use(*driver);
  return Machine::kSuccess;
}

Code with_machine(Code (*use)(Machine&, Device), Device ordinal) {
  auto* machine = Machine::started();
  return machine != nullptr ? use(*machine, ordinal) : Machine::kNotInitialized;
}

Code push(ContextPtr context) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (!machine->is_context(context)) return Machine::kInvalidContext;
  Machine::push(context);
  return Machine::kSuccess;
}

Code pop(ContextPtr* out) {
  const auto popped = Machine::pop();
  if (!popped) return Machine::kInvalidContext;
  if (out != nullptr) *out = *popped;
  return Machine::kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuInit(unsigned flags) { return flags == 0 ? Machine::start() : Machine::kInvalidValue; }

Code cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return Machine::kSuccess;
}

Code cuGetErrorName(Code code, const char** name) {
  const auto words = emm::native_name(code);
  *name = words.data();
  return Machine::kSuccess;
}
Code cuGetErrorString(Code code, const char** words) { return cuGetErrorName(code, words); }

Code cuDeviceGetCount(int* count) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  *count = machine->device_count();
  return Machine::kSuccess;
}

Code cuDeviceGet(Device* device, int ordinal) {
  return with_device(ordinal, [&](emm::Driver&) { *device = ordinal; });
}

Code cuDeviceGetName(char* name, int size, Device device) {
  return with_device(device, [&](emm::Driver& driver) {
    if (size <= 0) return;
    const auto text = driver.device_name().substr(0, static_cast<std::size_t>(size) - 1);
    std::copy(text.begin(), text.end(), name);
    name[text.size()] = '\0';
  });
}

Code cuDeviceGetAttribute(int* value, int attribute, Device device) {
  return with_device(device,
                     [&](emm::Driver& driver) { *value = attribute_of(driver, attribute); });
}

Code cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  return with_device(device, [&](emm::Driver& driver) {
    if (const auto info = driver.mem_get_info(); info) *bytes = info->total;
  });
}

Code cuDeviceComputeCapability(int* major, int* minor, Device device) {
  return with_device(device, [&](emm::Driver&) {
    *major = 9;
    *minor = 0;
  });
}

Code cuDeviceGetUuid(unsigned char* uuid, Device device) {
  return with_device(device, [&](emm::Driver& driver) {
    const auto identity = driver.device_identity();
    std::memset(uuid, 0, 16);
    std::copy_n("emmctl", 6, uuid);
    uuid[15] = static_cast<unsigned char>(identity.pci_bus_id);
  });
}
Code cuDeviceGetUuid_v2(unsigned char* uuid, Device device) {
  return cuDeviceGetUuid(uuid, device);
}

Code cuDeviceGetByPCIBusId(Device* device, const char* bus_id) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  for (int ordinal = 0; ordinal < machine->device_count(); ++ordinal) {
    const auto identity = machine->device(ordinal)->device_identity();
    char text[32];
    std::snprintf(
        text, sizeof text, "%04x:%02x:%02x.0", static_cast<unsigned>(identity.pci_domain_id),
        static_cast<unsigned>(identity.pci_bus_id), static_cast<unsigned>(identity.pci_device_id));
    if (std::strcmp(text, bus_id) != 0) continue;
    *device = ordinal;
    return Machine::kSuccess;
  }
  return Machine::kInvalidDevice;
}

Code cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* here = machine->device(device);
  auto* there = machine->device(peer);
  if (here == nullptr || there == nullptr) return Machine::kInvalidDevice;
  const auto answer = here->can_access_peer(there->device_identity());
  if (!answer) return answer.error().native;
  *can = *answer ? 1 : 0;
  return Machine::kSuccess;
}

Code cuDevicePrimaryCtxRetain(ContextPtr* context, Device device) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  *context = machine->retain(device);
  return *context != nullptr ? Machine::kSuccess : Machine::kInvalidDevice;
}
Code cuDevicePrimaryCtxRelease_v2(Device device) {
  return with_machine([](Machine& machine, Device d) { return machine.release(d); }, device);
}
Code cuDevicePrimaryCtxRelease(Device device) { return cuDevicePrimaryCtxRelease_v2(device); }
Code cuDevicePrimaryCtxReset_v2(Device device) {
  return with_machine([](Machine& machine, Device d) { return machine.reset(d); }, device);
}
Code cuDevicePrimaryCtxReset(Device device) { return cuDevicePrimaryCtxReset_v2(device); }
Code cuDevicePrimaryCtxSetFlags_v2(Device, unsigned) { return Machine::kSuccess; }
Code cuDevicePrimaryCtxSetFlags(Device, unsigned) { return Machine::kSuccess; }
Code cuDevicePrimaryCtxGetState(Device device, unsigned* flags, int* active) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (device < 0 || device >= machine->device_count()) return Machine::kInvalidDevice;
  *flags = 0;
  *active = machine->is_active(device) ? 1 : 0;
  return Machine::kSuccess;
}

// The stand-in has only primary contexts.
Code cuCtxCreate_v2(ContextPtr*, unsigned, Device) { return Machine::kNotSupported; }
Code cuCtxDestroy_v2(ContextPtr) { return Machine::kNotSupported; }

Code cuCtxGetCurrent(ContextPtr* context) {
  if (Machine::started() == nullptr) return Machine::kNotInitialized;
  *context = Machine::current();
  return Machine::kSuccess;
}
Code cuCtxSetCurrent(ContextPtr context) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (context != nullptr && !machine->is_context(context)) return Machine::kInvalidContext;
  Machine::set_current(context);
  return Machine::kSuccess;
}
Code cuCtxPushCurrent_v2(ContextPtr context) { return push(context); }
Code cuCtxPopCurrent_v2(ContextPtr* context) { return pop(context); }
Code cuCtxGetDevice(Device* device) {
  if (Machine::started() == nullptr) return Machine::kNotInitialized;
  if (Machine::current() == nullptr) return Machine::kInvalidContext;
  *device = Machine::current()->ordinal;
  return Machine::kSuccess;
}
Code cuCtxSynchronize() {
  return in_context([](emm::Driver& driver) { return driver.ctx_synchronize(); });
}
Code cuCtxGetApiVersion(ContextPtr, unsigned* version) {
  *version = 3020;
  return Machine::kSuccess;
}
Code cuCtxEnablePeerAccess(ContextPtr peer, unsigned flags) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (flags != 0) return Machine::kInvalidValue;
  if (!machine->is_context(peer)) return Machine::kInvalidContext;
  return in_context([&](emm::Driver& driver) {
    return driver.ctx_enable_peer_access(peer->device.driver->context_handle());
  });
}
Code cuCtxDisablePeerAccess(ContextPtr peer) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (!machine->is_context(peer)) return Machine::kInvalidContext;
  return in_context([&](emm::Driver& driver) {
    return driver.ctx_disable_peer_access(peer->device.driver->context_handle());
  });
}

// Finds the newest version of a function under its plain name, as libcuda does.
Code cuGetProcAddress_v2(const char* symbol, void** function, int, std::uint64_t, int* status) {
  static void* const self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = nullptr;
  for (const char* version : {"_v2", ""}) {
    const auto name = std::string(symbol) + version;
    *function = dlsym(self, name.c_str());
    if (*function != nullptr) break;
  }
  if (status != nullptr) *status = *function != nullptr ? 0 : 1;
  return *function != nullptr ? Machine::kSuccess : Machine::kNotFound;
}
Code cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
// A statically linked cudart asks for these tables. They are undocumented, so the stand-in has
// none.
Code cuGetExportTable(const void**, const void*) {
  ++asked_for_tables;
  return Machine::kNotSupported;
}
/// Not a CUDA function. Programs that load the stand-in call it.
std::uint64_t emm_standin_asked_for_tables() { return asked_for_tables; }
std::uint64_t emm_standin_strays() { return emm::standin::Machine::strays(); }

}  // extern "C"
#pragma GCC visibility pop
