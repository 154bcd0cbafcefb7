// Memory and its content.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <span>
#include <unordered_map>

#include "driver/sim/content.hpp"
#include "standin/calls.hpp"
#include "standin/report.hpp"

using namespace emm::standin;

namespace {

emm::HostPtr host(void* ptr) { return static_cast<emm::HostPtr>(ptr); }
emm::HostAllocFlags alloc_flags(unsigned bits) {
  return {.mapped = (bits & 2) != 0, .portable = (bits & 1) != 0, .wc = (bits & 4) != 0};
}
emm::HostRegisterFlags register_flags(unsigned bits) {
  return {.mapped = (bits & 2) != 0,
          .portable = (bits & 1) != 0,
          .read_only = (bits & 8) != 0,
          .io = (bits & 4) != 0};
}

/// The flags that host memory was asked for with, by its address. What ended stays until its
/// address is given again.
class HostFlags {
 public:
  static void keep(const void* ptr, unsigned flags) {
    const std::lock_guard lock(mutex);
    by_address[reinterpret_cast<Address>(ptr)] = flags;
  }
  static unsigned of(Address address) {
    const std::lock_guard lock(mutex);
    return by_address[address];
  }

 private:
  static inline std::mutex mutex;
  static inline std::unordered_map<Address, unsigned> by_address;
};

/// Tests set another one.
std::uint64_t bound(const char* name, std::uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}
std::uint64_t most_content() {
  static const auto most = bound("EMM_STANDIN_CONTENT", kMostContent);
  return most;
}

/// Counts what the program writes to the devices.
std::atomic<std::uint64_t> writes{0};

/// Ends the process where it reads the same again and again, and nothing can change it.
void end_if_it_waits(Address from, std::size_t size) {
  static const auto most = bound("EMM_STANDIN_READS", kMostReads);
  thread_local Address last = 0;
  thread_local std::uint64_t seen = 0, times = 0;
  const auto written = writes.load(std::memory_order_relaxed);
  times = from == last && written == seen ? times + 1 : 0;
  last = from;
  seen = written;
  if (times < most) return;
  auto* const report = Report::of_this_process();
  if (report == nullptr) return;
  report->set_waited(size);
  std::fflush(nullptr);
  _exit(3);
}

/// Copies to the device. Of a whole program, what is large keeps no content, so that the tensors of
/// a program do not take the host's memory twice.
emm::Status copy_to_device(emm::Driver& driver, Address to, const void* from, std::size_t size) {
  auto* const report = Report::of_this_process();
  writes.fetch_add(1, std::memory_order_relaxed);
  if (report != nullptr && (size > kKeptContent || emm::sim::kept_bytes() > most_content())) {
    report->add_unread(size);
    return driver.memset_d8({to}, 0, size);
  }
  return driver.memcpy_htod({to}, {static_cast<const std::byte*>(from), size});
}

/// What this thread's next small copies to the host hold, in place of what was never computed.
std::deque<std::uint64_t>& answers() {
  thread_local std::deque<std::uint64_t> next;
  return next;
}

/// Copies from the device. The numbers that a framework reads to know a size are small.
emm::Status copy_to_host(emm::Driver& driver, void* to, Address from, std::size_t size) {
  // Bytes: a few numbers, as nonzero() and item() read them.
  constexpr std::size_t kMostOfNumber = 64;
  const std::span bytes(static_cast<std::byte*>(to), size);
  if (size <= kMostOfNumber) end_if_it_waits(from, size);
  auto done = driver.memcpy_dtoh(bytes, {from});
  if (!done || size > kMostOfNumber || answers().empty()) return done;
  const auto number = answers().front();
  answers().pop_front();
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  std::memcpy(to, &number, std::min(size, sizeof number));
  return done;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

/// Not a CUDA function. emmctl's Python package, which knows what an operation would have counted,
/// gives the `count` numbers before the operation runs, and none after it.
void emm_standin_answer_reads(const std::uint64_t* numbers, std::size_t count) {
  answers().assign(numbers, numbers + count);
}

Code cuMemAlloc_v2(Address* out, std::size_t size) {
  writes.fetch_add(1, std::memory_order_relaxed);  // the program goes on
  return in_context([&](emm::Driver& driver) { return driver.mem_alloc(size); },
                    [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
// Works without a current context, too (measured on an H200), since an address belongs to one
// device.
Code cuMemFree_v2(Address ptr) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  auto* driver =
      Machine::current() != nullptr ? Machine::current()->device.driver.get() : machine->device(0);
  const auto done = driver->mem_free({ptr});
  return done ? Machine::kSuccess : done.error().native;
}
Code cuMemAllocManaged(Address* out, std::size_t size, unsigned flags) {
  return in_context(
      [&](emm::Driver& driver) {
        return driver.mem_alloc_managed(size, static_cast<emm::AttachFlags>(flags & 0xff));
      },
      [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
Code cuMemHostAlloc(void** out, std::size_t size, unsigned flags) {
  if (flags > 7) return Machine::kInvalidValue;
  return in_context(
      [&](emm::Driver& driver) { return driver.mem_host_alloc(size, alloc_flags(flags)); },
      [&](emm::HostPtr ptr) {
        HostFlags::keep(ptr, flags);
        *out = ptr;
      });
}
Code cuMemAllocHost_v2(void** out, std::size_t size) { return cuMemHostAlloc(out, size, 0); }
Code cuMemFreeHost(void* ptr) {
  return in_context([&](emm::Driver& driver) { return driver.mem_free_host(host(ptr)); });
}
Code cuMemHostRegister_v2(void* ptr, std::size_t size, unsigned flags) {
  if (flags > 15) return Machine::kInvalidValue;
  return in_context([&](emm::Driver& driver) {
    auto done = driver.mem_host_register({host(ptr), size}, register_flags(flags));
    if (done) HostFlags::keep(ptr, flags);
    return done;
  });
}
Code cuMemHostUnregister(void* ptr) {
  return in_context([&](emm::Driver& driver) { return driver.mem_host_unregister(host(ptr)); });
}
Code cuMemHostGetDevicePointer_v2(Address* out, void* ptr, unsigned flags) {
  if (flags != 0) return Machine::kInvalidValue;
  return in_context(
      [&](emm::Driver& driver) { return driver.mem_host_get_device_pointer(host(ptr)); },
      [&](emm::DevicePtr found) { *out = found.value; });
}
Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return in_context([](emm::Driver& driver) { return driver.mem_get_info(); },
                    [&](emm::MemoryInfo info) {
                      *free = info.free;
                      *total = info.total;
                    });
}
Code cuMemGetAddressRange_v2(Address* base, std::size_t* size, Address ptr) {
  return in_context([&](emm::Driver& driver) { return driver.mem_get_address_range({ptr}); },
                    [&](emm::AddressRange range) {
                      if (base != nullptr) *base = range.base.value;
                      if (size != nullptr) *size = range.size;
                    });
}

Code cuIpcGetMemHandle(emm::IpcMemHandle* out, Address ptr) {
  return in_context([&](emm::Driver& driver) { return driver.ipc_get_mem_handle({ptr}); },
                    [&](const emm::IpcMemHandle& handle) { *out = handle; });
}
Code cuIpcOpenMemHandle_v2(Address* out, emm::IpcMemHandle handle, unsigned) {
  return in_context([&](emm::Driver& driver) { return driver.ipc_open_mem_handle(handle); },
                    [&](emm::DevicePtr ptr) { *out = ptr.value; });
}
Code cuIpcOpenMemHandle(Address* out, emm::IpcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}
Code cuIpcCloseMemHandle(Address ptr) {
  return in_context([&](emm::Driver& driver) { return driver.ipc_close_mem_handle({ptr}); });
}

// CU_POINTER_ATTRIBUTE_*
Code cuPointerGetAttribute(void* out, int attribute, Address ptr) {
  auto* context = Machine::current();
  if (context == nullptr) return Machine::kInvalidContext;
  auto& driver = *context->device.driver;
  const auto range = driver.mem_get_address_range({ptr});
  if (!range) return Machine::kInvalidValue;
  const bool is_host =
      driver
          .mem_host_get_device_pointer(reinterpret_cast<emm::HostPtr>(ptr))  // NOLINT
          .has_value();
  const auto put = [out](auto value) {
    std::memcpy(out, &value, sizeof value);
    return Machine::kSuccess;
  };
  switch (attribute) {
    case 1:
      return put(context);
    case 2:
      return put(is_host ? 1u : 2u);
    case 3:
      return put(ptr);
    case 4:
      return is_host ? put(ptr) : Machine::kInvalidValue;
    case 8:
      return put(0u);
    case 9:
      return put(context->ordinal);
    case 11:
      return put(range->base.value);
    case 12:
      return put(range->size);
    case 13:
      return put(1u);
    default:
      return Machine::kNotSupported;
  }
}
Code cuMemHostGetFlags(unsigned* flags, void* ptr) {
  auto base = reinterpret_cast<Address>(ptr);
  return in_context(
      [&](emm::Driver& driver) {
        if (const auto range = driver.mem_get_address_range({base})) base = range->base.value;
        return driver.mem_host_get_device_pointer(host(ptr));
      },
      [&](emm::DevicePtr) { *flags = HostFlags::of(base); });
}

Code cuMemsetD8_v2(Address ptr, unsigned char value, std::size_t size) {
  writes.fetch_add(1, std::memory_order_relaxed);
  return in_context([&](emm::Driver& driver) { return driver.memset_d8({ptr}, value, size); });
}
Code cuMemsetD32_v2(Address ptr, unsigned value, std::size_t count) {
  writes.fetch_add(1, std::memory_order_relaxed);
  return in_context([&](emm::Driver& driver) { return driver.memset_d32({ptr}, value, count); });
}
Code cuMemcpyHtoD_v2(Address to, const void* from, std::size_t size) {
  return in_context([&](emm::Driver& driver) { return copy_to_device(driver, to, from, size); });
}
Code cuMemcpyDtoH_v2(void* to, Address from, std::size_t size) {
  return in_context([&](emm::Driver& driver) { return copy_to_host(driver, to, from, size); });
}
Code cuMemcpyDtoD_v2(Address to, Address from, std::size_t size) {
  writes.fetch_add(1, std::memory_order_relaxed);
  return in_context([&](emm::Driver& driver) { return driver.memcpy_dtod({to}, {from}, size); });
}
Code cuMemcpyPeer(Address to, ContextPtr to_context, Address from, ContextPtr from_context,
                  std::size_t size) {
  auto* machine = Machine::started();
  if (machine == nullptr) return Machine::kNotInitialized;
  if (!machine->is_context(to_context) || !machine->is_context(from_context))
    return Machine::kInvalidContext;
  return in_context([&](emm::Driver& driver) {
    return driver.memcpy_peer({to}, to_context->device.driver->context_handle(), {from},
                              from_context->device.driver->context_handle(), size);
  });
}

Code cuMemsetD8Async(Address ptr, unsigned char value, std::size_t size, Handle on) {
  writes.fetch_add(1, std::memory_order_relaxed);
  return in_context(
      [&](emm::Driver& driver) { return driver.memset_d8_async({ptr}, value, size, stream(on)); });
}
Code cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t size, Handle on) {
  writes.fetch_add(1, std::memory_order_relaxed);
  return in_context([&](emm::Driver& driver) {
    return driver.memcpy_dtod_async({to}, {from}, size, stream(on));
  });
}
// Waits for the earlier work on the stream and then copies at once, which CUDA allows.
Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t size, Handle on) {
  return in_context([&](emm::Driver& driver) -> emm::Status {
    if (auto done = driver.stream_synchronize(stream(on)); !done) return done;
    return copy_to_device(driver, to, from, size);
  });
}
Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t size, Handle on) {
  return in_context([&](emm::Driver& driver) -> emm::Status {
    if (auto done = driver.stream_synchronize(stream(on)); !done) return done;
    return copy_to_host(driver, to, from, size);
  });
}

}  // extern "C"
#pragma GCC visibility pop
