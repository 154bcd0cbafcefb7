// A libcuda of another name before the stand-in, as a program has it that loads the driver by its
// full path: it loads the library that CUDA_INJECTION64_PATH names in cuInit, and calls back as
// CUPTI does around each function that a recording knows.
#include "tests/record/full_libcuda.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "record/library/params.hpp"

using namespace emm::record;

namespace {

enum Index : std::uint32_t {
#define EMM_WRAP(symbol, ...) i_##symbol,
#define EMM_WRAP_STREAM EMM_WRAP
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
  i_cuMemGetInfo_v2,
  kCount
};
constexpr const char* kNames[] = {
#define EMM_WRAP(symbol, ...) #symbol,
#define EMM_WRAP_STREAM EMM_WRAP
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
    "cuMemGetInfo_v2",
};
// Numbers have gaps, as CUPTI's.
constexpr std::uint32_t kStep = 3;
std::atomic<bool> enabled[kCount] = {};
std::atomic<cupti::Callback> callback{nullptr};
std::atomic<std::uint32_t> correlation{0};

void* library() {
  static void* const opened = dlopen("libcuda.so.1", RTLD_NOW);
  return opened;
}

template <class... Parameters>
Code call_real(const char* name, Parameters... arguments) {
  using Real = Code (*)(Parameters...);
  const auto real = reinterpret_cast<Real>(dlsym(library(), name));
  return real != nullptr ? real(arguments...) : 801;  // not supported
}

void tell(int site, Index which, std::uint32_t number, const void* params, Code* result,
          std::uint64_t* data) {
  const auto to = callback.load();
  if (to == nullptr || !enabled[which]) return;
  std::uint64_t context = 0;
  (void)call_real("cuCtxGetCurrent", &context);
  cupti::CallbackData about{};
  about.site = site;
  about.function = kNames[which];
  about.params = params;
  about.result = site == cupti::kExit ? result : nullptr;
  std::memcpy(&about.context, &context, sizeof context);
  about.correlation_data = data;
  about.correlation_id = number;
  to(nullptr, cupti::kDriverApi, (which + 1) * kStep, &about);
}

template <class Params, class Make>
Code called(Index which, const Params& params, Make make) {
  const auto number = ++correlation;
  std::uint64_t data = 0;
  tell(cupti::kEnter, which, number, &params, nullptr, &data);
  Code code = make();
  tell(cupti::kExit, which, number, &params, &code, &data);
  return code;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define EMM_FUNCTION(symbol, of, parameters, args)                       \
  Code symbol parameters {                                               \
    return called(i_##symbol, params::of##_params EMM_BRACES args,       \
                  [&] { return call_real(#symbol EMM_FOLLOWED args); }); \
  }
#define EMM_BRACES(...) \
  { __VA_ARGS__ }
#define EMM_FOLLOWED(...) __VA_OPT__(, ) __VA_ARGS__
#define EMM_WRAP(symbol, call, place, parameters, args, ...) \
  EMM_FUNCTION(symbol, symbol, parameters, args)
#define EMM_WRAP_STREAM EMM_WRAP
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
EMM_FUNCTION(cuMemGetInfo_v2, cuMemGetInfo_v2, (Size * free, Size* total), (free, total))

Code cuInit(unsigned flags) {
  const auto code = call_real("cuInit", flags);
  static const bool injected = [] {
    const char* const path = std::getenv("CUDA_INJECTION64_PATH");
    void* const found = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    using Begin = int (*)();
    const auto begin =
        found != nullptr ? reinterpret_cast<Begin>(dlsym(found, "InitializeInjection")) : nullptr;
    return begin != nullptr && begin() == 1;
  }();
  (void)injected;
  return code;
}

Code cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                         int* status) {
  const auto code = call_real("cuGetProcAddress_v2", symbol, function, version, flags, status);
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&cuInit), &info);
  void* const own = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  for (const auto* end : {"_v2", ""}) {
    void* const found = dlsym(own, (std::string(symbol) + end).c_str());
    Dl_info of{};
    if (found == nullptr || dladdr(found, &of) == 0 || of.dli_fbase != info.dli_fbase) continue;
    // A version that the stand-in lacks is none that it would answer.
    if (dlsym(library(), (std::string(symbol) + end).c_str()) == nullptr) continue;
    *function = found;
    return 0;
  }
  return code;
}

void emm_fake_cupti_set(cupti::Callback to) { callback = to; }
const char* emm_fake_cupti_name(std::uint32_t id) {
  const auto at = id / kStep;
  return id % kStep == 0 && at >= 1 && at <= kCount ? kNames[at - 1] : nullptr;
}
int emm_fake_cupti_enable(std::uint32_t id, bool on) {
  if (emm_fake_cupti_name(id) == nullptr) return 1;
  enabled[id / kStep - 1] = on;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
