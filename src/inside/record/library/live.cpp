#include "record/library/live.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <iterator>
#include <utility>

#include "record/library/mapped_range.hpp"
#include "record/library/real.hpp"

namespace emm::record {
namespace {

// Each with its own lock, so that threads seldom wait for one another.
constexpr std::size_t kShards = 64;
constexpr std::size_t kPlaces = std::size_t{1} << 15;  // of a shard; two million in all
constexpr std::size_t kEntriesMost =
    kPlaces / 4 * 3;  // so that a lookup of an absent key stays short

/// Each kind has its own key space, because a range and a mapping in it can have the same address.
enum Kind : std::uint64_t { kMemory, kPhysical, kMapping, kRange, kHostPool };

struct LiveEntry {
  std::uint64_t key = 0;  ///< 0: the place is empty.
  CallRecord record{};    ///< The record of the call that made it.
  std::uint64_t mappings = 0;
  std::uint64_t handles = 1;  ///< How many releases physical memory needs.
};

/// A hash table with open addressing and linear probing. Its spin lock is held for about 20 ns; a
/// forked child resets it.
struct Shard {
  std::atomic<bool> busy{false};
  std::size_t count = 0;
  std::uint64_t taken[kPlaces / 64];  ///< One bit for each place. Most pages of entries are empty,
                                      ///< and a scan does not touch them.
  LiveEntry entries[kPlaces];
};
constinit Shard* shards = nullptr;  // null when there was no memory for them

/// The primary context of a device and how often the program retained it.
struct Primary {
  std::atomic<std::uint64_t> context{0};
  std::atomic<std::uint64_t> retained{0};
};
constinit Primary primaries[256] = {};

class Lock {
 public:
  explicit Lock(Shard& shard) noexcept : shard_(shard) {
    while (shard_.busy.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { shard_.busy.store(false, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Shard& shard_;
};

std::uint64_t key_of(Kind kind, std::uint64_t address) noexcept {
  return address == 0 ? 0 : (address & ((std::uint64_t{1} << 60) - 1)) | kind << 60;
}
std::uint64_t hash(std::uint64_t key) noexcept { return key * 0x9e3779b97f4a7c15u; }
Shard& shard_of(std::uint64_t key) noexcept { return shards[hash(key) >> 58]; }
std::size_t place_of(std::uint64_t key) noexcept { return (hash(key) >> 40) % kPlaces; }

LiveEntry* find(Shard& shard, std::uint64_t key) noexcept {
  for (auto at = place_of(key); shard.entries[at].key != 0; at = (at + 1) % kPlaces) {
    if (shard.entries[at].key == key) return &shard.entries[at];
  }
  return nullptr;
}

/// Returns the first occupied place from `at` on, or kPlaces when there is none.
std::size_t next_taken(const Shard& shard, std::size_t at) noexcept {
  while (at < kPlaces) {
    const auto word = shard.taken[at / 64] >> at % 64;
    if (word != 0) return at + static_cast<std::size_t>(__builtin_ctzll(word));
    at = (at / 64 + 1) * 64;
  }
  return kPlaces;
}

/// Erases an entry and moves up those that probing had pushed past its place, so that lookups still
/// find them.
void erase(Shard& shard, LiveEntry* entry) noexcept {
  auto hole = static_cast<std::size_t>(entry - shard.entries);
  for (auto at = (hole + 1) % kPlaces; shard.entries[at].key != 0; at = (at + 1) % kPlaces) {
    const auto home = place_of(shard.entries[at].key);
    const auto past = (at - home + kPlaces) % kPlaces, to_hole = (at - hole + kPlaces) % kPlaces;
    if (past < to_hole) continue;
    shard.entries[hole] = shard.entries[at];
    hole = at;
  }
  shard.entries[hole].key = 0;
  shard.taken[hole / 64] &= ~(std::uint64_t{1} << hole % 64);
  --shard.count;
}

void keep(const LiveEntry& made) noexcept {
  if (shards == nullptr) return count_unkept();
  auto& shard = shard_of(made.key);
  const Lock lock(shard);
  auto* entry = find(shard, made.key);
  if (entry == nullptr) {
    if (shard.count >= kEntriesMost) return count_unkept();
    auto at = place_of(made.key);
    while (shard.entries[at].key != 0) at = (at + 1) % kPlaces;
    entry = &shard.entries[at];
    shard.taken[at / 64] |= std::uint64_t{1} << at % 64;
    ++shard.count;
  }
  *entry = made;
}

void give(Kind kind, const CallRecord& record) noexcept {
  const auto key = key_of(kind, record.address);
  if (key != 0) keep({.key = key, .record = record, .mappings = 0, .handles = 1});
}

bool take(Kind kind, std::uint64_t address, LiveEntry* as_it_was = nullptr) noexcept {
  const auto key = key_of(kind, address);
  if (key == 0 || shards == nullptr) return false;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  auto* const entry = find(shard, key);
  if (entry == nullptr) return false;
  if (as_it_was != nullptr) *as_it_was = *entry;
  erase(shard, entry);
  return true;
}
bool look_up(Kind kind, std::uint64_t address, CallRecord& made) noexcept {
  const auto key = key_of(kind, address);
  if (key == 0 || shards == nullptr) return false;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  const auto* const entry = find(shard, key);
  if (entry == nullptr) return false;
  made = entry->record;
  return true;
}

/// What the thread's current call frees, as it was before the call. Key 0: nothing.
thread_local LiveEntry taken __attribute__((tls_model("initial-exec"))){};

/// Restores what the call would have freed, after the driver refused it.
void restore_taken() noexcept {
  const auto entry = std::exchange(taken, LiveEntry{});
  if (entry.key != 0) keep(entry);
}

/// Physical memory ends when it has neither handles nor mappings.
void change_physical(std::uint64_t handle, int mappings, int handles) noexcept {
  const auto key = key_of(kPhysical, handle);
  if (key == 0 || shards == nullptr) return;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  auto* const entry = find(shard, key);
  if (entry == nullptr) return;
  if (handles < 0) taken = *entry;
  if (mappings > 0) ++entry->mappings;
  if (mappings < 0 && entry->mappings != 0) --entry->mappings;
  if (handles > 0) ++entry->handles;
  if (handles < 0 && entry->handles != 0) --entry->handles;
  if (entry->handles == 0 && entry->mappings == 0) erase(shard, entry);
}

void unmap(std::uint64_t begin, std::uint64_t size) noexcept {
  const auto size_at = [](std::uint64_t address) {
    CallRecord mapping{};
    return look_up(kMapping, address, mapping) ? mapping.size : 0;
  };
  end_mappings(begin, size, size_at, [](std::uint64_t address) {
    CallRecord mapping{};
    if (look_up(kMapping, address, mapping) && take(kMapping, address))
      change_physical(mapping.stream, -1, 0);
  });
}

template <class Ends>
void take_all(Ends ends) noexcept {
  if (shards == nullptr) return;
  for (std::size_t s = 0; s < kShards; ++s) {
    auto& shard = shards[s];
    const Lock lock(shard);
    for (auto at = next_taken(shard, 0); at < kPlaces;) {
      auto& entry = shard.entries[at];
      const bool erases = ends(entry.record);
      if (erases) erase(shard, &entry);
      at = next_taken(shard,
                      erases ? at : at + 1);  // erase() may have moved another entry to this place
    }
  }
}

/// Answers whether the memory ends with its context. Physical memory, address ranges and pool
/// memory belong to the device and live on (H200, driver 580).
bool ends_with_context(const CallRecord& one) noexcept {
  switch (one.call) {
    case Call::mem_alloc:
    case Call::mem_alloc_pitch:
    case Call::mem_alloc_managed:
    case Call::mem_host_alloc:
    case Call::mem_host_register:
    case Call::array_create:
      return true;
    default:
      return false;
  }
}
void end_context(std::uint64_t number) noexcept {
  if (number == 0) return;
  take_all([&](const CallRecord& one) { return one.context == number && ends_with_context(one); });
}
/// Ends the memory of a device's primary context. A library may have retained that context through
/// calls that are not seen here; its number is then unknown, and the memory of all contexts of the
/// device ends.
void end_primary(std::uint64_t device) noexcept {
  const auto context = primaries[device & 255].context.load(std::memory_order_relaxed);
  if (context != 0) return end_context(number_of_context(context));
  take_all([&](const CallRecord& one) { return one.device == device && ends_with_context(one); });
}
bool is_primary_active(std::uint64_t device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return real().primary_ctx_get_state(static_cast<int>(device), &flags, &active) != 0 ||
         active != 0;
}

}  // namespace

void begin_live() noexcept {
  shared.mode |= mode::keeping;
  void* const table = mmap(nullptr, kShards * sizeof(Shard), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return;
  (void)madvise(table, kShards * sizeof(Shard),
                MADV_NOHUGEPAGE);  // entries lie far apart, so huge pages would waste memory
  shards = static_cast<Shard*>(table);
}

void live_before(const CallRecord& record) noexcept {
  switch (record.call) {
    case Call::mem_free:
    case Call::mem_free_async:
    case Call::mem_free_host:
    case Call::mem_host_unregister:
    case Call::array_destroy:
      (void)take(kMemory, record.address, &taken);
      return;
    case Call::mem_release:
      return change_physical(record.address, 0, -1);
    case Call::mem_address_free:
      (void)take(kRange, record.address, &taken);
      return;
    case Call::pool_destroy:
      (void)take(kHostPool, record.address, &taken);
      return;
    default:
      return;
  }
}

// What a call ends was taken before the call, so that another thread may be given the same address
// meanwhile; a call that failed gets it back here. What a call makes is noted here.
void live_after(const CallRecord& record) noexcept {
  if (record.result != 0) return restore_taken();
  taken.key = 0;
  switch (record.call) {
    case Call::mem_unmap:
      return unmap(record.address, record.size);
    case Call::ctx_reset:
      return end_primary(record.stream);
    case Call::ctx_destroy:
      return end_context(record.extra);
    case Call::mem_alloc:
    case Call::mem_alloc_pitch:
    case Call::mem_alloc_managed:
    case Call::mem_alloc_async:
    case Call::mem_host_alloc:
    case Call::mem_host_register:
    case Call::array_create:
      return give(kMemory, record);
    case Call::mem_create:
      return give(kPhysical, record);
    case Call::mem_address_reserve:
      return give(kRange, record);
    case Call::pool_create:
      if (record.stream == kHost) give(kHostPool, record);
      return;
    case Call::device_get_pool:
      if (record.extra == 2) give(kHostPool, record);
      return;
    case Call::mem_map:
      change_physical(record.stream, 1, 0);
      return give(kMapping, record);
    case Call::mem_retain_handle:
      return change_physical(record.address, 0, 1);
    case Call::ctx_retain: {
      auto& primary = primaries[record.stream & 255];
      primary.context.store(record.address, std::memory_order_relaxed);
      primary.retained.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    case Call::ctx_release: {
      auto& retained = primaries[record.stream & 255].retained;
      for (auto held = retained.load();
           held != 0 && !retained.compare_exchange_weak(held, held - 1);)
        continue;
      if (!is_primary_active(record.stream)) end_primary(record.stream);
      return;
    }
    default:
      return;
  }
}

void live_dump(void (*put)(CallRecord record)) noexcept {
  if (shards == nullptr) return;
  // Every retain is recorded, so that a reader can tell which release is the last.
  for (std::size_t device = 0; device < std::size(primaries); ++device) {
    auto& primary = primaries[device];
    CallRecord retain{};
    retain.call = Call::ctx_retain;
    retain.device = static_cast<std::uint8_t>(device);
    retain.address = primary.context.load(std::memory_order_relaxed);
    retain.stream = device;
    for (auto held = primary.retained.load(std::memory_order_relaxed); held != 0; --held)
      put(retain);
  }
  for (const auto kind : {kHostPool, kMemory, kRange, kPhysical, kMapping}) {
    for (std::size_t s = 0; s < kShards; ++s) {
      auto& shard = shards[s];
      const Lock lock(shard);
      for (auto at = next_taken(shard, 0); at < kPlaces; at = next_taken(shard, at + 1)) {
        const auto& entry = shard.entries[at];
        if (entry.key >> 60 == kind) put(entry.record);
      }
    }
  }
  // Written last: handles that were released while their memory was mapped, and further references
  // to a handle.
  for (std::size_t s = 0; s < kShards; ++s) {
    auto& shard = shards[s];
    const Lock lock(shard);
    for (auto at = next_taken(shard, 0); at < kPlaces; at = next_taken(shard, at + 1)) {
      const auto& entry = shard.entries[at];
      if (entry.key >> 60 != kPhysical || entry.handles == 1) continue;
      auto changed = entry.record;
      changed.call = entry.handles == 0 ? Call::mem_release : Call::mem_retain_handle;
      put(changed);
      for (std::uint64_t more = 2; more < entry.handles; ++more) put(changed);
    }
  }
}

void reset_live_in_child() noexcept {
  if (shards != nullptr) (void)madvise(shards, kShards * sizeof(Shard), MADV_DONTNEED);
  for (auto& primary : primaries) primary.context = primary.retained = 0;
}

}  // namespace emm::record
