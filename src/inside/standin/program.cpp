// What whole programs ask of the driver besides memory managers: links and functions of modules,
// priorities, limits, copies by address. Kernels are skipped.
#include <atomic>
#include <cstring>

#include "standin/calls.hpp"
#include "standin/graph.hpp"
#include "standin/library_memory.hpp"
#include "standin/report.hpp"

using namespace emm::standin;

namespace {

/// Handles of things that nothing here looks into.
Handle new_handle() {
  static std::atomic<Handle> last{0x6c000000};
  return ++last;
}

/// Is it an address of a device? All of those are above all of a host.
bool is_of_device(Address address) {
  constexpr Address kFirst = Address{1} << 48;  // user space of x86-64 ends at 2^47
  return address >= kFirst;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuMemcpyHtoD_v2(Address, const void*, std::size_t);
Code cuMemcpyDtoH_v2(void*, Address, std::size_t);
Code cuMemcpyDtoD_v2(Address, Address, std::size_t);
Code cuMemsetD32_v2(Address, unsigned, std::size_t);
Code cuStreamSynchronize(Handle);
Code cuPointerGetAttribute(void*, int, Address);
Code cuLibraryLoadData(Handle*, const void*, int*, void**, unsigned, int*, void**, unsigned);

/// Not a CUDA function. cudart's stand-in counts kernels by it.
Code emm_standin_skip_kernel() {
  auto* const report = Report::of_this_process();
  if (report == nullptr) return Machine::kNotSupported;
  const auto code = take_for_kernel();
  if (code != Machine::kSuccess) return code;
  report->add_kernel();
  graph::note_kernel();
  return code;
}

/// Likewise: a library of CUDA's begins in the context, and loads its kernels.
Code emm_standin_load_kernels() {
  auto* const context = Machine::current();
  if (context != nullptr && context->has_kernels.exchange(true)) return Machine::kSuccess;
  return in_context([](emm::Driver& driver) { return driver.library_load({}); });
}

Code cuLaunchKernelEx(const void*, Handle, void**, void**) { return emm_standin_skip_kernel(); }
Code cuLaunchCooperativeKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, Handle, void**) {
  return emm_standin_skip_kernel();
}
Code cuLibraryGetKernel(Handle* out, Handle, const char*) {
  if (!is_whole_program()) return Machine::kNotFound;
  *out = new_handle();
  return Machine::kSuccess;
}
Code cuLibraryGetModule(Handle* out, Handle library) {
  *out = library;
  return Machine::kSuccess;
}
Code cuKernelGetFunction(Handle* out, Handle kernel) {
  *out = kernel;
  return Machine::kSuccess;
}
Code cuModuleLoad(Handle* out, const char*) {
  return cuLibraryLoadData(out, "", nullptr, nullptr, 0, nullptr, nullptr, 0);
}
Code cuModuleLoadFatBinary(Handle* out, const void*) { return cuModuleLoad(out, nullptr); }
Code cuModuleGetGlobal_v2(Address*, std::size_t*, Handle, const char*) {
  return Machine::kNotFound;  // a module's variables are not known
}

// A link gives an image of a byte: nothing here reads what a module is made of.
Code cuLinkCreate_v2(unsigned, int*, void**, Handle* out) {
  *out = new_handle();
  return Machine::kSuccess;
}
Code cuLinkAddData_v2(Handle, int, void*, std::size_t, const char*, unsigned, int*, void**) {
  return Machine::kSuccess;
}
Code cuLinkAddFile_v2(Handle, int, const char*, unsigned, int*, void**) {
  return Machine::kSuccess;
}
Code cuLinkComplete(Handle, void** image, std::size_t* size) {
  static char made[1] = {};
  *image = made;
  *size = sizeof made;
  return Machine::kSuccess;
}
Code cuLinkDestroy(Handle) { return Machine::kSuccess; }

Code cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return Machine::kSuccess;
}
Code cuStreamGetPriority(Handle, int* priority) {
  *priority = 0;
  return Machine::kSuccess;
}
Code cuStreamGetFlags(Handle, unsigned* flags) {
  *flags = 0;
  return Machine::kSuccess;
}
Code cuStreamGetCtx(Handle, ContextPtr* context) {
  *context = Machine::current();
  return *context != nullptr ? Machine::kSuccess : Machine::kInvalidContext;
}
Code cuStreamGetCtx_v2(Handle on, ContextPtr* context, Handle* green) {
  *green = 0;
  return cuStreamGetCtx(on, context);
}
Code cuCtxGetDevice_v2(Device* device, ContextPtr context) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  // Numba calls the second form, where there is one, with the arguments of the first.
  if (!machine->is_context(context)) context = Machine::current();
  if (context == nullptr) return Machine::kInvalidContext;
  *device = context->ordinal;
  return Machine::kSuccess;
}
Code cuCtxSynchronize_v2(ContextPtr context) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  // Numba calls the second form, where there is one, with the arguments of the first.
  if (!machine->is_context(context)) context = Machine::current();
  if (context == nullptr) return Machine::kInvalidContext;
  const auto done = context->device.driver->ctx_synchronize();
  return done ? Machine::kSuccess : done.error().native;
}
Code cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return Machine::kSuccess;
}
Code cuCtxGetLimit(std::size_t* value, int) {
  *value = 0;
  return Machine::kSuccess;
}
Code cuCtxSetLimit(int, std::size_t) { return Machine::kSuccess; }
Code cuCtxSetCacheConfig(int) { return Machine::kSuccess; }
Code cuDeviceGetP2PAttribute(int* value, int, Device, Device) {
  *value = 0;
  return Machine::kSuccess;
}
Code cuStreamWriteValue32_v2(Handle, Address, unsigned, unsigned) { return Machine::kSuccess; }
Code cuStreamWaitValue32_v2(Handle, Address, unsigned, unsigned) { return Machine::kSuccess; }
Code cuStreamWriteValue32(Handle, Address, unsigned, unsigned) { return Machine::kSuccess; }

