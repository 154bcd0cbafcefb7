#include "record/library/manager_driver.hpp"

#include <unistd.h>

#include <type_traits>

#include "record/library/address_table.hpp"
#include "record/library/cuda.hpp"
#include "record/library/real.hpp"
#include "record/library/served.hpp"

namespace emm::record {
namespace {

constexpr Code kEnded = 709;  // CUDA_ERROR_CONTEXT_IS_DESTROYED
constexpr int kRelaxed = 2;   // CU_STREAM_CAPTURE_MODE_RELAXED

// clang-format off
#define EMM_MANAGER_CALLS(call) \
  call(push, cuCtxPushCurrent_v2, (Handle)) \
  call(pop, cuCtxPopCurrent_v2, (Handle*)) \
  call(attribute, cuDeviceGetAttribute, (int*, int, int)) \
  call(ctx_synchronize, cuCtxSynchronize, ()) \
  call(mem_alloc, cuMemAlloc_v2, (Address*, Size)) \
  call(mem_free, cuMemFree_v2, (Address)) \
  call(mem_get_info, cuMemGetInfo_v2, (Size*, Size*)) \
  call(mem_get_address_range, cuMemGetAddressRange_v2, (Address*, Size*, Address)) \
  call(ipc_get_mem_handle, cuIpcGetMemHandle, (void*, Address)) \
  call(event_create, cuEventCreate, (Handle*, unsigned)) \
  call(event_destroy, cuEventDestroy_v2, (Handle)) \
  call(event_record, cuEventRecord, (Handle, Handle)) \
  call(event_query, cuEventQuery, (Handle)) \
  call(event_synchronize, cuEventSynchronize, (Handle)) \
  call(stream_create, cuStreamCreate, (Handle*, unsigned)) \
  call(stream_destroy, cuStreamDestroy_v2, (Handle)) \
  call(stream_synchronize, cuStreamSynchronize, (Handle)) \
  call(stream_query, cuStreamQuery, (Handle)) \
  call(stream_wait_event, cuStreamWaitEvent, (Handle, Handle, unsigned)) \
  call(granularity, cuMemGetAllocationGranularity, (Size*, const void*, int)) \
  call(mem_address_reserve, cuMemAddressReserve, (Address*, Size, Size, Address, unsigned long long)) \
  call(mem_address_free, cuMemAddressFree, (Address, Size)) \
  call(mem_create, cuMemCreate, (Handle*, Size, const void*, unsigned long long)) \
  call(mem_release, cuMemRelease, (Handle)) \
  call(mem_map, cuMemMap, (Address, Size, Size, Handle, unsigned long long)) \
  call(mem_unmap, cuMemUnmap, (Address, Size)) \
  call(mem_set_access, cuMemSetAccess, (Address, Size, const void*, Size)) \
  call(mem_pool_create, cuMemPoolCreate, (Handle*, const void*)) \
  call(mem_pool_destroy, cuMemPoolDestroy, (Handle)) \
  call(mem_pool_trim_to, cuMemPoolTrimTo, (Handle, Size)) \
  call(mem_pool_set_attribute, cuMemPoolSetAttribute, (Handle, int, const void*)) \
  call(mem_pool_get_attribute, cuMemPoolGetAttribute, (Handle, int, void*)) \
  call(default_mem_pool, cuDeviceGetDefaultMemPool, (Handle*, int)) \
  call(mem_alloc_async, cuMemAllocAsync, (Address*, Size, Handle)) \
  call(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync, (Address*, Size, Handle, Handle)) \
  call(mem_free_async, cuMemFreeAsync, (Address, Handle)) \
  call(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (int*))
// clang-format on

struct Functions {
#define EMM_MANAGER_CALL(name, symbol, parameters) Code(*name) parameters;
  EMM_MANAGER_CALLS(EMM_MANAGER_CALL)
#undef EMM_MANAGER_CALL
};
constinit Functions driver{};
constinit std::atomic<bool> captured{false};

/// Some memory of a manager is mapped; the program lets devices reach each other's.
constinit std::atomic<bool> maps{false}, has_peers{false};

void tell_of_peers() noexcept {
  static constinit std::atomic<bool> said{false};
  if (!maps.load() || !has_peers.load() || said.exchange(true)) return;
  constexpr char kWords[] =
      "emmctl run: kernels of another device cannot reach the manager's memory, since it is mapped "
      "for its own device alone; expected --manager pool:backing=cumem\n";
  if (::write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) return;
}

struct Owned {
  Address address;
};
/// Where allocations begin that the manager itself has from the driver.
constinit AddressTable<Owned> owned;

// CUmemAllocationProp and CUmemPoolProps begin as PoolProperties and AllocationProperties do.
struct WholeAllocationProperties : AllocationProperties {
  void* security = nullptr;
  unsigned char flags[16] = {};
};
struct WholePoolProperties : PoolProperties {
  unsigned char reserved[56] = {};
};
// CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE.
constexpr int kPinned = 1, kOnDevice = 1;

WholeAllocationProperties pinned_on(int device) noexcept {
  WholeAllocationProperties made{};
  made.type = kPinned;
  made.location = {kOnDevice, device};
  return made;
}

void own(Address ptr) noexcept { (void)owned.put({ptr}); }
void disown(Address ptr) noexcept {
  Owned was{};
  (void)owned.take(ptr, was);
}

}  // namespace

template <class MakeCall>
Code ManagerDriver::with_current(Code after_end, MakeCall call) noexcept {
  if (ended_.load(std::memory_order_acquire)) return after_end;
  Handle now = 0;
  if (const auto code = real().ctx_get_current(&now); code != 0) return code;
  if (now != context_) {
    if (const auto code = driver.push(context_); code != 0) return code;
  }
  int mode = kRelaxed;
  const bool relaxes =
      captured.load(std::memory_order_relaxed) && driver.exchange_capture_mode(&mode) == 0;
  const auto code = call();
  if (relaxes) (void)driver.exchange_capture_mode(&mode);
  if (now != context_) {
    Handle popped = 0;
    (void)driver.pop(&popped);
  }
  return code;
}

/// The functions of the table. After the end of the context its memory is gone and its work is
/// over: a free or a wait has nothing left to do then.
struct ManagerDriver::Slots {
  static ManagerDriver& of(void* user) noexcept { return *static_cast<ManagerDriver*>(user); }

