// Devices and contexts.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "standin/calls.hpp"
#include "standin/report.hpp"

using namespace emm::standin;

namespace {

constexpr int kDriverVersion = 13000;  // CUDA 13.0, whose header the stand-in was written from
std::atomic<std::uint64_t> asked_for_tables{0};

/// Does the simulation answer, whatever the card's driver did? Where a device is, and what the
/// stand-in does not do: handles of the kinds that other processes take, and multicast.
bool is_of_simulation(int attribute) noexcept {
  switch (attribute) {
    case 19:   // CAN_MAP_HOST_MEMORY
    case 33:   // PCI_BUS_ID
    case 34:   // PCI_DEVICE_ID
    case 50:   // PCI_DOMAIN_ID
    case 103:  // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    case 104:  // HANDLE_TYPE_WIN32_HANDLE_SUPPORTED
    case 105:  // HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED
    case 128:  // HANDLE_TYPE_FABRIC_SUPPORTED
    case 132:  // MULTICAST_SUPPORTED
      return true;
    default:
      return false;
  }
}

/// Returns CU_DEVICE_ATTRIBUTE_*. What the card's profile does not tell is 0, as it is for what a
/// card does not have.
int attribute_of(const emm::GpuProfile& gpu, emm::Driver& driver, int attribute) {
  const auto identity = driver.device_identity();
  // An H200's: of a profile that has no attributes.
  constexpr int kTextureWidth = 131072, kTexture3d = 16384, kTextureLayers = 2048;
  if (!gpu.attributes.empty() && !is_of_simulation(attribute))
    return gpu.attribute(attribute).value_or(0);
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
    case 11:
      return 2147483647;  // MAX_PITCH
    case 12:
    case 82:
      return 65536;  // MAX_REGISTERS_PER_BLOCK, of a multiprocessor
    case 13:
      return gpu.clock_khz;
    case 14:
    case 30:
      return 512;  // TEXTURE_ALIGNMENT, SURFACE_ALIGNMENT
    case 16:
      return gpu.multiprocessors;
    case 19:
      return driver.can_map_host_memory() ? 1 : 0;
    case 21:
    case 22:
    case 55:
      return kTextureWidth;
    case 23:
    case 56:
      return kTextureWidth / 2;
    case 24:
    case 25:
    case 26:
      return kTexture3d;
    case 29:
    case 43:
      return kTextureLayers;
    case 33:
      return identity.pci_bus_id;
    case 34:
      return identity.pci_device_id;
    case 36:
      return gpu.memory_clock_khz;
    case 37:
      return gpu.bus_bits;
    case 38:
      return static_cast<int>(gpu.l2);
    case 39:
      return gpu.threads_of_multiprocessor();
    case 40:
      return 3;  // ASYNC_ENGINE_COUNT
    case 50:
      return identity.pci_domain_id;
    case 51:
      return 32;  // TEXTURE_PITCH_ALIGNMENT
    case 75:
      return gpu.major;
    case 76:
      return gpu.minor;
    case 81:
      return gpu.shared_of_multiprocessor();
    case 97:
      return gpu.shared_of_block_optin();
    case 106:
      return gpu.blocks_of_multiprocessor();
    case 111:
      return gpu.shared_reserved();
    case 15:   // GPU_OVERLAP
    case 31:   // CONCURRENT_KERNELS
    case 41:   // UNIFIED_ADDRESSING
    case 78:   // STREAM_PRIORITIES_SUPPORTED
    case 79:   // GLOBAL_L1_CACHE_SUPPORTED
    case 80:   // LOCAL_L1_CACHE_SUPPORTED
    case 83:   // MANAGED_MEMORY
    case 89:   // CONCURRENT_MANAGED_ACCESS
    case 90:   // COMPUTE_PREEMPTION_SUPPORTED
    case 91:   // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    case 95:   // COOPERATIVE_LAUNCH
    case 99:   // HOST_REGISTER_SUPPORTED
    case 102:  // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    case 115:  // MEMORY_POOLS_SUPPORTED
      return 1;
    case 120:  // CLUSTER_LAUNCH
    case 127:  // TENSOR_MAP_ACCESS_SUPPORTED
      return gpu.major >= 9 ? 1 : 0;
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

/// The libcuda.so.1 that `emmctl run --device sim` makes: it leads to this one, and has every other
/// function of the driver. Null where a program was given the stand-in itself.
void* library_over(void* self) {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (std::string_view(info->dlpi_name).ends_with("/libcuda.so.1"))
          static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        return 0;
      },
      &paths);
  for (const auto& path : paths) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr && library != self) return library;
  }
  return nullptr;
}

/// The newest form of a function of a library. Null if there is none.
void* function_of(void* library, const char* symbol) {
  const std::string name = symbol;
  void* const second = dlsym(library, (name + "_v2").c_str());
  return second != nullptr ? second : dlsym(library, symbol);
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
    // A program may choose by the name. It gets the card's own.
    const auto shown = is_whole_program() ? Machine::started()->gpu().device : driver.device_name();
    const auto text = shown.substr(0, static_cast<std::size_t>(size) - 1);
    std::copy(text.begin(), text.end(), name);
    name[text.size()] = '\0';
  });
}

Code cuDeviceGetAttribute(int* value, int attribute, Device device) {
  return with_device(device, [&](emm::Driver& driver) {
    *value = attribute_of(Machine::started()->gpu(), driver, attribute);
  });
}

Code cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  return with_device(device, [&](emm::Driver& driver) {
    if (const auto info = driver.mem_get_info(); info) *bytes = info->total;
  });
}

Code cuDeviceComputeCapability(int* major, int* minor, Device device) {
  return with_device(device, [&](emm::Driver&) {
    *major = Machine::started()->gpu().major;
    *minor = Machine::started()->gpu().minor;
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
  *function = function_of(self, symbol);
  if (*function == nullptr) {
    if (void* const library = library_over(self)) *function = function_of(library, symbol);
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
  if (auto* const report = Report::of_this_process()) report->add_table();
  return Machine::kNotSupported;
}
/// Not a CUDA function. Programs that load the stand-in call it.
std::uint64_t emm_standin_asked_for_tables() { return asked_for_tables; }
/// Likewise: Machine::see_all().
void emm_standin_see_all(bool begins) { Machine::see_all(begins); }
/// Likewise: what is not free of a device.
std::uint64_t emm_standin_used_bytes(Device device) {
  std::uint64_t used = 0;
  with_device(device, [&](emm::Driver& driver) {
    if (const auto info = driver.mem_get_info(); info) used = info->total - info->free;
  });
  return used;
}
std::uint64_t emm_standin_strays() { return emm::standin::Machine::strays(); }

}  // extern "C"
#pragma GCC visibility pop
