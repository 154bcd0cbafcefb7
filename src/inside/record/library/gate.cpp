// `emmctl run`: makes the device look smaller and makes calls fail as the options say.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "record/library/mapped_range.hpp"
#include "record/library/real.hpp"
#include "record/library/recorder.hpp"
#include "record/library/served.hpp"
#include "record/run_report.hpp"

namespace emm::record {
namespace {

constexpr Code kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
// Allocations of cuMemAlloc up to this size share pages; larger ones get pages of their own. An
// H200 does so, and so does the simulated device.
constexpr std::uint64_t kSmallMost = std::uint64_t{1} << 20;

/// Each kind has its own key space, because a mapping and the memory behind it can have the same
/// number.
enum Kind : std::uint64_t {
  kMemory,
  kPage,  ///< A page that small allocations share.
  kPhysical,
  kMapping,
  kHostPool  ///< A pool of host memory, which does not count.
};

struct Account {
  std::uint64_t key;   ///< 0: the place is empty.
  std::uint64_t size;  ///< Bytes that count against the capacity; for a mapping, its length.
  /// The context that the memory ends with; 0: none. For a mapping, the handle of its memory.
  std::uint64_t owner;
  std::uint32_t handles;   ///< References to physical memory; for a page, its allocations.
  std::uint32_t mappings;  ///< Mappings of physical memory.
  std::uint8_t device;
  bool is_small;  ///< The page counts for it.
};

constinit std::uint64_t capacity = 0;  // bytes of each device; 0: no limit of ours
constinit std::uint64_t used[256] = {};
constinit std::atomic<bool> busy{false};
constinit RunReport* report = nullptr;

/// A hash table with open addressing and linear probing, at most three quarters full. It grows by
/// mmap. One word holds its address and the logarithm of its size, so that a forked child finds
/// both consistent whatever the parent's threads were doing.
constinit std::atomic<std::uint64_t> table{0};
constinit std::size_t account_count = 0;
constinit std::size_t accounts_most = ~std::size_t{0};
// These bits of the word hold the logarithm: the table is aligned to a page.
constexpr std::uint64_t kBits = 4095;
constexpr unsigned kFirstBits = 12;

/// The primary context of each device, where the program retained it.
constinit std::uint64_t primaries[256] = {};

struct Fault {
  unsigned kind = kFaultAny;
  std::uint64_t number = 0;  ///< Which call of this kind fails, counted from 1.
  Code code = 0;
};
constexpr std::size_t kFaults = 32;  // that --fault can be given; kept without the heap
constinit Fault faults[kFaults];
constinit std::size_t fault_count = 0;
constinit std::uint64_t counted[kFaultKinds] = {};
constinit std::uint64_t counted_all = 0;
constinit double rate = 0;
constinit unsigned rate_kind = kFaultAny;
constinit std::uint64_t random_state = 0;

/// A spin lock suffices because `emmctl run` measures nothing. A forked child resets it.
class Lock {
 public:
  Lock() noexcept {
    while (busy.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { busy.store(false, std::memory_order_release); }
};

Account* places() noexcept {
  return reinterpret_cast<Account*>(table.load(std::memory_order_relaxed) & ~kBits);
}
unsigned place_bits() noexcept {
  return static_cast<unsigned>(table.load(std::memory_order_relaxed) & kBits);
}
std::size_t place_count() noexcept {
  return places() != nullptr ? std::size_t{1} << place_bits() : 0;
}
std::size_t place_of(std::uint64_t key) noexcept {
  return (key * 0x9e3779b97f4a7c15u) >> (64 - place_bits());
}
std::uint64_t key_of(Kind kind, std::uint64_t number) noexcept {
  return number == 0 ? 0 : (number & ((std::uint64_t{1} << 60) - 1)) | kind << 60;
}
Kind kind_of(const Account& account) noexcept { return static_cast<Kind>(account.key >> 60); }

Account* find(Kind kind, std::uint64_t number) noexcept {
  const auto key = key_of(kind, number);
  if (key == 0 || places() == nullptr) return nullptr;
  auto* const all = places();
  const auto last = place_count() - 1;
  for (auto at = place_of(key); all[at].key != 0; at = (at + 1) & last) {
    if (all[at].key == key) return &all[at];
  }
  return nullptr;
}

/// Stores an account whose key is not in the table yet.
Account* put(const Account& account) noexcept {
  auto* const all = places();
  auto at = place_of(account.key);
  while (all[at].key != 0) at = (at + 1) & (place_count() - 1);
  all[at] = account;
  return &all[at];
}

/// Moves the accounts to a table twice as large.
bool grow() noexcept {
  auto* const old = places();
  const auto old_count = place_count();
  const auto bits = old != nullptr ? place_bits() + 1 : kFirstBits;
  if ((std::size_t{1} << bits) / 4 * 3 > accounts_most && old != nullptr) return false;
  void* const made = mmap(nullptr, sizeof(Account) << bits, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  table.store(reinterpret_cast<std::uint64_t>(made) | bits, std::memory_order_relaxed);
  for (std::size_t at = 0; at < old_count; ++at) {
    if (old[at].key != 0) (void)put(old[at]);
  }
  if (old != nullptr) (void)munmap(old, sizeof(Account) * old_count);
  return true;
}

/// Adds an account. Returns null when there is no memory for it.
Account* open(const Account& account) noexcept {
  if (account_count >= place_count() / 4 * 3 && !grow()) return nullptr;
  ++account_count;
  return put(account);
}

/// Erases an account and moves up those that probing had pushed past its place, so that lookups
/// still find them.
void erase(Account* account) noexcept {
  auto* const all = places();
  const auto last = place_count() - 1;
  auto hole = static_cast<std::size_t>(account - all);
  for (auto at = (hole + 1) & last; all[at].key != 0; at = (at + 1) & last) {
    const auto home = place_of(all[at].key);
    if (((at - home) & last) < ((at - hole) & last)) continue;
    all[hole] = all[at];
    hole = at;
  }
  all[hole].key = 0;
  --account_count;
}

/// Erases an account and subtracts its size from what the device holds.
void close(Account* account) noexcept {
  used[account->device] -= account->size;
  erase(account);
}

void count_uncounted() noexcept {
  if (report != nullptr) std::atomic_ref<std::uint64_t>(report->uncounted).fetch_add(1);
}

/// Returns the name by which faults select the call. Records show a query as a wait and pool memory
/// as device memory; faults tell them apart.
unsigned fault_kind(Call call, bool asks, const CallRecord& record) noexcept {
  if (call == Call::mem_alloc_async && record.extra != 0) return kFaultAllocFromPool;
  if (call == Call::stream_synchronize && asks) return kFaultStreamQuery;
  if (call == Call::event_synchronize && asks) return kFaultEventQuery;
  return static_cast<unsigned>(call);
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

/// Returns a number in [0, 1) from splitmix64.
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

/// Answers whether the driver puts the allocation into a shared page. Its address says which page.
bool is_small(Call call, std::uint64_t size) noexcept {
  return (call == Call::mem_alloc || call == Call::mem_alloc_pitch) && size <= kSmallMost;
}

/// Returns the size that counts against the capacity. Small allocations count through their page.
/// Managed memory does not count: the device pages it in and out as kernels touch it, so a program
/// may allocate more of it than the device has.
std::uint64_t counted_size(Call call, std::uint64_t size) noexcept {
  switch (call) {
    case Call::mem_alloc_async:
    case Call::mem_create:
      return size;
    case Call::mem_alloc:
    case Call::mem_alloc_pitch:
      return is_small(call, size)
                 ? 0
                 : (size + kDevicePageBytes - 1) / kDevicePageBytes * kDevicePageBytes;
    case Call::array_create:
      return (size + 511) / 512 * 512;
    default:
      return 0;
  }
}

/// Returns the size of what the call asks for that counts. What a pool in host memory gives does
/// not.
std::uint64_t wanted_size(Call call, Size wants, const CallRecord& record) noexcept {
  const bool is_hosts = call == Call::mem_alloc_async && find(kHostPool, record.extra) != nullptr;
  return is_hosts ? 0 : counted_size(call, wants);
}

/// Returns the device that a call takes memory from. mem_create names its own.
std::size_t device_of(Call call, const CallRecord& record) noexcept {
  return (call == Call::mem_create ? record.stream : record.device) & 255;
}

/// Returns the number of the page that holds a small allocation; never 0.
constexpr std::uint64_t page_of(std::uint64_t address) noexcept {
  return address / kDevicePageBytes + 1;
}

/// Removes the account of memory from cuMemAlloc, of an array or of stream-ordered memory. The last
/// allocation of a page removes the page too.
void take(std::uint64_t address) noexcept {
  auto* const account = find(kMemory, address);
  if (account == nullptr) return;
  const bool is_small = account->is_small;
  close(account);
  if (!is_small) return;
  auto* const page = find(kPage, page_of(address));
  if (page != nullptr && --page->handles == 0) close(page);
}

void give(Kind kind, std::uint64_t number, const Account& about) noexcept {
  auto account = about;
  account.key = key_of(kind, number);
  if (account.key == 0) return;
  if (auto* const former = find(kind, number); former != nullptr) {  // its free was not seen
    if (kind == kMemory) {
      take(number);
    } else {
      close(former);
    }
  }
  if (open(account) == nullptr) return count_uncounted();
  used[account.device] += account.size;
}

/// Counts a small allocation, and its page when it is the first there.
void count_small(std::uint64_t address, std::uint64_t context, std::uint8_t device) noexcept {
  auto* page = find(kPage, page_of(address));
  if (page == nullptr) {
    page = open({.key = key_of(kPage, page_of(address)),
                 .size = kDevicePageBytes,
                 .owner = context,
                 .handles = 0,
                 .mappings = 0,
                 .device = device,
                 .is_small = false});
    if (page == nullptr) return count_uncounted();
    used[device] += kDevicePageBytes;
  }
  ++page->handles;
  const Account account{.key = key_of(kMemory, address),
                        .size = 0,
                        .owner = context,
                        .handles = 0,
                        .mappings = 0,
                        .device = device,
                        .is_small = true};
  if (open(account) != nullptr) return;
  count_uncounted();
  page = find(kPage, page_of(address));
  if (page != nullptr && --page->handles == 0) close(page);
}

/// Counts a small allocation. Returns false when it needs a new page and the capacity has no room
/// for one.
bool give_small(std::uint64_t address, std::uint64_t context, std::uint8_t device) noexcept {
  if (address == 0) return true;
  take(address);  // its free was not seen
  if (find(kPage, page_of(address)) == nullptr && used[device] + kDevicePageBytes > capacity)
    return false;
  count_small(address, context, device);
  return true;
}

/// Physical memory ends when it has neither handles nor mappings.
void end_physical_if_unused(Account* physical) noexcept {
  if (physical->handles == 0 && physical->mappings == 0) close(physical);
}
void release(std::uint64_t handle) noexcept {
  auto* const physical = find(kPhysical, handle);
  if (physical == nullptr || physical->handles == 0) return;
  --physical->handles;
  end_physical_if_unused(physical);
}
void map(std::uint64_t address, std::uint64_t size, std::uint64_t handle) noexcept {
  auto* physical = find(kPhysical, handle);
  if (physical == nullptr || address == 0) return;  // memory of another process
  const Account mapping{.key = key_of(kMapping, address),
                        .size = size,
                        .owner = handle,
                        .handles = 0,
                        .mappings = 0,
                        .device = physical->device,
                        .is_small = false};
  if (auto* const former = find(kMapping, address); former != nullptr) {
    *former = mapping;
  } else if (open(mapping) == nullptr) {
    return count_uncounted();
  }
  physical = find(kPhysical, handle);  // open() may have moved the table
  if (physical != nullptr) ++physical->mappings;
}

/// What the thread's current call frees, as it was before the call. Key 0: nothing that counts.
thread_local Account taken __attribute__((tls_model("initial-exec"))){};

/// Restores what the call would have freed, after the driver refused it.
void restore_taken() noexcept {
  const auto account = std::exchange(taken, Account{});
  if (account.key == 0) return;
  const auto number = account.key & ((std::uint64_t{1} << 60) - 1);
  if (account.is_small) return count_small(number, account.owner, account.device);
  if (auto* const physical = find(kPhysical, number);
      physical != nullptr && kind_of(account) == kPhysical) {
    ++physical->handles;
  } else {
    give(kind_of(account), number, account);
  }
}

void unmap(std::uint64_t begin, std::uint64_t size) noexcept {
  const auto size_at = [](std::uint64_t address) {
    const auto* const mapping = find(kMapping, address);
    return mapping != nullptr ? mapping->size : 0;
  };
  end_mappings(begin, size, size_at, [](std::uint64_t address) {
    auto* const mapping = find(kMapping, address);
    const auto handle = mapping->owner;
    erase(mapping);
    auto* const physical = find(kPhysical, handle);
    if (physical == nullptr || physical->mappings == 0) return;
    --physical->mappings;
    end_physical_if_unused(physical);
  });
}

/// A context's end frees what cuMemAlloc and arrays took in it. Physical memory and pool memory
/// belong to the device and stay (H200, driver 580).
template <class Ends>
void end_contexts(Ends ends) noexcept {
  for (std::size_t at = 0; at < place_count();) {
    auto& account = places()[at];
    const bool has_context = account.key != 0 && account.owner != 0 && kind_of(account) <= kPage;
    if (has_context && ends(account)) {
      close(&account);  // erase() may have moved another account to this place
    } else {
      ++at;
    }
  }
}
void end_primary(std::uint64_t device) noexcept {
  const auto context = primaries[device & 255];
  end_contexts([&](const Account& account) {
    return context != 0 ? account.owner == context : account.device == device;
  });
}

std::uint64_t current_context() noexcept {
  Handle context = 0;
  return real().ctx_get_current(&context) == 0 ? context : 0;
}

// A forked child has no device memory, and none of its threads holds the lock.
void reset_in_child() noexcept {
  busy.store(false);
  for (auto& bytes : used) bytes = 0;
  for (auto& context : primaries) context = 0;
  account_count = 0;
  if (places() != nullptr) (void)madvise(places(), sizeof(Account) * place_count(), MADV_DONTNEED);
}

}  // namespace

void begin_gate() noexcept {
  const char* const most = setting("EMM_RUN_CAPACITY");
  const char* const given = setting("EMM_RUN_FAULTS");
  if (most == nullptr && given == nullptr) return;
  if (most != nullptr) capacity = std::strtoull(most, nullptr, 10);
  if (const char* const accounts = setting("EMM_RUN_ACCOUNTS"); accounts != nullptr)
    accounts_most = std::strtoull(accounts, nullptr, 10);  // tests set this
  // "CALL,NUMBER,CODE;..." and "rate,R,SEED,CALL", as `emmctl run` writes them. CALL is a number of
  // Call or FaultKind; 0 stands for any call.
  const char* at = given != nullptr ? given : "";
  while (*at != '\0') {
    char* end = nullptr;
    if (std::strncmp(at, "rate,", 5) == 0) {
      rate = std::strtod(at + 5, &end);
      if (*end == ',') random_state = std::strtoull(end + 1, &end, 10);
      if (*end == ',') rate_kind = static_cast<unsigned>(std::strtoul(end + 1, &end, 10));
    } else {
      Fault fault;
      fault.kind = static_cast<unsigned>(std::strtoul(at, &end, 10));
      if (*end == ',') fault.number = std::strtoull(end + 1, &end, 10);
      if (*end == ',') fault.code = static_cast<Code>(std::strtol(end + 1, &end, 10));
      if (fault_count < kFaults) faults[fault_count++] = fault;
    }
    at = end != nullptr && *end == ';' ? end + 1 : "";
  }
  pthread_atfork(nullptr, nullptr, reset_in_child);
  shared.mode |= mode::gating;
}

void gate_report_use() noexcept {
  if (((shared.mode & mode::gating) == 0 && !is_serving()) || report != nullptr) return;
  const char* const path = setting("EMM_RUN_SEEN");
  const int file = path != nullptr ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  struct stat about {};
  if (fstat(file, &about) == 0 && about.st_size >= static_cast<off_t>(sizeof(RunReport))) {
    void* const page =
        mmap(nullptr, sizeof(RunReport), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) report = static_cast<RunReport*>(page);
  }
  ::close(file);
  if (report != nullptr) std::atomic_ref<std::uint64_t>(report->seen).store(1);
}

RunReport* run_report() noexcept { return report; }

Code gate_before(Call call, Size wants, bool asks, const CallRecord& record) noexcept {
  const auto kind = fault_kind(call, asks, record);
  const Lock lock;
  ++counted_all;
  const auto number = ++counted[kind % std::size(counted)];
  for (std::size_t i = 0; i < fault_count; ++i) {
    const auto& fault = faults[i];
    const bool hits = fault.kind == kFaultAny ? fault.number == counted_all
                                              : fault.kind == kind && fault.number == number;
    if (hits) return fault.code != 0 ? fault.code : usual_fault(call);
  }
  const bool may_fail = rate_kind != kFaultAny ? rate_kind == kind : may_fail_at_random(call);
  if (rate != 0 && may_fail && next_random() < rate) return usual_fault(call);
  if (capacity == 0) return 0;
  taken.key = 0;
  switch (call) {  // before the call, because the driver may reuse the address before it returns
    case Call::mem_free:
    case Call::mem_free_async:
    case Call::array_destroy:
      if (const auto* const account = find(kMemory, record.address)) taken = *account;
      take(record.address);
      break;
    case Call::mem_release:
      if (const auto* const physical = find(kPhysical, record.address);
          physical != nullptr && physical->handles != 0)
        taken = *physical;
      release(record.address);
      break;
    case Call::pool_destroy:
      if (auto* const pool = find(kHostPool, record.address); pool != nullptr) {
        taken = *pool;
        close(pool);
      }
      break;
    default:
      break;
  }
  if (const auto more = wanted_size(call, wants, record); more != 0) {
    auto& held = used[device_of(call, record)];
    if (more > capacity || held > capacity - more) return kOutOfMemory;
    held += more;  // reserved until the driver has answered
  }
  return 0;
}

Code gate_after(Call call, Size wants, const CallRecord& record) noexcept {
  if (capacity == 0 || (record.flags & record_flag::injected) != 0) return 0;
  const auto device = static_cast<std::uint8_t>(device_of(call, record));
  const bool succeeded = record.result == 0;
  std::uint64_t context = 0;
  bool ends_primary = false;
  if (succeeded &&
      (call == Call::mem_alloc || call == Call::mem_alloc_pitch || call == Call::array_create)) {
    context = current_context();
  } else if (succeeded && call == Call::ctx_release) {
    // Libraries may have retained the context through calls that are not seen here, so the driver
    // is asked.
    unsigned flags = 0;
    int active = 0;
    ends_primary =
        real().primary_ctx_get_state(static_cast<int>(record.stream), &flags, &active) == 0 &&
        active == 0;
  }
  bool has_room = true;
  {
    const Lock lock;
    used[device] -= wanted_size(call, wants, record);
    if (!succeeded) {
      restore_taken();
      return 0;
    }
    switch (call) {
      case Call::mem_alloc:
      case Call::mem_alloc_pitch:
        if (is_small(call, record.size)) {
          has_room = give_small(record.address, context, device);
          break;
        }
        // The driver pads the rows of a pitched allocation, so it may not fit after all.
        has_room = counted_size(call, record.size) <= capacity - std::min(capacity, used[device]);
        if (!has_room) break;
        [[fallthrough]];
      case Call::array_create:
      case Call::mem_alloc_async:
        give(kMemory, record.address,
             {.key = 0,
              .size = wanted_size(call, record.size, record),
              .owner = context,
              .handles = 0,
              .mappings = 0,
              .device = device,
              .is_small = false});
        break;
      case Call::mem_create:
        if (record.stream == kHost) break;
        give(kPhysical, record.address,
             {.key = 0,
              .size = counted_size(call, record.size),
              .owner = 0,
              .handles = 1,
              .mappings = 0,
              .device = device,
              .is_small = false});
        break;
      case Call::pool_create:
      case Call::device_get_pool:
        if (call == Call::pool_create ? record.stream == kHost : record.extra == 2) {
          give(kHostPool, record.address,
               {.key = 0,
                .size = 0,
                .owner = 0,
                .handles = 0,
                .mappings = 0,
                .device = device,
                .is_small = false});
        }
        break;
      case Call::mem_map:
        map(record.address, record.size, record.stream);
        break;
      case Call::mem_retain_handle:
        if (auto* const physical = find(kPhysical, record.address); physical != nullptr)
          ++physical->handles;
        break;
      case Call::mem_unmap:
        unmap(record.address, record.size);
        break;
      case Call::ctx_retain:
        primaries[record.stream & 255] = record.address;
        break;
      case Call::ctx_reset:
        end_primary(record.stream);
        break;
      case Call::ctx_destroy:
        end_contexts([&](const Account& account) { return account.owner == record.address; });
        break;
      case Call::ctx_release:
        if (ends_primary) end_primary(record.stream);
        break;
      default:
        break;
    }
  }
  if (has_room) return 0;
  (void)real().mem_free(record.address);
  return kOutOfMemory;
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
