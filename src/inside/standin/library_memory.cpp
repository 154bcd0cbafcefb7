#include "standin/library_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <unordered_map>

#include "driver/sim/sim_platform.hpp"
#include "standin/calls.hpp"
#include "standin/report.hpp"

using namespace emm::standin;

namespace emm::standin {
namespace {

/// Null where nothing is counted.
const LibraryMemory* figures() {
  auto* const machine = Machine::started();
  return machine != nullptr && is_whole_program() ? machine->libraries() : nullptr;
}

/// The device of a context that lives; null else.
sim::SimDevice* device_of(const Machine::Context& context) {
  return Machine::started()->simulated()->device_of(context.device.driver->context_handle());
}

/// REQUIRES: the caller holds the context's mutex, and figures() is not null.
Code take(Machine::Context& context, std::uint64_t bytes) {
  if (bytes == 0) return Machine::kSuccess;
  auto* const device = device_of(context);
  if (device == nullptr) return Machine::kSuccess;  // the call itself says that it has ended
  const auto code =
      device->take_pages(context.device.driver->context_handle(), bytes / kGpuGranule);
  auto& report = *Report::of_this_process();
  const auto held = context.device.driver->held_bytes();
  if (code == Machine::kOutOfMemory) report.note_refused(context.number, bytes, held);
  if (code != Machine::kSuccess) return code;
  context.libraries.bytes += bytes;
  report.note_libraries(context.number, context.libraries.bytes, held);
  return code;
}

/// REQUIRES: as above.
void release(Machine::Context& context, std::uint64_t bytes) {
  auto* const device = device_of(context);
  if (device == nullptr) return;  // a context's end gives all of it back
  device->release_pages(context.device.driver->context_handle(), bytes / kGpuGranule);
  context.libraries.bytes -= bytes;
  Report::of_this_process()->note_libraries(context.number, context.libraries.bytes,
                                            context.device.driver->held_bytes());
}

/// The contexts of streams that live, by handle.
std::mutex streams_mutex;
std::unordered_map<Handle, Machine::Context*>& streams() {
  static auto& made = *new std::unordered_map<Handle, Machine::Context*>;
  return made;
}

std::uint64_t bytes_of(const LibraryMemory& row, int taker) {
  return taker == blas_handle     ? row.blas_handle
         : taker == dnn_handle    ? row.dnn_handle
         : taker == solver_handle ? row.solver_handle
                                  : 0;
}

/// Is PyTorch among the libraries of the process? Looks only when some were loaded since.
bool has_pytorch() {
  static std::atomic<bool> is_known{false};
  static std::atomic<unsigned long long> looked_at{0};
  if (is_known.load(std::memory_order_relaxed)) return true;
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<unsigned long long*>(to) = info->dlpi_adds;
        return 1;  // each has the same number
      },
      &loaded);
  if (looked_at.exchange(loaded) == loaded) return false;
  void* const found = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (found == nullptr) return false;
  dlclose(found);
  is_known = true;
  return true;
}

}  // namespace

Code take_for_kernel() {
  auto* const context = Machine::current();
  if (context == nullptr || context->libraries.has_pytorch.load(std::memory_order_relaxed))
    return Machine::kSuccess;
  const auto* const row = figures();
  if (row == nullptr || !has_pytorch()) return Machine::kSuccess;
  const std::lock_guard lock(context->libraries.mutex);
  if (context->libraries.has_pytorch) return Machine::kSuccess;
  const auto code = take(*context, row->pytorch_kernels);
  context->libraries.has_pytorch = code == Machine::kSuccess;
  return code;
}

Code take_for_stream() {
  auto* const context = Machine::current();
  if (context == nullptr || figures() == nullptr) return Machine::kSuccess;
  auto& use = context->libraries;
  const std::lock_guard lock(use.mutex);
  ++use.streams;
  if (use.streams <= use.most) return Machine::kSuccess;
  const auto code =
      take(*context, LibraryMemory::of_streams(use.streams) - LibraryMemory::of_streams(use.most));
  if (code != Machine::kSuccess) {
    --use.streams;
    return code;
  }
  use.most = use.streams;
  return code;
}

void begin_stream(Handle stream) {
  auto* const context = Machine::current();
  if (context == nullptr || figures() == nullptr) return;
  const std::lock_guard lock(streams_mutex);
  streams()[stream] = context;
}

void end_stream(Handle stream) {
  if (figures() == nullptr) return;
  Machine::Context* context = nullptr;
  {
    const std::lock_guard lock(streams_mutex);
    const auto found = streams().find(stream);
    if (found == streams().end()) return;
    context = found->second;
    streams().erase(found);
  }
  const std::lock_guard lock(context->libraries.mutex);
  if (context->libraries.streams != 0) --context->libraries.streams;
}

}  // namespace emm::standin

#pragma GCC visibility push(default)
extern "C" {

Code emm_standin_take_for_library(int taker, void** holder) {
  *holder = nullptr;
  auto* const context = Machine::current();
  const auto* const row = figures();
  if (context == nullptr || row == nullptr) return Machine::kSuccess;
  auto& use = context->libraries;
  const std::lock_guard lock(use.mutex);
  auto bytes = bytes_of(*row, taker);
  if (taker == fft_plan) {
    if (!use.has_plan) bytes += row->fft_first;
  } else {
    if (!use.has_handle) bytes += row->first_handle;
    if (taker == blas_handle && !use.has_blas) bytes += row->blas_kernels;
  }
  if (const auto code = take(*context, bytes); code != Machine::kSuccess) return code;
  use.has_plan |= taker == fft_plan;
  use.has_handle |= taker != fft_plan;
  use.has_blas |= taker == blas_handle;
  *holder = context;
  return Machine::kSuccess;
}

void emm_standin_release_of_library(int taker, void* holder) {
  const auto* const row = figures();
  if (holder == nullptr || row == nullptr) return;
  auto& context = *static_cast<ContextPtr>(holder);  // kept to the end of the process
  const std::lock_guard lock(context.libraries.mutex);
  release(context, bytes_of(*row, taker));
}

}  // extern "C"
#pragma GCC visibility pop
