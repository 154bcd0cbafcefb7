// Records through CUPTI's callbacks around the driver's functions. This serves programs that bypass
// the forwarding library, such as those that load libcuda by its full path.
#include "record/library/cupti.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "record/library/live.hpp"
#include "record/library/params.hpp"
#include "record/library/real.hpp"

namespace emm::record {
namespace {

#define EMM_BIND(name) [[maybe_unused]] const auto& name = given.name;
#define EMM_BINDS(...) EMM_EACH(EMM_BIND, __VA_ARGS__)
#define EMM_FILL(symbol, own, of, args, ...)                                                  \
  void fill_##symbol([[maybe_unused]] const void* params_of, [[maybe_unused]] CallRecord& r,  \
                     [[maybe_unused]] bool ok) {                                              \
    [[maybe_unused]] constexpr bool kOwn = own;                                               \
    if (params_of == nullptr) return; /* where CUPTI publishes no structure */                \
    [[maybe_unused]] const auto& given = *static_cast<const params::of##_params*>(params_of); \
    EMM_BINDS args __VA_ARGS__;                                                               \
  }
#define EMM_WRAP(symbol, call, point, parameters, args, wants, ...) \
  EMM_FILL(symbol, false, symbol, args, __VA_ARGS__)
#define EMM_WRAP_STREAM(symbol, call, point, parameters, args, wants, ...) \
  EMM_FILL(symbol, false, symbol, args, __VA_ARGS__)                       \
  EMM_FILL(symbol##_ptsz, true, symbol, args, __VA_ARGS__)
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
EMM_FILL(cuMemGetInfo_v2, false, cuMemGetInfo_v2, (free, total), r.address = GIVEN(free),
         r.size = GIVEN(total))
EMM_FILL(cuLaunchKernel, false, cuLaunchKernel, (stream), r.stream = ON(stream))
EMM_FILL(cuLaunchKernel_ptsz, true, cuLaunchKernel, (stream), r.stream = ON(stream))
EMM_FILL(cuLaunchCooperativeKernel, false, cuLaunchCooperativeKernel, (stream),
         r.stream = ON(stream))
EMM_FILL(cuLaunchCooperativeKernel_ptsz, true, cuLaunchCooperativeKernel, (stream),
         r.stream = ON(stream))
EMM_FILL(cuLaunchKernelEx, false, cuLaunchKernelEx, (config), r.stream = ON(config->stream))
EMM_FILL(cuLaunchKernelEx_ptsz, true, cuLaunchKernelEx, (config), r.stream = ON(config->stream))

struct Function {
  const char* name;
  Call call;
  OrderPoint point;
  void (*fill)(const void* params, CallRecord& record, bool ok);
};
constexpr Function kFunctions[] = {
#define EMM_WRAP(symbol, call, point, ...) {#symbol, Call::call, OrderPoint::point, fill_##symbol},
#define EMM_WRAP_STREAM(symbol, call, point, ...)          \
  {#symbol, Call::call, OrderPoint::point, fill_##symbol}, \
      {#symbol "_ptsz", Call::call, OrderPoint::point, fill_##symbol##_ptsz},
#define EMM_WRAP_CONTEXT EMM_WRAP
#include "record/library/wrapped.def"
    {"cuMemGetInfo_v2", Call::mem_get_info, OrderPoint::exit, fill_cuMemGetInfo_v2},
    {"cuLaunchKernel", Call::kernels, OrderPoint::exit, fill_cuLaunchKernel},
    {"cuLaunchKernel_ptsz", Call::kernels, OrderPoint::exit, fill_cuLaunchKernel_ptsz},
    {"cuLaunchCooperativeKernel", Call::kernels, OrderPoint::exit, fill_cuLaunchCooperativeKernel},
    {"cuLaunchCooperativeKernel_ptsz", Call::kernels, OrderPoint::exit,
     fill_cuLaunchCooperativeKernel_ptsz},
    {"cuLaunchKernelEx", Call::kernels, OrderPoint::exit, fill_cuLaunchKernelEx},
    {"cuLaunchKernelEx_ptsz", Call::kernels, OrderPoint::exit, fill_cuLaunchKernelEx_ptsz},
};

// Above every CUPTI_DRIVER_TRACE_CBID, which CUPTI counts from 1.
constexpr std::uint32_t kIdsMost = 2048;
constinit const Function* by_id[kIdsMost] = {};

/// A thread's outermost driver call. Calls inside it are made by the driver, not by the program.
struct Flight {
  bool under_way;
  std::uint32_t id, correlation;
  std::uint64_t begun, seq;
  std::uint32_t window;
  void* context;
};
thread_local Flight flight __attribute__((tls_model("initial-exec")));

void enter(Thread& thread, const Function& function, std::uint32_t id,
           const cupti::CallbackData& data) noexcept {
  if (thread.inside) return;
  const auto window = *shared.on;
  const bool records = (shared.mode & mode::recording) != 0 && window != 0;
  const bool keeps = (shared.mode & mode::keeping) != 0;
  if (!records && !keeps) return;
  describe_devices();
  thread.inside = true;
  if (flight.context != data.context) thread.context_known = false;
  if (!thread.context_known) look_up_context(thread);
  if (records && window != thread.window) begin_window(thread, window);
  flight = {.under_way = true,
            .id = id,
            .correlation = data.correlation_id,
            .begun = ticks(),
            .seq = 0,
            .window = records ? window : 0,
            .context = data.context};
  if (function.point != OrderPoint::enter) return;
  if (records) flight.seq = take_moment().seq;
  if (!keeps) return;
  CallRecord asked{};
  asked.call = function.call;
  asked.device = thread.device;
  asked.context = thread.context;
  function.fill(data.params, asked, false);
  live_before(asked);
}

void leave(Thread& thread, const Function& function, std::uint32_t id,
           const cupti::CallbackData& data) noexcept {
  if (!flight.under_way || flight.id != id || flight.correlation != data.correlation_id) return;
  flight.under_way = false;
  const auto code = data.result != nullptr ? *static_cast<const Code*>(data.result) : 0;
  CallRecord made{};
  made.ticks = flight.begun;
  made.call = function.call;
  made.device = thread.device;
  made.context = thread.context;
  made.result = code;
  function.fill(data.params, made, code == 0);
  if ((shared.mode & mode::keeping) != 0) live_after(made);
  if (flight.window != 0 && (function.point != OrderPoint::exit_ok || code == 0)) {
    const auto seq = function.point == OrderPoint::enter ? flight.seq : take_moment().seq;
    const auto took = ticks() - flight.begun;
    made.duration = took < ~std::uint32_t{0} ? static_cast<std::uint32_t>(took) : ~std::uint32_t{0};
    if ((shared.mode & mode::annotating) != 0) annotate(thread, function.call, nullptr);
    if (auto* const record = make_room(thread); record != nullptr) {
      *record = made;
      thread.kernels = nullptr;
      publish(thread, *record, seq);
    } else {
      count_lost();
    }
  }
  if (function.call == Call::ctx_destroy && code == 0) forget_context(made.address);
  thread.inside = false;
}

void on_call(void*, int domain, std::uint32_t id, const void* about) {
  if (domain != cupti::kDriverApi || id >= kIdsMost || by_id[id] == nullptr) return;
  const auto& function = *by_id[id];
  const auto& data = *static_cast<const cupti::CallbackData*>(about);
  auto& thread = self;
  if (function.call == Call::kernels) {
    const bool worked = data.site == cupti::kExit && data.result != nullptr &&
                        *static_cast<Code*>(data.result) == 0;
    if (!worked || thread.inside) return;
    CallRecord launched{};
    function.fill(data.params, launched, true);
    return count_kernel(launched.stream);
  }
  if (data.site == cupti::kEnter) {
    enter(thread, function, id, data);
  } else {
    leave(thread, function, id, data);
  }
}

void say(const char* words, const char* what) noexcept {
  char line[512];
  const int size = std::snprintf(
      line, sizeof line, "emmctl record: CUPTI does not record this program: %s%s\n", words, what);
  if (size > 0 && ::write(STDERR_FILENO, line, std::strlen(line)) < 0) return;
}

// The newest toolkit first; the last is the link of a development package.
constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};

/// Looks for CUPTI beside NVIDIA's other wheels when one of them is loaded.
int find_wheel(dl_phdr_info* about, std::size_t, void* found) {
  const char* const wheel =
      about->dlpi_name != nullptr ? std::strstr(about->dlpi_name, "/nvidia/") : nullptr;
  if (wheel == nullptr) return 0;
  const auto size = static_cast<int>(wheel - about->dlpi_name);
  for (const char* const part : {"cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"}) {
    char path[1024];
    std::snprintf(path, sizeof path, "%.*s/nvidia/%s", size, about->dlpi_name, part);
    if (::access(path, R_OK) != 0) continue;
    std::snprintf(static_cast<char*>(found), sizeof path, "%s", path);
    return 1;
  }
  return 0;
}

/// Prefers a copy of CUPTI that is loaded already, because two copies in one process disturb each
/// other. Otherwise tries EMM_CUPTI, a wheel, the loader's search path and the toolkit, in this
/// order.
void* find_library() noexcept {
  for (const char* const name : kNames) {
    if (void* const loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  }
  if (const char* const given = std::getenv("EMM_CUPTI"); given != nullptr && *given != '\0')
    return dlopen(given, RTLD_NOW | RTLD_LOCAL);
  char wheel[1024] = "";
  if (dl_iterate_phdr(find_wheel, wheel) != 0) {
    if (void* const library = dlopen(wheel, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  for (const char* const name : kNames) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  const char* const home = std::getenv("CUDA_HOME");
  for (const char* const toolkit : {home != nullptr ? home : "", "/usr/local/cuda"}) {
    for (const char* const part : {"extras/CUPTI/lib64", "lib64"}) {
      char path[1024];
      std::snprintf(path, sizeof path, "%s/%s/libcupti.so", toolkit, part);
      if (void* const library = *toolkit == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr)
        return library;
    }
  }
  return nullptr;
}

// Numbers of callbacks differ between versions of CUPTI, so functions are found by their names. Any
// failure leaves the program unrecorded and running, and is said once.
void subscribe() noexcept {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return say("libcuda.so.1 is not loaded", "");
  void* const library = find_library();
  if (library == nullptr) return say("libcupti.so was not found", "; EMM_CUPTI may name it");
  cupti::Functions call{};
  const auto find = [&](auto& function, const char* name) {
    void* const found = dlsym(library, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    return found != nullptr;
  };
  for (const bool found :
       {find(call.get_version, "cuptiGetVersion"), find(call.subscribe, "cuptiSubscribe"),
        find(call.enable_callback, "cuptiEnableCallback"),
        find(call.get_callback_name, "cuptiGetCallbackName"),
        find(call.get_result_string, "cuptiGetResultString")}) {
    if (!found) return say("libcupti.so lacks functions: expected that of CUDA 11 or later", "");
  }
  std::uint32_t version = 0;
  if (call.get_version(&version) != 0 || version < cupti::kOldest)
    return say("libcupti.so is old: expected that of CUDA 11 or later", "");
  Dl_info about{};
  char path[512] = "libcuda.so.1";
  if (void* const symbol = dlsym(driver, "cuInit"); dladdr(symbol, &about) != 0)
    std::snprintf(path, sizeof path, "%s", about.dli_fname);
  find_real(driver, path);
  begin(nullptr);
  cupti::Subscriber subscriber = nullptr;
  char other[cupti::kSubscriberNameBytes] = "";
  (void)find(call.subscribe_v2, "cuptiSubscribe_v2");
  cupti::SubscriberParams params{.bytes = sizeof params,
                                 .name = "emmctl record",
                                 .other_name = other,
                                 .other_name_bytes = sizeof other};
  const int result = call.subscribe_v2 != nullptr
                         ? call.subscribe_v2(&subscriber, on_call, nullptr, &params)
                         : call.subscribe(&subscriber, on_call, nullptr);
  if (result != 0) {
    other[sizeof other - 1] = '\0';
    if (result == cupti::kSeveralSubscribers && other[0] != '\0')
      return say("another tool has subscribed: ", other);
    if (result == cupti::kSeveralSubscribers)
      return say("another tool has subscribed", ", as Nsight and torch.profiler do");
    const char* words = nullptr;
    (void)call.get_result_string(result, &words);
    return say("", words != nullptr ? words : "cuptiSubscribe failed");
  }
  std::uint32_t unknown = 0;
  // A version leaves out a number here and there; a long run without names is the end.
  for (std::uint32_t id = 1; id < kIdsMost && unknown < 64; ++id) {
    const char* name = nullptr;
    if (call.get_callback_name(cupti::kDriverApi, id, &name) != 0 || name == nullptr) {
      ++unknown;
      continue;
    }
    unknown = 0;
    for (const auto& function : kFunctions) {
      if (std::strcmp(function.name, name) != 0) continue;
      by_id[id] = &function;
      if (call.enable_callback(1, subscriber, cupti::kDriverApi, id) != 0) by_id[id] = nullptr;
    }
  }
}

}  // namespace
}  // namespace emm::record

/// cuInit calls this function of the library that CUDA_INJECTION64_PATH names.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  if (!emm::record::has_forwarding_library()) emm::record::subscribe();
  return 1;
}