// Memory of one process is not given to another one here, but by cuIpc*.
Code cuMemExportToShareableHandle(void*, Handle, int, unsigned long long) {
  return Machine::kNotSupported;
}
Code cuMemImportFromShareableHandle(Handle*, void*, int) { return Machine::kNotSupported; }
Code cuMemAdvise(Address, std::size_t, int, Device) { return Machine::kSuccess; }
Code cuMemPrefetchAsync(Address, std::size_t, Device, Handle) { return Machine::kSuccess; }
Code cuPointerSetAttribute(const void*, int, Address) { return Machine::kSuccess; }
Code cuPointerGetAttributes(unsigned count, int* attributes, void** values, Address ptr) {
  for (unsigned i = 0; i < count; ++i) (void)cuPointerGetAttribute(values[i], attributes[i], ptr);
  return Machine::kSuccess;
}
Code cuMemsetD32Async(Address ptr, unsigned value, std::size_t count, Handle on) {
  const auto code = cuStreamSynchronize(on);
  return code == Machine::kSuccess ? cuMemsetD32_v2(ptr, value, count) : code;
}
Code cuMemcpy(Address to, Address from, std::size_t size) {
  if (is_of_device(to) && is_of_device(from)) return cuMemcpyDtoD_v2(to, from, size);
  if (is_of_device(to)) return cuMemcpyHtoD_v2(to, reinterpret_cast<void*>(from), size);  // NOLINT
  if (is_of_device(from))
    return cuMemcpyDtoH_v2(reinterpret_cast<void*>(to), from, size);               // NOLINT
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);  // NOLINT
  return Machine::kSuccess;
}
Code cuMemcpyAsync(Address to, Address from, std::size_t size, Handle on) {
  const auto code = cuStreamSynchronize(on);
  return code == Machine::kSuccess ? cuMemcpy(to, from, size) : code;
}

}  // extern "C"
#pragma GCC visibility pop