  static emm_status mem_alloc(void* user, std::uint64_t size, Address* ptr) {
    auto& mine = of(user);
    mine.count_memory_call();
    const auto code = mine.with_current(kEnded, [&] { return driver.mem_alloc(ptr, size); });
    if (code == 0) own(*ptr);
    return code;
  }
  static emm_status mem_free(void* user, Address ptr) {
    disown(ptr);  // before the call: the driver may give the address to another thread meanwhile
    const auto code = of(user).with_current(0, [&] { return driver.mem_free(ptr); });
    if (code != 0) own(ptr);
    return code;
  }
  static emm_status mem_get_info(void* user, std::uint64_t* free, std::uint64_t* total) {
    return of(user).with_current(kEnded, [&] {
      Size left = 0, all = 0;
      const auto code = driver.mem_get_info(&left, &all);
      *free = left;
      *total = all;
      return code;
    });
  }
  static emm_status mem_get_address_range(void* user, Address ptr, Address* base,
                                          std::uint64_t* size) {
    return of(user).with_current(kEnded, [&] {
      Size bytes = 0;
      const auto code = driver.mem_get_address_range(base, &bytes, ptr);
      *size = bytes;
      return code;
    });
  }
  static emm_status ipc_get_mem_handle(void* user, Address ptr, unsigned char bytes[64]) {
    return of(user).with_current(kEnded, [&] { return driver.ipc_get_mem_handle(bytes, ptr); });
  }
  static emm_status event_create(void* user, Handle* event) {
    constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
    return of(user).with_current(kEnded,
                                 [&] { return driver.event_create(event, kDisableTiming); });
  }
  static emm_status event_destroy(void* user, Handle event) {
    return of(user).with_current(0, [&] { return driver.event_destroy(event); });
  }
  static emm_status event_record(void* user, Handle event, Handle stream) {
    return of(user).with_current(kEnded, [&] { return driver.event_record(event, stream); });
  }
  static emm_status event_query(void* user, Handle event) {
    return of(user).with_current(0, [&] { return driver.event_query(event); });
  }
  static emm_status event_synchronize(void* user, Handle event) {
    return of(user).with_current(0, [&] { return driver.event_synchronize(event); });
  }
  static emm_status stream_create(void* user, std::uint32_t flags, Handle* stream) {
    return of(user).with_current(kEnded, [&] { return driver.stream_create(stream, flags); });
  }
  static emm_status stream_destroy(void* user, Handle stream) {
    return of(user).with_current(0, [&] { return driver.stream_destroy(stream); });
  }
  static emm_status stream_synchronize(void* user, Handle stream) {
    return of(user).with_current(0, [&] { return driver.stream_synchronize(stream); });
  }
  static emm_status stream_query(void* user, Handle stream) {
    return of(user).with_current(0, [&] { return driver.stream_query(stream); });
  }
  static emm_status stream_wait_event(void* user, Handle stream, Handle event) {
    auto& mine = of(user);
    const auto code =
        mine.with_current(0, [&] { return driver.stream_wait_event(stream, event, 0); });
    if (stream == mine.quiet_stream()) mine.put_on_quiet_.fetch_add(1);  // another thread may wait
    return code;
  }
  static emm_status ctx_synchronize(void* user) { return of(user).synchronize(); }
  static emm_status ctx_push_current(void* user) { return driver.push(of(user).context_); }
  static emm_status ctx_pop_current(void*, Handle* context) { return driver.pop(context); }

