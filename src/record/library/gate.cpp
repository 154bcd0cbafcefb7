// `emmctl run`: a device with less memory, and calls that fail as told.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "record/library/real.hpp"
#include "record/library/recorder.hpp"

namespace emm::record {
namespace {

constexpr std::size_t kEntries = std::size_t{1} << 20;  // live allocations at most
constexpr Code kOutOfMemory = 2;
// An allocation of cuMemAlloc shares pages up to this size, and has pages of its own beyond: as an
// H200 does it, and the simulated device.
constexpr std::uint64_t kSmallMost = std::uint64_t{1} << 20;
constexpr std::uint64_t kPageBytes = std::uint64_t{2} << 20;

/// What lives on the device, by address or handle, in a table of open addresses. A deleted entry
/// keeps its key and has the size 0. Pages that small allocations share are in it too.
struct DeviceObject {
  std::uint64_t key;
  std::uint64_t size;
  std::uint32_t device;
  bool is_small;  ///< It is counted with its page.
};

constinit std::uint64_t capacity = 0;  // of each device; 0: the real one's
constinit std::uint64_t used[256] = {};
constinit DeviceObject* entries = nullptr;
constinit std::atomic<bool> busy{false};

struct Fault {
  Call call = Call::none;
  std::uint64_t number = 0;  ///< The call of this kind that fails, from 1.
  Code code = 0;
};
constexpr std::size_t kFaults = 32;
constinit Fault faults[kFaults];
constinit std::size_t fault_count = 0;
constinit std::uint64_t counted[static_cast<std::size_t>(Call::count_)] = {};
constinit std::uint64_t counted_all = 0;
constinit double rate = 0;
constinit Call rate_call = Call::none;  // none: any
constinit std::uint64_t random_state = 0;

/// A spin lock: `emmctl run` measures nothing. A fork's child begins with it free.
class Lock {
 public:
  Lock() noexcept {
    while (busy.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { busy.store(false, std::memory_order_release); }
};

DeviceObject* find(std::uint64_t key, bool make) noexcept {
  if (entries == nullptr || key == 0) return nullptr;
  auto at = (key * 0x9e3779b97f4a7c15u) >> 44;
  for (std::size_t tried = 0; tried < kEntries; ++tried, at = (at + 1) % kEntries) {
    auto& entry = entries[at];
    if (entry.key == key) return &entry;
    if (entry.key != 0) continue;
    if (!make) return nullptr;
    entry.key = key;
    return &entry;
  }
  return nullptr;
}

Code usual_fault(Call call) noexcept {
  switch (call) {
    case Call::mem_alloc:
    case Call::mem_alloc_pitch:
    case Call::mem_alloc_managed:
    case Call::mem_alloc_async:
    case Call::mem_host_alloc:
    case Call::mem_host_register:
    case Call::mem_create:
    case Call::mem_address_reserve:
    case Call::mem_map:
    case Call::mem_set_access:
    case Call::array_create:
    case Call::pool_create:
    case Call::event_create:
    case Call::stream_create:
    case Call::module_load:
      return kOutOfMemory;
    case Call::ipc_open_mem_handle:
    case Call::ipc_close_mem_handle:
      return 205;  // CUDA_ERROR_MAP_FAILED
    case Call::mem_get_info:
    case Call::ctx_synchronize:
      return 201;  // CUDA_ERROR_INVALID_CONTEXT
    case Call::stream_destroy:
    case Call::stream_synchronize:
    case Call::stream_wait_event:
    case Call::event_destroy:
    case Call::event_record:
    case Call::event_synchronize:
      return 400;  // CUDA_ERROR_INVALID_HANDLE
    default:
      return 1;  // CUDA_ERROR_INVALID_VALUE
  }
}

/// A number in [0, 1): splitmix64.
double next_random() noexcept {
  random_state += 0x9e3779b97f4a7c15u;
  auto z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

bool may_fail_at_random(Call call) noexcept {
  return call != Call::mem_get_info && call != Call::ctx_release && call != Call::ctx_retain &&
         call != Call::ctx_destroy;
}

/// The driver puts it into a page with others. Which one its address tells.
bool is_small(Call call, std::uint64_t size) noexcept {
  return (call == Call::mem_alloc || call == Call::mem_alloc_pitch) && size <= kSmallMost;
}

/// As the program's share of the device is counted, but for what is small.
std::uint64_t counted_size(Call call, std::uint64_t size) noexcept {
  if (call == Call::mem_alloc_async || call == Call::mem_create) return size;
  if (call == Call::mem_alloc || call == Call::mem_alloc_pitch)
    return is_small(call, size) ? 0 : (size + kPageBytes - 1) / kPageBytes * kPageBytes;
  return (size + 511) / 512 * 512;
}

/// The key of the page that small allocations share. Its entry's size is how many they are.
constexpr std::uint64_t page_key(std::uint64_t address) noexcept {
  return (std::uint64_t{1} << 63) | address / kPageBytes;
}

void give(Call call, std::uint64_t key, std::uint64_t size, unsigned device) noexcept {
  auto* const entry = find(key, true);
  if (entry == nullptr) return;
  used[entry->device & 255] -= entry->size;  // an address that was given before
  *entry = {
      .key = key, .size = counted_size(call, size), .device = device & 255, .is_small = false};
  used[device & 255] += entry->size;
}
/// False where it begins a page for which there is no room.
bool give_small(std::uint64_t address, unsigned device) noexcept {
  auto* const page = find(page_key(address), true);
  auto* const entry = find(address, true);
  if (page == nullptr || entry == nullptr) return true;
  if (page->size == 0) {
    if (used[device & 255] + kPageBytes > capacity) return false;
    used[device & 255] += kPageBytes;
  }
  *page = {.key = page->key, .size = page->size + 1, .device = device & 255, .is_small = false};
  *entry = {.key = address, .size = 0, .device = device & 255, .is_small = true};
  return true;
}
void take(std::uint64_t key) noexcept {
  auto* const entry = find(key, false);
  if (entry == nullptr) return;
  used[entry->device & 255] -= entry->size;
  entry->size = 0;
  if (!entry->is_small) return;
  entry->is_small = false;
  auto* const page = find(page_key(key), false);
  if (page != nullptr && page->size != 0 && --page->size == 0)
    used[page->device & 255] -= kPageBytes;
}
void take_all(unsigned device) noexcept {
  for (std::size_t at = 0; entries != nullptr && at < kEntries; ++at) {
    if (entries[at].device != device) continue;
    entries[at].size = 0;
    entries[at].is_small = false;
  }
  used[device & 255] = 0;
}

}  // namespace

namespace {

// The child of a fork has no memory on a device, and its parent's threads hold no lock of its own.
void in_child() noexcept {
  busy.store(false);
  for (auto& bytes : used) bytes = 0;
  if (entries != nullptr) (void)madvise(entries, kEntries * sizeof(DeviceObject), MADV_DONTNEED);
}

}  // namespace

void begin_gate() noexcept {
  const char* const most = std::getenv("EMM_RUN_CAPACITY");
  const char* const given = std::getenv("EMM_RUN_FAULTS");
  if (most == nullptr && given == nullptr) return;
  if (most != nullptr) {
    capacity = std::strtoull(most, nullptr, 10);
    void* const table = mmap(nullptr, kEntries * sizeof(DeviceObject), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table != MAP_FAILED) entries = static_cast<DeviceObject*>(table);
  }
  // "CALL,NUMBER,CODE;..." and "rate,R,SEED,CALL": numbers of Call, as `emmctl run` writes them. 0
  // is any call.
  const char* at = given != nullptr ? given : "";
  while (*at != '\0') {
    char* end = nullptr;
    if (std::strncmp(at, "rate,", 5) == 0) {
      rate = std::strtod(at + 5, &end);
      if (*end == ',') random_state = std::strtoull(end + 1, &end, 10);
      if (*end == ',') rate_call = static_cast<Call>(std::strtoul(end + 1, &end, 10));
    } else {
      Fault fault;
      fault.call = static_cast<Call>(std::strtoul(at, &end, 10));
      if (*end == ',') fault.number = std::strtoull(end + 1, &end, 10);
      if (*end == ',') fault.code = static_cast<Code>(std::strtol(end + 1, &end, 10));
      if (fault_count < kFaults) faults[fault_count++] = fault;
    }
    at = end != nullptr && *end == ';' ? end + 1 : "";
  }
  pthread_atfork(nullptr, nullptr, in_child);
  shared.mode |= mode::gating;
}

void gate_begun() noexcept {
  const char* const path =
      (shared.mode & mode::gating) != 0 ? std::getenv("EMM_RUN_SEEN") : nullptr;
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) ::close(file);
}

Code gate_before(Call call, Size wants, Record& record) noexcept {
  const Lock lock;
  ++counted_all;
  const auto number = ++counted[static_cast<std::size_t>(call) % std::size(counted)];
  for (std::size_t i = 0; i < fault_count; ++i) {
    const auto& fault = faults[i];
    const bool hits = fault.call == Call::none ? fault.number == counted_all
                                               : fault.call == call && fault.number == number;
    if (hits) return fault.code != 0 ? fault.code : usual_fault(call);
  }
  const bool may_fail = rate_call != Call::none ? rate_call == call : may_fail_at_random(call);
  if (rate != 0 && may_fail && next_random() < rate) return usual_fault(call);
  if (capacity == 0) return 0;
  switch (call) {  // the address may be given out again before this call has returned
    case Call::mem_free:
    case Call::mem_free_async:
    case Call::array_destroy:
    case Call::mem_release:
      take(record.address);
      break;
    case Call::ctx_reset:
      take_all(static_cast<unsigned>(record.stream));
      break;
    default:
      break;
  }
  if (wants != 0) {
    const auto held = used[record.device];
    const auto more = counted_size(call, wants);
    if (more > capacity || held > capacity - more) return kOutOfMemory;
    used[record.device] += more;  // until the driver has answered
  }
  return 0;
}

Code gate_after(Call call, Size wants, const Record& record) noexcept {
  if (capacity == 0 || (record.flags & record_flag::injected) != 0) return 0;
  const Lock lock;
  if (wants != 0) used[record.device] -= counted_size(call, wants);
  if (record.result != 0) return 0;
  switch (call) {
    case Call::mem_alloc:
    case Call::mem_alloc_pitch:
      if (!is_small(call, record.size)) break;
      if (give_small(record.address, record.device)) return 0;
      (void)real().mem_free(record.address);
      return kOutOfMemory;
    case Call::mem_create:
      if (record.stream == 0xffffffffu) return 0;
      break;
    case Call::mem_alloc_managed:
    case Call::mem_alloc_async:
    case Call::array_create:
      break;
    default:
      return 0;
  }
  give(call, record.address, record.size, record.device);
  return 0;
}

void gate_memory_info(Size* free, Size* total) noexcept {
  if (capacity == 0) return;
  const Lock lock;
  const auto held = used[self.device];
  const auto left = held < capacity ? capacity - held : 0;
  if (free != nullptr && *free > left) *free = left;
  if (total != nullptr && *total > capacity) *total = capacity;
}
Size gate_total(Size total) noexcept {
  return capacity != 0 && total > capacity ? capacity : total;
}

}  // namespace emm::record
