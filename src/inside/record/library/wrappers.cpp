// The wrappers that stand before the real driver's functions. A program gets them from the loader,
// as libcuda.so.1, and from cuGetProcAddress.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "record/library/cuda.hpp"
#include "record/library/real.hpp"
#include "record/library/recorder.hpp"
#include "record/library/served.hpp"

namespace emm::record {
namespace {

enum Wrapped : int {
#define EMM_WRAP(symbol, ...) w_##symbol,
#define EMM_WRAP_STREAM(symbol, ...) w_##symbol, w_##symbol##_ptsz,
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
  w_cuInit,
  w_cuGetProcAddress,
  w_cuGetProcAddress_v2,
  w_cuCtxSetCurrent,
  w_cuCtxPushCurrent,
  w_cuCtxPushCurrent_v2,
  w_cuCtxPopCurrent,
  w_cuCtxPopCurrent_v2,
  w_cuMemGetInfo_v2,
  w_cuDeviceTotalMem_v2,
  w_cuLaunchKernel,
  w_cuLaunchKernel_ptsz,
  w_cuLaunchKernelEx,
  w_cuLaunchKernelEx_ptsz,
  w_cuLaunchCooperativeKernel,
  w_cuLaunchCooperativeKernel_ptsz,
  kWrapped
};

}  // namespace

void* real_functions[kWrapped];

namespace {

Real the_real{};
void* the_library = nullptr;
char real_library[512] = "";

template <class Function>
Function real_function(int index) noexcept {
  return reinterpret_cast<Function>(real_functions[index]);
}

#define EMM_WRAPPER(symbol, own, index, call, point, params, args, wants, after, ...) \
  Code wrap_##symbol params {                                                         \
    constexpr bool kOwn = own;                                                        \
    (void)kOwn;                                                                       \
    const auto code = recorded<Call::call, OrderPoint::point>(                        \
        wants, [=] { return real_function<Code(*) params>(index) args; },             \
        [=](CallRecord& r, bool ok) {                                                 \
          (void)ok;                                                                   \
          __VA_ARGS__;                                                                \
        });                                                                           \
    after;                                                                            \
    return code;                                                                      \
  }
#define EMM_WRAP(symbol, call, point, params, args, wants, ...) \
  EMM_WRAPPER(symbol, false, w_##symbol, call, point, params, args, wants, (void)0, __VA_ARGS__)
#define EMM_WRAP_STREAM(symbol, call, point, params, args, wants, ...)                           \
  EMM_WRAPPER(symbol, false, w_##symbol, call, point, params, args, wants, (void)0, __VA_ARGS__) \
  EMM_WRAPPER(symbol##_ptsz, true, w_##symbol##_ptsz, call, point, params, args, wants, (void)0, \
              __VA_ARGS__)
#define EMM_WRAP_CONTEXT(symbol, call, point, params, args, wants, ...)    \
  EMM_WRAPPER(symbol, false, w_##symbol, call, point, params, args, wants, \
              self.context_known = false, __VA_ARGS__)
#define EMM_WRAP_CONTEXT_END(symbol, call, point, params, args, wants, ...) \
  EMM_WRAPPER(symbol, false, w_##symbol, call, point, params, args, wants,  \
              self.context_known = false;                                   \
              if (code == 0) forget_context(context), __VA_ARGS__)
#include "record/library/wrapped.def"

/// While one lives, CUDA_INJECTION64_PATH goes by another name, so that the driver does not also
/// load the recorder for CUPTI. The destructor puts the name back for children. Changing one letter
/// in place takes no lock, as setenv() would.
class WithoutInjection {
 public:
  WithoutInjection() noexcept {
    constexpr const char* kVariable = "CUDA_INJECTION64_PATH=";
    for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
      if (std::strncmp(*at, kVariable, std::strlen(kVariable)) == 0 &&
          std::strstr(*at, "libemm-record.so") != nullptr) {
        hidden_ = *at;
      }
    }
    if (hidden_ != nullptr) *hidden_ = '_';
  }
  ~WithoutInjection() {
    if (hidden_ != nullptr) *hidden_ = 'C';
  }
  WithoutInjection(const WithoutInjection&) = delete;
  WithoutInjection& operator=(const WithoutInjection&) = delete;

 private:
  char* hidden_ = nullptr;
};

Code wrap_cuInit(unsigned flags) {
  const auto code = [&] {
    const WithoutInjection without;
    return real_function<Code (*)(unsigned)>(w_cuInit)(flags);
  }();
  if (code != 0) {
    tell_init_failed(code);
    return code;
  }
  describe_devices();
  gate_report_use();
  return code;
}

#define EMM_CHANGES_CONTEXT(symbol, parameter)                                 \
  Code wrap_##symbol(parameter context) {                                      \
    const auto code = real_function<Code (*)(parameter)>(w_##symbol)(context); \
    self.context_known = false;                                                \
    return code;                                                               \
  }
EMM_CHANGES_CONTEXT(cuCtxSetCurrent, Handle)
EMM_CHANGES_CONTEXT(cuCtxPushCurrent, Handle)
EMM_CHANGES_CONTEXT(cuCtxPushCurrent_v2, Handle)
EMM_CHANGES_CONTEXT(cuCtxPopCurrent, Handle*)
EMM_CHANGES_CONTEXT(cuCtxPopCurrent_v2, Handle*)

Code wrap_cuMemGetInfo_v2(Size* free, Size* total) {
  return recorded<Call::mem_get_info, OrderPoint::exit>(
      0,
      [=] {
        const auto code = real_function<Code (*)(Size*, Size*)>(w_cuMemGetInfo_v2)(free, total);
        if (code == 0 && (shared.mode & mode::gating) != 0) gate_memory_info(free, total);
        return code;
      },
      [=](CallRecord& r, bool ok) {
        r.address = GIVEN(free);
        r.size = GIVEN(total);
      });
}
Code wrap_cuDeviceTotalMem_v2(Size* total, int device) {
  const auto code = real_function<Code (*)(Size*, int)>(w_cuDeviceTotalMem_v2)(total, device);
  if (code == 0 && (shared.mode & mode::gating) != 0) *total = gate_total(*total);
  return code;
}

#define EMM_KERNEL_PARAMS                                                                 \
  (void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
   unsigned bytes, Handle stream, void** params, void** extra)
#define EMM_COOPERATIVE_PARAMS                                                            \
  (void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
   unsigned bytes, Handle stream, void** params)
#define EMM_LAUNCHER(symbol, own, params_list, args, on)                   \
  Code wrap_##symbol params_list {                                         \
    const auto code = real_function<Code(*) params_list>(w_##symbol) args; \
    if (code == 0) count_kernel(on_stream(on, own));                       \
    return code;                                                           \
  }
#define EMM_LAUNCHERS(symbol, params_list, args, on) \
  EMM_LAUNCHER(symbol, false, params_list, args, on) \
  EMM_LAUNCHER(symbol##_ptsz, true, params_list, args, on)
EMM_LAUNCHERS(cuLaunchKernel, EMM_KERNEL_PARAMS,
              (f, gx, gy, gz, bx, by, bz, bytes, stream, params, extra), stream)
EMM_LAUNCHERS(cuLaunchCooperativeKernel, EMM_COOPERATIVE_PARAMS,
              (f, gx, gy, gz, bx, by, bz, bytes, stream, params), stream)
EMM_LAUNCHERS(cuLaunchKernelEx, (const LaunchConfig* config, void* f, void** params, void** extra),
              (config, f, params, extra), config->stream)

Code wrap_cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags);
Code wrap_cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                              int* status);

struct Wrapper {
  const char* symbol;
  void* function;
};
const Wrapper kWrappers[kWrapped] = {
#define EMM_WRAP(symbol, ...) {#symbol, reinterpret_cast<void*>(&wrap_##symbol)},
#define EMM_WRAP_STREAM(symbol, ...)                  \
  {#symbol, reinterpret_cast<void*>(&wrap_##symbol)}, \
      {#symbol "_ptsz", reinterpret_cast<void*>(&wrap_##symbol##_ptsz)},
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
#define EMM_WRAP(symbol) \
  { #symbol, reinterpret_cast < void*>(&wrap_##symbol) }
    EMM_WRAP(cuInit),
    EMM_WRAP(cuGetProcAddress),
    EMM_WRAP(cuGetProcAddress_v2),
    EMM_WRAP(cuCtxSetCurrent),
    EMM_WRAP(cuCtxPushCurrent),
    EMM_WRAP(cuCtxPushCurrent_v2),
    EMM_WRAP(cuCtxPopCurrent),
    EMM_WRAP(cuCtxPopCurrent_v2),
    EMM_WRAP(cuMemGetInfo_v2),
    EMM_WRAP(cuDeviceTotalMem_v2),
    EMM_WRAP(cuLaunchKernel),
    EMM_WRAP(cuLaunchKernel_ptsz),
    EMM_WRAP(cuLaunchKernelEx),
    EMM_WRAP(cuLaunchKernelEx_ptsz),
    EMM_WRAP(cuLaunchCooperativeKernel),
    EMM_WRAP(cuLaunchCooperativeKernel_ptsz),
#undef EMM_WRAP
};

/// What the program gets for `wrapper`: the function that serves, where one does.
void* shown_for(const Wrapper& wrapper) noexcept {
  void* const serving = serving_function(wrapper.symbol);
  return serving != nullptr ? serving : wrapper.function;
}

/// Answers whether the driver exports `function` under this name, in any version.
bool is_exported(const char* symbol, const void* function) noexcept {
  for (const char* version : {"", "_v2", "_v3", "_v4"}) {
    for (const char* kind : {"", "_ptsz", "_ptds"}) {
      char name[256];
      std::snprintf(name, sizeof name, "%s%s%s", symbol, version, kind);
      if (dlsym(the_library, name) == function) return true;
    }
  }
  return false;
}

/// Returns the wrapper for the function that the driver gave for `symbol`, or null when there is
/// none. `symbol` carries no version, so the function is identified by its address. An address that
/// the driver does not export is identified by its name, provided that only one version of that
/// name is wrapped.
void* find_wrapper(const char* symbol, void* function, bool own_stream) noexcept {
  for (int i = 0; i < kWrapped; ++i) {
    if (real_functions[i] == function) return shown_for(kWrappers[i]);
  }
  if (void* const serving = serving_function_before(function)) return serving;
  int plain = -1, own = -1, versions = 0;
  const auto size = std::strlen(symbol);
  for (int i = 0; i < kWrapped; ++i) {
    if (std::strncmp(kWrappers[i].symbol, symbol, size) != 0) continue;
    const char* const rest = kWrappers[i].symbol + size;
    const char* const kind = std::strstr(rest, "_ptsz");
    if (*rest != '\0' && rest != kind && std::strncmp(rest, "_v", 2) != 0) continue;
    if (kind != nullptr) {
      own = i;
    } else {
      plain = i;
      ++versions;
    }
  }
  const int found = own_stream && own >= 0 ? own : plain;
  if (is_exported(symbol, function)) return nullptr;
  if (found < 0) return serving_function_named(symbol, function);
  if (versions > 1) {  // the version is not known
    count_bypassed();
    return nullptr;
  }
  real_functions[found] = function;
  return shown_for(kWrappers[found]);
}

constexpr std::uint64_t kPerThreadStream = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

Code wrap_cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  const auto code = real_function<Code (*)(const char*, void**, int, std::uint64_t)>(
      w_cuGetProcAddress)(symbol, function, version, flags);
  if (code != 0 || symbol == nullptr || function == nullptr || *function == nullptr) return code;
  if (void* const ours = find_wrapper(symbol, *function, (flags & kPerThreadStream) != 0))
    *function = ours;
  return code;
}
Code wrap_cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                              int* status) {
  const auto code = real_function<Code (*)(const char*, void**, int, std::uint64_t, int*)>(
      w_cuGetProcAddress_v2)(symbol, function, version, flags, status);
  if (code != 0 || symbol == nullptr || function == nullptr || *function == nullptr) return code;
  if (void* const ours = find_wrapper(symbol, *function, (flags & kPerThreadStream) != 0))
    *function = ours;
  return code;
}

// These stand in for functions that were not found.
Code no_driver() noexcept { return 3; }  // CUDA_ERROR_NOT_INITIALIZED
Code not_found() noexcept { return 500; }

template <class Function>
void find(void* library, Function& function, const char* symbol) noexcept {
  void* const found = dlsym(library, symbol);
  function =
      reinterpret_cast<Function>(found != nullptr ? found : reinterpret_cast<void*>(&not_found));
}

}  // namespace

const Real& real() noexcept { return the_real; }
const char* real_path() noexcept { return real_library; }
bool has_forwarding_library() noexcept { return the_library != nullptr; }
void* driver_function(const char* symbol) noexcept { return dlsym(the_library, symbol); }
void* function_behind(const char* symbol) noexcept {
  for (int i = 0; i < kWrapped; ++i) {
    if (real_functions[i] != nullptr && std::strcmp(kWrappers[i].symbol, symbol) == 0)
      return kWrappers[i].function;
  }
  return driver_function(symbol);
}

/// Returns the device of a context. The driver answers only for the current context, so this one is
/// made current for the question.
std::uint64_t context_device(Handle context) noexcept {
  constexpr std::uint64_t kUnknown = 255;  // a record has a byte for the device
  const auto push = real_function<Code (*)(Handle)>(w_cuCtxPushCurrent_v2);
  const auto pop = real_function<Code (*)(Handle*)>(w_cuCtxPopCurrent_v2);
  if (push == nullptr || pop == nullptr || push(context) != 0) return kUnknown;
  int device = -1;
  const auto code = the_real.ctx_get_device(&device);
  Handle popped = 0;
  (void)pop(&popped);
  return code == 0 && device >= 0 ? static_cast<std::uint64_t>(device) : kUnknown;
}

void find_real(void* library, const char* path) noexcept {
  std::snprintf(real_library, sizeof real_library, "%s", path);
  find(library, the_real.driver_get_version, "cuDriverGetVersion");
  find(library, the_real.device_get_count, "cuDeviceGetCount");
  find(library, the_real.device_get, "cuDeviceGet");
  find(library, the_real.device_get_name, "cuDeviceGetName");
  find(library, the_real.device_total_mem, "cuDeviceTotalMem_v2");
  find(library, the_real.ctx_get_current, "cuCtxGetCurrent");
  find(library, the_real.ctx_get_device, "cuCtxGetDevice");
  find(library, the_real.mem_get_info, "cuMemGetInfo_v2");
  find(library, the_real.mem_free, "cuMemFree_v2");
  find(library, the_real.primary_ctx_get_state, "cuDevicePrimaryCtxGetState");
  for (int i = 0; i < kWrapped; ++i) real_functions[i] = dlsym(library, kWrappers[i].symbol);
}

}  // namespace emm::record

