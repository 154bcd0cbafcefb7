// Streams, events and host functions. Modules can be loaded. They have functions where a whole
// program runs, whose kernels are skipped.
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "standin/calls.hpp"
#include "standin/graph.hpp"
#include "standin/library_memory.hpp"
#include "standin/report.hpp"
#include "standin/work.hpp"

using namespace emm::standin;

namespace {

using HostFunction = void (*)(void*);
using Callback = void (*)(Handle stream, Code code, void* argument);

/// When each event was last recorded, on the device's clock.
std::mutex recorded_mutex;
std::unordered_map<Handle, std::uint64_t>& recorded() {
  static auto* times = new std::unordered_map<Handle, std::uint64_t>;
  return *times;
}

struct CallbackCall {
  Callback function;
  Handle stream;
  void* argument;
};

void run(void* argument) {
  const std::unique_ptr<CallbackCall> call(static_cast<CallbackCall*>(argument));
  call->function(call->stream, Machine::kSuccess, call->argument);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Code cuStreamCreate(Handle* out, unsigned flags) {
  if (flags > 1) return Machine::kInvalidValue;
  if (const auto code = take_for_stream(); code != Machine::kSuccess) return code;
  return in_context(
      [&](emm::Driver& driver) {
        return driver.stream_create(static_cast<emm::StreamKind>(flags));
      },
      [&](emm::StreamHandle made) {
        *out = made.value;
        begin_stream(made.value);
        if (flags != 0) work::made_apart(made.value);
      });
}
Code cuStreamCreateWithPriority(Handle* out, unsigned flags, int) {
  return cuStreamCreate(out, flags);
}
Code cuStreamDestroy_v2(Handle on) {
  work::forget_stream(on);
  const auto code =
      in_context([&](emm::Driver& driver) { return driver.stream_destroy(stream(on)); });
  if (code == Machine::kSuccess) end_stream(on);
  return code;
}
Code cuStreamSynchronize(Handle on) {
  if (graph::is_capturing(on)) return graph::refuse(on);
  return in_context([&](emm::Driver& driver) { return driver.stream_synchronize(stream(on)); });
}
Code cuStreamQuery(Handle on) {
  if (graph::is_capturing(on)) return graph::refuse(on);
  if (work::holds_stream(on)) return Machine::kNotReady;
  return ask([&](emm::Driver& driver) { return driver.stream_query(stream(on)); });
}
Code cuStreamWaitEvent(Handle on, Handle event, unsigned) {
  if (graph::join(on, event)) return Machine::kSuccess;
  work::waits(on, event);
  return in_context(
      [&](emm::Driver& driver) { return driver.stream_wait_event(stream(on), {event}); });
}
Code cuLaunchHostFunc(Handle on, HostFunction function, void* argument) {
  if (graph::is_capturing(on)) return graph::add_host_function(on, function, argument);
  return in_context(
      [&](emm::Driver& driver) { return driver.launch_host_func(stream(on), function, argument); });
}
Code cuStreamAddCallback(Handle on, Callback callback, void* argument, unsigned flags) {
  if (flags != 0) return Machine::kInvalidValue;
  if (graph::is_capturing(on)) return graph::refuse(on);
  auto call = std::make_unique<CallbackCall>(CallbackCall{callback, on, argument});
  const auto code = cuLaunchHostFunc(on, run, call.get());
  if (code == Machine::kSuccess) (void)call.release();  // run() deletes it
  return code;
}

Code cuEventCreate(Handle* out, unsigned) {
  return in_context([](emm::Driver& driver) { return driver.event_create(); },
                    [&](emm::EventHandle made) { *out = made.value; });
}
Code cuEventDestroy_v2(Handle event) {
  {
    const std::lock_guard lock(recorded_mutex);
    recorded().erase(event);
  }
  graph::forget_event(event);
  work::forget_event(event);
  return in_context([&](emm::Driver& driver) { return driver.event_destroy({event}); });
}
Code cuEventRecord(Handle event, Handle on) {
  if (graph::is_capturing(on)) return graph::add_event(event, on);
  graph::forget_event(event);
  work::recorded(event, on);
  const auto code =
      in_context([&](emm::Driver& driver) { return driver.event_record({event}, stream(on)); });
  if (code != Machine::kSuccess) return code;
  const std::lock_guard lock(recorded_mutex);
  recorded()[event] = Machine::started()->clock().now_ns();
  return code;
}
Code cuEventQuery(Handle event) {
  if (work::holds_event(event)) return Machine::kNotReady;
  return ask([&](emm::Driver& driver) { return driver.event_query({event}); });
}
Code cuEventSynchronize(Handle event) {
  return in_context([&](emm::Driver& driver) { return driver.event_synchronize({event}); });
}
Code cuEventElapsedTime(float* ms, Handle start, Handle end) {
  const std::lock_guard lock(recorded_mutex);
  const auto first = recorded().find(start), last = recorded().find(end);
  if (first == recorded().end() || last == recorded().end()) return 400;  // invalid handle
  *ms = static_cast<float>(static_cast<double>(last->second) - static_cast<double>(first->second)) /
        1e6f;
  return Machine::kSuccess;
}
Code cuEventElapsedTime_v2(float* ms, Handle start, Handle end) {
  return cuEventElapsedTime(ms, start, end);
}

Code cuLibraryLoadData(Handle* out, const void* code, int*, void**, unsigned, int*, void**,
                       unsigned) {
  return in_context(
      [&](emm::Driver& driver) {
        return driver.library_load({static_cast<const std::byte*>(code), 1});
      },
      [&](emm::LibraryHandle made) { *out = made.value; });
}
Code cuLibraryUnload(Handle library) {
  return in_context([&](emm::Driver& driver) { return driver.library_unload({library}); });
}
Code cuModuleLoadDataEx(Handle* out, const void* image, unsigned, int*, void**) {
  return cuLibraryLoadData(out, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}
Code cuModuleLoadData(Handle* out, const void* image) {
  return cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}
Code cuModuleUnload(Handle module) { return cuLibraryUnload(module); }
Code cuModuleGetFunction(Handle* out, Handle, const char*) {
  if (!is_whole_program()) return Machine::kNotFound;
  static std::atomic<Handle> last{0x6b000000};
  *out = ++last;
  return Machine::kSuccess;
}
Code cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    Handle, void**, void**) {
  auto* const report = Report::of_this_process();
  if (report == nullptr) return Machine::kNotSupported;  // nothing here runs kernels
  if (const auto code = take_for_kernel(); code != Machine::kSuccess) return code;
  report->add_kernel();
  graph::note_kernel();
  return in_context([](emm::Driver&) { return emm::Status(); });
}
Code cuFuncGetAttribute(int* value, int attribute, Handle) {
  if (!is_whole_program()) return Machine::kNotSupported;
  *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;  // threads of a block, registers
  return Machine::kSuccess;
}
Code cuFuncSetAttribute(Handle, int, int) {
  return is_whole_program() ? Machine::kSuccess : Machine::kNotSupported;
}
Code cuFuncSetCacheConfig(Handle, int) {
  return is_whole_program() ? Machine::kSuccess : Machine::kNotSupported;
}
Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle, int, std::size_t) {
  if (!is_whole_program()) return Machine::kNotSupported;
  *blocks = 1;
  return Machine::kSuccess;
}
Code cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Handle, int, std::size_t,
                                                          unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, 0, 0, 0);
}
Code cuOccupancyMaxPotentialBlockSize(int* grid, int* block, Handle, void*, std::size_t, int) {
  if (!is_whole_program()) return Machine::kNotSupported;
  *grid = Machine::started()->gpu().multiprocessors;
  *block = 1024;
  return Machine::kSuccess;
}
Code cuProfilerStart() { return Machine::kSuccess; }
Code cuProfilerStop() { return Machine::kSuccess; }

}  // extern "C"
#pragma GCC visibility pop