  static emm_status mem_get_allocation_granularity(void* user, std::uint64_t* granularity) {
    return of(user).with_current(kEnded, [&] {
      constexpr int kMinimum = 0;  // CU_MEM_ALLOC_GRANULARITY_MINIMUM
      const auto about = pinned_on(of(user).device_);
      Size bytes = 0;
      const auto code = driver.granularity(&bytes, &about, kMinimum);
      *granularity = bytes;
      return code;
    });
  }
  static emm_status mem_address_reserve(void* user, std::uint64_t size, std::uint64_t alignment,
                                        Address wish, Address* ptr) {
    return of(user).with_current(
        kEnded, [&] { return driver.mem_address_reserve(ptr, size, alignment, wish, 0); });
  }
  static emm_status mem_create(void* user, std::uint64_t size, Handle* physical) {
    auto& mine = of(user);
    mine.count_memory_call();
    const auto about = pinned_on(mine.device_);
    return mine.with_current(kEnded, [&] { return driver.mem_create(physical, size, &about, 0); });
  }
  static emm_status mem_map(void* user, Address ptr, std::uint64_t size, std::uint64_t offset,
                            Handle physical) {
    if (!maps.exchange(true)) tell_of_peers();
    return of(user).with_current(kEnded,
                                 [&] { return driver.mem_map(ptr, size, offset, physical, 0); });
  }
  static emm_status mem_set_access(void* user, Address ptr, std::uint64_t size,
                                   std::uint32_t access) {
    return of(user).with_current(kEnded, [&] {
      const AccessDescriptor about{{kOnDevice, of(user).device_}, static_cast<int>(access)};
      return driver.mem_set_access(ptr, size, &about, 1);
    });
  }
  // These need no context: addresses and physical memory are the process's and the device's.
  static emm_status mem_address_free(void*, Address ptr, std::uint64_t size) {
    return driver.mem_address_free(ptr, size);
  }
  static emm_status mem_release(void*, Handle physical) { return driver.mem_release(physical); }
  static emm_status mem_unmap(void*, Address ptr, std::uint64_t size) {
    return driver.mem_unmap(ptr, size);
  }