/// The library that `emmctl record` writes calls this when the loader initializes it. `slots` are
/// the targets of its jumps and `symbols` their names.
extern "C" [[gnu::visibility("default")]] void emm_record_open(void** slots,
                                                               const Elf64_Sym* symbols,
                                                               const char* names,
                                                               std::uint32_t count) {
  using namespace emm::record;
  // The string table begins with the settings of the recording (forwarding_library.hpp).
  begin(names + 1);
  const char* const path = setting("EMM_RECORD_DRIVER");
  void* const library =
      path != nullptr && *path == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    const char* const why = path == nullptr ? "EMM_RECORD_DRIVER is not set" : dlerror();
    std::fprintf(stderr, "emmctl record: no driver: %s\n", why != nullptr ? why : "");
    for (std::uint32_t i = 0; i < count; ++i) slots[i] = reinterpret_cast<void*>(&no_driver);
    return;
  }
  the_library = library;
  find_real(library, path);
  find_served();
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* const name = names + symbols[i].st_name;
    void* target = dlsym(library, name);
    for (int w = 0; w < kWrapped; ++w) {
      if (real_functions[w] != nullptr && std::strcmp(kWrappers[w].symbol, name) == 0)
        target = kWrappers[w].function;
    }
    if (void* const serving = serving_function(name)) target = serving;
    slots[i] = target != nullptr ? target : reinterpret_cast<void*>(&not_found);
  }
}
