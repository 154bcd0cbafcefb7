#include "record/library/live.hpp"

#include <sched.h>
#include <sys/mman.h>

namespace emm::record {
namespace {

constexpr std::size_t kShards = 64;
constexpr std::size_t kPlaces = std::size_t{1} << 14;  // of a shard; a million in all

/// One name space for each kind of thing, since a range and what is mapped there share addresses.
enum Kind : std::uint64_t { kMemory, kPhysical, kMapping, kRange, kKinds };

struct LiveEntry {
  std::uint64_t key = 0;  ///< 0: nobody's.
  Record record{};        ///< As it was made.
  std::uint64_t mappings = 0;
  bool held = true;  ///< Physical memory whose handle has not been released.
};

/// Open addresses with linear probing. A spin lock, held for some 20 ns; a fork's child begins with
/// it free.
struct Shard {
  std::atomic<bool> busy{false};
  std::size_t count = 0;
  LiveEntry entries[kPlaces];
};
constinit Shard* shards = nullptr;

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

/// Moves up what had to go past the place, so that none is left behind.
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
  --shard.count;
}

void give(Kind kind, const Record& record) noexcept {
  const auto key = key_of(kind, record.address);
  if (key == 0) return;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  auto* entry = find(shard, key);
  if (entry == nullptr) {
    if (shard.count + 1 >= kPlaces) return;  // what is forgotten has an unmatched free
    auto at = place_of(key);
    while (shard.entries[at].key != 0) at = (at + 1) % kPlaces;
    entry = &shard.entries[at];
    ++shard.count;
  }
  *entry = {.key = key, .record = record, .mappings = 0, .held = true};
}

bool take(Kind kind, std::uint64_t address, Record* was = nullptr) noexcept {
  const auto key = key_of(kind, address);
  if (key == 0) return false;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  auto* const entry = find(shard, key);
  if (entry == nullptr) return false;
  if (was != nullptr) *was = entry->record;
  erase(shard, entry);
  return true;
}

/// Physical memory ends with its last handle or mapping.
void change_physical(std::uint64_t handle, int mappings, bool released) noexcept {
  const auto key = key_of(kPhysical, handle);
  if (key == 0) return;
  auto& shard = shard_of(key);
  const Lock lock(shard);
  auto* const entry = find(shard, key);
  if (entry == nullptr) return;
  if (mappings > 0) ++entry->mappings;
  if (mappings < 0 && entry->mappings != 0) --entry->mappings;
  if (released) entry->held = false;
  if (!entry->held && entry->mappings == 0) erase(shard, entry);
}

/// A range that is unmapped may hold several mappings, side by side.
void unmap(std::uint64_t begin, std::uint64_t size) noexcept {
  Record mapping{};
  for (auto at = begin; at - begin < size && take(kMapping, at, &mapping); at += mapping.size)
    change_physical(mapping.stream, -1, false);
}

template <class Ends>
void take_all(Ends ends) noexcept {
  for (std::size_t s = 0; s < kShards; ++s) {
    auto& shard = shards[s];
    const Lock lock(shard);
    for (std::size_t at = 0; at < kPlaces && shard.count != 0;) {
      auto& entry = shard.entries[at];
      if (entry.key != 0 && ends(entry.record)) {
        erase(shard, &entry);  // another may have come to this place
      } else {
        ++at;
      }
    }
  }
}

}  // namespace

void begin_live() noexcept {
  void* const table = mmap(nullptr, kShards * sizeof(Shard), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return;
  shards = static_cast<Shard*>(table);
  shared.mode |= mode::keeping;
}

void live_before(const Record& record) noexcept {
  switch (record.call) {
    case Call::mem_free:
    case Call::mem_free_async:
    case Call::mem_free_host:
    case Call::mem_host_unregister:
    case Call::array_destroy:
      (void)take(kMemory, record.address);
      return;
    case Call::mem_release:
      return change_physical(record.address, 0, true);
    case Call::mem_unmap:
      return unmap(record.address, record.size);
    case Call::mem_address_free:
      (void)take(kRange, record.address);
      return;
    case Call::ctx_reset:
      return take_all([&](const Record& one) { return one.device == record.stream; });
    case Call::ctx_destroy:
      return take_all(
          [&](const Record& one) { return one.context != 0 && one.context == record.extra; });
    default:
      return;
  }
}

void live_after(const Record& record) noexcept {
  if (record.result != 0) return;
  switch (record.call) {
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
    case Call::mem_map:
      change_physical(record.stream, 1, false);
      return give(kMapping, record);
    default:
      return;
  }
}

void live_dump(void (*put)(Record record)) noexcept {
  if (shards == nullptr) return;
  for (const auto kind : {kMemory, kRange, kPhysical, kMapping}) {
    for (std::size_t s = 0; s < kShards; ++s) {
      auto& shard = shards[s];
      const Lock lock(shard);
      for (std::size_t at = 0; at < kPlaces && shard.count != 0; ++at) {
        const auto& entry = shard.entries[at];
        if (entry.key != 0 && entry.key >> 60 == kind) put(entry.record);
      }
    }
  }
  // Handles that were released while their memory was mapped.
  for (std::size_t s = 0; s < kShards; ++s) {
    auto& shard = shards[s];
    const Lock lock(shard);
    for (std::size_t at = 0; at < kPlaces && shard.count != 0; ++at) {
      const auto& entry = shard.entries[at];
      if (entry.key == 0 || entry.key >> 60 != kPhysical || entry.held) continue;
      auto released = entry.record;
      released.call = Call::mem_release;
      put(released);
    }
  }
}

void live_in_child() noexcept {
  if (shards != nullptr) (void)madvise(shards, kShards * sizeof(Shard), MADV_DONTNEED);
}

}  // namespace emm::record