  static emm_status mem_pool_create(void* user, std::uint64_t most, Handle* pool) {
    return of(user).with_current(kEnded, [&] {
      WholePoolProperties about{};
      about.type = kPinned;
      about.location = {kOnDevice, of(user).device_};
      about.max_size = most;
      return driver.mem_pool_create(pool, &about);
    });
  }
  static emm_status mem_pool_destroy(void*, Handle pool) { return driver.mem_pool_destroy(pool); }
  static emm_status device_get_default_mem_pool(void* user, Handle* pool) {
    return driver.default_mem_pool(pool, of(user).device_);
  }
  static emm_status mem_pool_trim_to(void*, Handle pool, std::uint64_t keep) {
    return driver.mem_pool_trim_to(pool, keep);
  }
  static constexpr std::uint32_t kReleaseThreshold = 4;  // those before it are an int
  static emm_status mem_pool_set_attribute(void*, Handle pool, std::uint32_t attribute,
                                           std::uint64_t value) {
    int policy = value != 0 ? 1 : 0;
    const void* const from =
        attribute < kReleaseThreshold ? static_cast<void*>(&policy) : static_cast<void*>(&value);
    return driver.mem_pool_set_attribute(pool, static_cast<int>(attribute), from);
  }
  static emm_status mem_pool_get_attribute(void*, Handle pool, std::uint32_t attribute,
                                           std::uint64_t* value) {
    *value = 0;  // a policy fills the low half, on a little-endian machine
    return driver.mem_pool_get_attribute(pool, static_cast<int>(attribute), value);
  }
  static emm_status mem_alloc_async(void* user, std::uint64_t size, Handle stream, Address* ptr) {
    return ordered(of(user), stream, ptr,
                   [&] { return driver.mem_alloc_async(ptr, size, stream); });
  }
  static emm_status mem_alloc_from_pool_async(void* user, std::uint64_t size, Handle pool,
                                              Handle stream, Address* ptr) {
    return ordered(of(user), stream, ptr,
                   [&] { return driver.mem_alloc_from_pool_async(ptr, size, pool, stream); });
  }
  static emm_status mem_free_async(void* user, Address ptr, Handle stream) {
    disown(ptr);
    const auto code = of(user).with_current(0, [&] { return driver.mem_free_async(ptr, stream); });
    if (code != 0) own(ptr);
    return code;
  }
  /// Memory that the driver gives in the order of a stream.
  template <class MakeCall>
  static Code ordered(ManagerDriver& mine, Handle stream, const Address* ptr,
                      MakeCall make) noexcept {
    mine.count_memory_call();
    const auto code = mine.with_current(kEnded, make);
    if (stream == mine.quiet_stream()) mine.put_on_quiet_.fetch_add(1);
    if (code == 0) own(*ptr);
    return code;
  }

  static Handle context_handle(void* user) { return of(user).context_; }
  static void device_identity(void* user, std::int32_t* pci) {
    for (int i = 0; i < 3; ++i) pci[i] = of(user).pci_[i];
  }
  static const char* device_name(void* user) { return of(user).name_; }
  static std::int32_t device_ordinal(void* user) { return of(user).device_; }
};

bool ManagerDriver::find_functions(const char** missing) noexcept {
  *missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    using Function = std::remove_reference_t<decltype(function)>;
    function = reinterpret_cast<Function>(function_behind(symbol));
    if (function == nullptr && *missing == nullptr) *missing = symbol;
  };
#define EMM_MANAGER_CALL(name, symbol, parameters) find(driver.name, #symbol);
  EMM_MANAGER_CALLS(EMM_MANAGER_CALL)
#undef EMM_MANAGER_CALL
  return *missing == nullptr;
}

void ManagerDriver::begin(Handle context, int device) noexcept {
  context_ = context;
  device_ = device;
  ended_ = false;
  quiet_ = 0;
  put_on_quiet_ = waited_for_ = 0;
  memory_calls_ = 0;
  constexpr int kDomain = 50, kBus = 33, kDevice = 34;  // CU_DEVICE_ATTRIBUTE_PCI_*
  const int attributes[] = {kDomain, kBus, kDevice};
  for (int i = 0; i < 3; ++i) (void)driver.attribute(&pci_[i], attributes[i], device);
  (void)real().device_get_name(name_, static_cast<int>(sizeof name_) - 1, device);
}

emm_driver_v1 ManagerDriver::table() noexcept {
  emm_driver_v1 made{};
  made.struct_size = sizeof made;
  made.user = this;
#define EMM_SLOT(name) made.name = &Slots::name;
  EMM_SLOT(mem_alloc)
  EMM_SLOT(mem_free)
  EMM_SLOT(mem_get_info)
  EMM_SLOT(mem_get_address_range)
  EMM_SLOT(ipc_get_mem_handle)
  EMM_SLOT(event_create)
  EMM_SLOT(event_destroy)
  EMM_SLOT(event_record)
  EMM_SLOT(event_query)
  EMM_SLOT(event_synchronize)
  EMM_SLOT(stream_create)
  EMM_SLOT(stream_destroy)
  EMM_SLOT(stream_synchronize)
  EMM_SLOT(stream_query)
  EMM_SLOT(stream_wait_event)
  EMM_SLOT(ctx_synchronize)
  EMM_SLOT(ctx_push_current)
  EMM_SLOT(ctx_pop_current)
  EMM_SLOT(mem_get_allocation_granularity)
  EMM_SLOT(mem_address_reserve)
  EMM_SLOT(mem_address_free)
  EMM_SLOT(mem_create)
  EMM_SLOT(mem_release)
  EMM_SLOT(mem_map)
  EMM_SLOT(mem_unmap)
  EMM_SLOT(mem_set_access)
  EMM_SLOT(mem_pool_create)
  EMM_SLOT(mem_pool_destroy)
  EMM_SLOT(device_get_default_mem_pool)
  EMM_SLOT(mem_pool_trim_to)
  EMM_SLOT(mem_pool_set_attribute)
  EMM_SLOT(mem_pool_get_attribute)
  EMM_SLOT(mem_alloc_async)
  EMM_SLOT(mem_alloc_from_pool_async)
  EMM_SLOT(mem_free_async)
  EMM_SLOT(context_handle)
  EMM_SLOT(device_identity)
  EMM_SLOT(device_name)
  EMM_SLOT(device_ordinal)
#undef EMM_SLOT
  // cudart's calls lead to these.
  made.runtime_malloc = &Slots::mem_alloc;
  made.runtime_free = &Slots::mem_free;
  made.runtime_mem_get_info = &Slots::mem_get_info;
  return made;
}

void ManagerDriver::count_memory_call() noexcept {
  memory_calls_.fetch_add(1, std::memory_order_relaxed);
  if (auto* const report = run_report())
    std::atomic_ref<std::uint64_t>(report->driver_calls).fetch_add(1);
}

Code ManagerDriver::synchronize() noexcept {
  return with_current(0, [] { return driver.ctx_synchronize(); });
}

Code ManagerDriver::make_quiet_stream() noexcept {
  constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
  Handle made = 0;
  const auto code = with_current(kEnded, [&] { return driver.stream_create(&made, kNonBlocking); });
  quiet_ = made;
  return code;
}

Code ManagerDriver::wait_for_quiet() noexcept {
  const auto put = put_on_quiet_.load();
  auto waited = waited_for_.load();
  if (waited >= put) return 0;
  const auto code = with_current(kEnded, [&] { return driver.stream_synchronize(quiet_stream()); });
  while (code == 0 && waited < put && !waited_for_.compare_exchange_weak(waited, put)) continue;
  return code;
}

bool ManagerDriver::owns(Address ptr) noexcept {
  Owned found{};
  return owned.get(ptr, found);
}

void ManagerDriver::note_peers() noexcept {
  has_peers = true;
  tell_of_peers();
}
void ManagerDriver::note_capture() noexcept { captured.store(true, std::memory_order_relaxed); }
bool ManagerDriver::has_captured() noexcept { return captured.load(std::memory_order_relaxed); }
void ManagerDriver::reset_in_child() noexcept { owned.reset(); }

}  // namespace emm::record
