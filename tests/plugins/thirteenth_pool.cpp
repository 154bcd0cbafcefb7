// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// thirteenth_wrong.def has each way and the rule that it breaks. Small blocks are buddies, whose
// events stay with them when they are joined and halved; each stream has a magazine of those that
// it freed. Large ones are the driver's, in the order of streams. Page-locked memory is kept, and
// one wait for all work cleans all that was freed before.
#define WRONG_TABLE "thirteenth_wrong.def"
#include <compare>

#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 208 * MiB, kLargestBlock = 96 * MiB;
constexpr u64 kLeaf = 512, kArena = 4 * MiB, kLargestSmall = MiB;
constexpr u32 kArenaOrder = 13;
constexpr u64 kHostKept = 4 * MiB, kSmallestHost = 4 * KiB;
constexpr std::size_t kMagazine = 12, kMostWaiting = 10, kMostFences = 12;

// A stream that a thread can name: the per-thread default stream is another one in each thread.
struct Key {
  emm_stream stream = 0;
  u64 thread = 0;
  auto operator<=>(const Key&) const = default;
};
Key key_of(emm_stream stream, u64 thread) { return {stream, stream == 2 ? thread : 0}; }

// What must be over before a block's next owner begins. Blocks share it; the last one ends it.
struct Fence {
  std::mutex* guard;
  std::vector<emm_handle>* ended;
  emm_handle event = 0;  // 0: only a wait for all work helps.
  Fence(std::mutex* its_guard, std::vector<emm_handle>* its_ended, emm_handle its_event)
      : guard(its_guard), ended(its_ended), event(its_event) {}
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence() {
    if (event == 0) return;
    std::lock_guard lock(*guard);
    ended->push_back(event);
  }
};
using Fences = std::vector<std::shared_ptr<Fence>>;

struct Block {
  u64 address = 0;
  u32 order = 0;
  Fences fences = {};
};
struct Free {
  u32 order = 0;
  Fences fences = {};
};
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0;
  u32 order = 0;
  bool is_large = false;
  void* host = nullptr;
  u32 flags = 0;
  Key key = {};       // Of the request.
  u64 thread = 0;     // That asked.
  Key freed_by = {};  // Of what waits.
  u64 number = 0;     // Of its free.
};
}  // namespace

struct emm_manager : Common {
  std::mutex growing;  // Held while an arena or the driver's pool is made: no free needs it.
  std::mutex burying;  // Guards ended_events.
  std::vector<emm_handle> ended_events;
  std::mutex m;  // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<u64, std::map<u64, Free>> arenas;  // Free blocks by address.
  std::map<Key, std::vector<Block>> magazines;
  std::vector<Record> kept;    // Page-locked memory.
  std::deque<Record> waiting;  // Frees of all kinds.
  emm_handle pool = 0;
  u64 large = 0, kept_bytes = 0, live = 0, peak = 0, reserved = 0;
  u64 last_free = 0, last_clean = 0;  // Of page-locked memory.
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  // Only wrong variants use these.
  u64 deferral_thread = 0, resets = 0;
  bool was_out = false;
  std::atomic<bool> was_trimmed{false}, was_refused{false};
  std::vector<Record> regions;

  u32 level() {
    std::lock_guard lock(m);
    return deferrals;
  }
  bool is_deferred() { return level() > 0; }
  static bool counts(const Record& one) {
    return one.kind == Kind::device || one.kind == Kind::managed;
  }
  emm_status no(emm_status status, const char* words) {
    if (status != EMM_SUCCESS) was_refused = true;
    return fail(status, words);
  }

  // Fences.
  std::shared_ptr<Fence> fence(emm_handle event) {
    return std::make_shared<Fence>(&burying, &ended_events, event);
  }
  // Behind all that was put on the stream until now.
  std::shared_ptr<Fence> fence_on(Key key) {
    emm_handle event = 0;
    if (key.stream == 2 && key.thread != thread_number) return fence(0);
    if (d->event_create(d->user, &event) != EMM_SUCCESS) return fence(0);
    if (d->event_record(d->user, event, key.stream) != EMM_SUCCESS) {
      if (!(W(event_leaks_at_refused_record) && is_deferred()))
        tell(d->event_destroy(d->user, event));
      return fence(0);
    }
    return fence(event);
  }
  void bury() {
    std::vector<emm_handle> some;
    {
      std::lock_guard lock(burying);
      some.swap(ended_events);
    }
    for (const emm_handle event : some) tell(d->event_destroy(d->user, event));
  }
  // Makes what comes on the stream come after the block's fences.
  emm_status order(const Block& block, emm_stream stream) {
    bool needs_all = false;
    for (const auto& one : block.fences) {
      if (one->event == 0) {
        needs_all = true;
        continue;
      }
      if (d->event_query(d->user, one->event) == EMM_SUCCESS) {
        if (W(first_done_is_enough_after_trim) && was_trimmed) return EMM_SUCCESS;
        continue;
      }
      if (d->stream_wait_event(d->user, stream, one->event) != EMM_SUCCESS) needs_all = true;
    }
    return needs_all ? wait_for_all() : EMM_SUCCESS;
  }
  emm_status wait_for_all() {
    u64 until;
    {
      std::lock_guard lock(m);
      until = last_free;
    }
    const emm_status status = d->ctx_synchronize(d->user);
    std::lock_guard lock(m);
    if (status == EMM_SUCCESS || (W(refused_wait_cleans_host) && deferrals > 0))
      last_clean = std::max(last_clean, until);
    return status;
  }

  // Buddies, under the lock.
  void put(u64 address, u32 order, Fences fences) {
    auto arena = std::prev(arenas.upper_bound(address));
    auto& free = arena->second;
    while (order < kArenaOrder) {
      const u64 buddy = arena->first + ((address - arena->first) ^ (kLeaf << order));
      const auto at = free.find(buddy);
      if (at == free.end() || at->second.order != order) break;
      if (!(W(join_forgets_upper_after_out) && was_out && buddy > address))
        fences.insert(fences.end(), at->second.fences.begin(), at->second.fences.end());
      free.erase(at);
      address = std::min(address, buddy);
      ++order;
    }
    std::sort(fences.begin(), fences.end());
    fences.erase(std::unique(fences.begin(), fences.end()), fences.end());
    if (fences.size() > kMostFences) fences = {fence(0)};
    free[address] = {order, std::move(fences)};
  }
  // A block of the order; address 0: there is none.
  Block cut(u32 order) {
    std::map<u64, Free>* best = nullptr;
    std::map<u64, Free>::iterator found;
    const auto cost = [](const Free& one) { return one.order * 2 + (one.fences.empty() ? 0 : 1); };
    for (auto& [base, free] : arenas)
      for (auto at = free.begin(); at != free.end(); ++at)
        if (at->second.order >= order &&
            (best == nullptr || cost(at->second) < cost(found->second)))
          best = &free, found = at;
    if (best == nullptr) return {};
    Block block{found->first, found->second.order, std::move(found->second.fences)};
    best->erase(found);
    while (block.order > order) {
      --block.order;
      Free upper{block.order, block.fences};
      if (W(upper_half_is_clean_in_deferral) && deferrals > 0) upper.fences.clear();
      (*best)[block.address + (kLeaf << block.order)] = std::move(upper);
    }
    return block;
  }
  // EMM_NOT_FOUND: nothing is idle for it.
  emm_status take_idle(Record* record) {
    Block block;
    Key key = record->key;
    {
      std::lock_guard lock(m);
      if (W(default_streams_shared_after_reset) && resets > 0) key.thread = 0;
      const auto at = magazines.find(key);
      if (at != magazines.end()) {
        auto& blocks = at->second;
        for (std::size_t i = blocks.size(); i-- > 0;) {
          if (blocks[i].order != record->order) continue;
          block = std::move(blocks[i]);
          block.fences.clear();  // The stream itself orders what comes.
          blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
          break;
        }
      }
      if (block.address == 0) block = cut(record->order);
    }
    if (block.address == 0) return EMM_NOT_FOUND;
    const emm_status status = order(block, record->key.stream);
    if (status != EMM_SUCCESS) {
      std::lock_guard lock(m);
      if (W(fences_lost_at_refused_wait) && deferrals > 0) block.fences.clear();
      if (W(block_lost_at_refused_wait_after_reset) && resets > 0) return status;
      put(block.address, block.order, std::move(block.fences));
      return status;
    }
    record->address = block.address;
    return status;
  }
  // Brings a magazine's oldest blocks to the buddies.
  void spill(Key key, std::size_t count, bool is_gathered = false) {
    std::lock_guard lock(m);
    auto& blocks = magazines[key];
    const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(std::min(count, blocks.size()));
    for (auto at = blocks.begin(); at != end; ++at) {
      if (W(spilled_in_nested_is_clean) && deferrals > 1 && !is_gathered) at->fences.clear();
      put(at->address, at->order, std::move(at->fences));
    }
    blocks.erase(blocks.begin(), end);
  }
  void gather() {
    std::vector<Key> keys;
    {
      std::lock_guard lock(m);
      for (const auto& [key, blocks] : magazines)
        if (!(W(gather_skips_other_threads_after_reset) && resets > 0 && key.stream == 2 &&
              key.thread != thread_number))
          keys.push_back(key);
    }
    for (const Key key : keys) spill(key, ~std::size_t{0}, true);
    std::lock_guard lock(m);
    std::erase_if(magazines, [](const auto& one) { return one.second.empty(); });
  }
  emm_status make_arena() {
    u64 base = 0;
    std::lock_guard one_at_a_time(growing);
    const emm_status status = d->mem_alloc(d->user, kArena, &base);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    arenas[base][base] = {kArenaOrder, {}};
    reserved += kArena;
    return status;
  }
  emm_status release_arenas(u64 keep, bool even_deferred = false) {
    if (is_deferred() && !even_deferred) return EMM_SUCCESS;
    gather();
    std::vector<u64> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      const auto is_idle = [](const auto& arena) {
        return arena.second.size() == 1 && arena.second.begin()->second.order == kArenaOrder;
      };
      for (const auto& arena : arenas) idle += is_idle(arena) ? kArena : 0;
      for (auto at = arenas.begin(); at != arenas.end() && idle > keep;) {
        if (!is_idle(*at)) {
          ++at;
          continue;
        }
        out.push_back(at->first);
        idle -= kArena;
        at = arenas.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const u64 base : out) {
      const emm_status status = d->mem_free(d->user, base);
      if (first == EMM_SUCCESS) first = status;
      std::lock_guard lock(m);
      if (status == EMM_SUCCESS || W(reserved_drops_at_refused_free)) reserved -= kArena;
    }
    return first;
  }

  // Large memory, in the order of streams.
  emm_status own_pool(emm_handle* answer) {
    std::lock_guard one_at_a_time(growing);
    {
      std::lock_guard lock(m);
      *answer = pool;
    }
    if (*answer != 0) return EMM_SUCCESS;
    const emm_status status = d->mem_pool_create(d->user, 0, answer);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    pool = *answer;
    return status;
  }
  emm_status take_large(Record* record) {
    emm_handle from = 0;
    const emm_status status = own_pool(&from);
    if (status != EMM_SUCCESS) return status;
    return d->mem_alloc_from_pool_async(d->user, record->room, from, record->key.stream,
                                        &record->address);
  }
  emm_status give_large(const Record& one, Key by, bool is_late) {
    const bool forgets = W(large_forgets_request_stream_after_reset) && resets > 0;
    Key on = by;
    if (W(late_large_on_default) && is_late) return d->mem_free_async(d->user, one.address, 0);
    // A stream may be gone by the time of a late free.
    if (is_late || !nameable(on) || (!nameable(one.key) && !forgets))
      return free_waiting(one.address);
    if (on != one.key && !forgets) {
      const auto behind = fence_on(one.key);
      if (behind->event == 0 ||
          d->stream_wait_event(d->user, on.stream, behind->event) != EMM_SUCCESS)
        return free_waiting(one.address);
    }
    const emm_status status = d->mem_free_async(d->user, one.address, on.stream);
    return status == EMM_SUCCESS ? status : free_waiting(one.address);
  }
  static bool nameable(Key key) { return key.stream != 2 || key.thread == thread_number; }
  // cuMemFree does not wait where the memory is of a pool.
  emm_status free_waiting(u64 address) {
    const emm_status status = wait_for_all();
    if (status != EMM_SUCCESS) tell(status);
    return d->mem_free(d->user, address);
  }
  emm_status trim_pool() {
    emm_handle one;
    {
      std::lock_guard lock(m);
      one = pool;
    }
    if (one == 0) return EMM_SUCCESS;
    const emm_status status = wait_for_all();
    return status != EMM_SUCCESS ? status : d->mem_pool_trim_to(d->user, one, 0);
  }

  // What waits.
  emm_status end_at_driver(const Record& one, bool is_late = false) {
    if (one.kind == Kind::host) return d->mem_free_host(d->user, one.host);
    if (one.kind == Kind::region) return d->mem_host_unregister(d->user, one.host);
    if (one.kind == Kind::managed) return d->mem_free(d->user, one.address);
    const emm_status status = give_large(one, one.freed_by, is_late);
    std::lock_guard lock(m);
    if (status == EMM_SUCCESS) large -= one.room;
    return status;
  }
  emm_status make_frees(bool even_deferred = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (waiting.empty() || (deferrals > 0 && !even_deferred)) break;
        one = waiting.front();
        waiting.pop_front();
      }
      const emm_status status = end_at_driver(one, true);
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
    }
    tell_flushed(count, bytes);
    return first;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full;
    {
      std::unique_lock lock(m);
      waiting.push_back(one);
      full = waiting.size() > kMostWaiting;
      if (!(W(told_under_lock_by_reset) && by_reset)) lock.unlock();
      tell_added(one.kind, one.size);
    }
    if (full && !by_reset) tell(make_frees());
  }

  // Page-locked memory.
  static u64 host_room(u64 size) { return std::max(kSmallestHost, std::bit_ceil(size)); }
  bool take_kept(Record* record) {
    bool is_clean;
    Record old;
    {
      std::lock_guard lock(m);
      const auto fits = [&](const Record& one) {
        const u32 ignored =
            W(write_combined_mixed_after_out) && was_out ? EMM_HOST_WRITE_COMBINED : 0;
        return one.room == record->room && ((one.flags ^ record->flags) & ~ignored) == 0;
      };
      const auto at = std::find_if(kept.rbegin(), kept.rend(), fits);
      if (at == kept.rend()) return false;
      old = *at;
      kept.erase(std::next(at).base());
      kept_bytes -= old.room;
      is_clean = old.number <= last_clean;
    }
    if (W(host_of_other_thread_is_clean) && old.thread != thread_number) is_clean = true;
    if (!is_clean && wait_for_all() != EMM_SUCCESS) {
      std::lock_guard lock(m);
      kept.push_back(old);
      kept_bytes += old.room;
      return false;
    }
    record->host = old.host;
    record->address = W(kept_loses_mapping_in_deferral) && is_deferred() ? 0 : old.address;
    return true;
  }
  void keep(Record one, bool by_reset) {
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      one.number = ++last_free;
      if (W(host_of_reset_in_deferral_is_clean) && by_reset && deferrals > 0) one.number = 0;
      kept.push_back(one);
      kept_bytes += one.room;
      while (kept_bytes > kHostKept) {
        kept_bytes -= kept.front().room;
        out.push_back(kept.front());
        kept.erase(kept.begin());
      }
    }
    for (const Record& old : out) enqueue(old, by_reset);
  }
  // Those whose free is made by the driver as soon as it may be.
  void release_kept(u32 flags = ~u32{0}) {
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      if (deferrals > 0) return;
      const bool only_same = W(host_out_spares_other_flags) && flags != ~u32{0};
      std::vector<Record> rest;
      for (const Record& one : kept) (only_same && one.flags != flags ? rest : out).push_back(one);
      kept.swap(rest);
      kept_bytes = 0;
      for (const Record& one : kept) kept_bytes += one.room;
    }
    for (const Record& one : out) tell(end_at_driver(one));
  }
  void make_room(u32 host_flags = ~u32{0}, bool for_managed = false) {
    {
      std::lock_guard lock(m);
      was_out = true;
    }
    bool even = false;
    if (W(out_by_other_thread_ends_deferred)) {
      std::lock_guard lock(m);
      even = deferrals > 0 && deferral_thread != thread_number;
    }
    tell(make_frees(even));
    release_kept(host_flags);
    if (W(managed_out_keeps_arenas) && for_managed) return;
    tell(release_arenas(0));
    if (W(out_after_reset_keeps_large) && resets > 0) return;
    if (!is_deferred()) tell(trim_pool());
  }

  bool count(Record* one) {
    std::lock_guard lock(m);
    u64 used = live;
    if (W(limit_counts_waiting_in_deferral) && deferrals > 0)
      for (const Record& other : waiting) used += counts(other) ? other.size : 0;
    if (one->size > kLimit || used > kLimit - one->size) return false;
    live += one->size;
    return true;
  }
  void forget(const Record& record) {  // Under the lock.
    if (!counts(record)) return;
    live -= std::min(live, record.size);
  }
  void uncount(const Record& one) {
    std::lock_guard lock(m);
    forget(one);
  }
  void hand_out(Record record, emm_memory* memory) {
    record.thread = thread_number;
    {
      std::lock_guard lock(m);
      const emm_token token = ++last_token;
      records[token] = record;
      peak = std::max(peak, live);
      memory->token = token;
    }
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
    bury();
  }

  void initialize() {
    if (W(initialize_ends_deferral)) {
      std::lock_guard lock(m);
      deferrals = 0;
    }
    if (W(second_initialize_forgets_pool)) {
      std::lock_guard lock(m);
      pool = 0;
    }
  }
  emm_status take(Record* record) {
    if (record->is_large) {
      const emm_status status = take_large(record);
      std::lock_guard lock(m);
      if (status == EMM_SUCCESS || (W(large_refused_counts_in_nested) && deferrals > 1))
        large += record->room;
      return status;
    }
    for (;;) {
      const emm_status found = take_idle(record);
      if (found != EMM_NOT_FOUND) return found;
      const emm_status made = make_arena();
      if (made == EMM_SUCCESS) continue;
      if (made != EMM_OUT_OF_MEMORY) return made;
      gather();
      const emm_status again = take_idle(record);
      return again != EMM_NOT_FOUND ? again : made;
    }
  }
  emm_status memalloc(u64 size, emm_stream stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes");
    if (size > kLargestBlock) return no(EMM_OUT_OF_MEMORY, "a block has 96 MiB at most");
    Record record{.kind = Kind::device, .size = size};
    record.key = key_of(stream == 1 ? 0 : stream, thread_number);
    record.is_large = size > kLargestSmall;
    if (record.is_large) {
      record.room = up(size, kLeaf);
    } else {
      record.room = std::max(kLeaf, std::bit_ceil(size));
      record.order = static_cast<u32>(std::bit_width(record.room / kLeaf) - 1);
    }
    if (!count(&record)) return no(EMM_OUT_OF_MEMORY, "beyond the limit");
    emm_status status = take(&record);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room();
      status = take(&record);
      if (status == EMM_SUCCESS && W(retry_counts_twice)) count(&record);
    }
    if (status != EMM_SUCCESS) {
      uncount(record);
      bury();
      return no(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status ask_host(Record* record, u32 flags) {
    const emm_status status = d->mem_host_alloc(d->user, record->room, flags, &record->host);
    if (status != EMM_SUCCESS || (record->flags & EMM_HOST_MAPPED) == 0) return status;
    const emm_status mapped =
        d->mem_host_get_device_pointer(d->user, record->host, &record->address);
    if (mapped != EMM_SUCCESS) tell(d->mem_free_host(d->user, record->host));
    return mapped;
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    Record record{.kind = Kind::host, .size = size, .room = size, .flags = flags};
    if (size <= kHostKept) record.room = host_room(size);
    emm_status status = EMM_SUCCESS;
    if (size > kHostKept || !take_kept(&record)) {
      status = ask_host(&record, flags);
      if (status == EMM_OUT_OF_MEMORY) {
        make_room(flags);
        status = ask_host(&record, flags);
      }
    }
    if (status != EMM_SUCCESS) return no(status, "no page-locked memory");
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    Record record{.kind = Kind::region, .size = size, .host = pointer, .flags = flags};
    emm_status status = d->mem_host_register(d->user, pointer, size, flags);
    if (status == EMM_OUT_OF_MEMORY) {
      if (!W(pin_out_makes_no_room)) make_room();
      status = d->mem_host_register(
          d->user, pointer, size,
          W(pin_retry_loses_read_only) ? flags & ~u32{EMM_PIN_READ_ONLY} : flags);
    }
    if (status != EMM_SUCCESS) return no(status, "the region cannot be pinned");
    const bool unasked = W(region_of_other_thread_in_deferral_mapped) && is_deferred() && [&] {
      std::lock_guard lock(m);
      return deferral_thread != thread_number;
    }();
    if ((flags & EMM_PIN_MAPPED) != 0 || unasked)
      status = d->mem_host_get_device_pointer(d->user, pointer, &record.address);
    if (status != EMM_SUCCESS) {
      tell(d->mem_host_unregister(d->user, pointer));
      return no(status, "it cannot be mapped");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return no(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .room = size};
    if (!count(&record)) return no(EMM_OUT_OF_MEMORY, "beyond the limit");
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      make_room(~u32{0}, true);
      status = d->mem_alloc_managed(d->user, size,
                                    W(managed_retry_is_global) ? u32{EMM_ATTACH_GLOBAL} : attach,
                                    &record.address);
    }
    if (status != EMM_SUCCESS) {
      uncount(record);
      return no(status, "no managed memory");
    }
    record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }

  void end_small(const Record& record, Key by, bool by_reset) {
    Block block{record.address, record.order, {}};
    if (by_reset) {  // The stream may be gone.
      block.fences.push_back(fence(0));
      std::lock_guard lock(m);
      put(block.address, block.order, std::move(block.fences));
      return;
    }
    if (by == record.key) {
      if (W(event_of_earlier_free_in_deferral)) {
        std::lock_guard lock(m);
        const auto& blocks = magazines[by];
        if (deferrals > 0 && !blocks.empty()) block.fences = blocks.back().fences;
      }
      if (block.fences.empty()) block.fences.push_back(fence_on(by));
      bool is_full;
      {
        std::lock_guard lock(m);
        if (W(default_streams_shared_after_reset) && resets > 0) by.thread = 0;
        auto& blocks = magazines[by];
        blocks.push_back(std::move(block));
        is_full = blocks.size() > kMagazine;
      }
      if (W(full_magazine_takes_growing_in_deferral) && is_full && is_deferred())
        std::lock_guard lock(growing);
      if (is_full) spill(by, kMagazine / 2);
      return;
    }
    block.fences.push_back(fence_on(by));
    if (!(W(request_stream_lost_in_nested) && level() > 1))
      block.fences.push_back(fence_on(record.key));
    std::lock_guard lock(m);
    put(block.address, block.order, std::move(block.fences));
  }
  emm_status end(Record record, Key by, bool by_reset) {
    if (record.kind == Kind::region) {
      if (!(W(region_by_reset_waits_for_deferral) && by_reset && is_deferred()))
        return end_at_driver(record);
      std::lock_guard lock(m);
      regions.push_back(record);
      return EMM_SUCCESS;
    }
    if (record.kind == Kind::host && record.size <= kHostKept) {
      keep(record, by_reset);
      return EMM_SUCCESS;
    }
    if (record.kind == Kind::device && !record.is_large) {
      end_small(record, by, by_reset);
      bury();
      return EMM_SUCCESS;
    }
    record.freed_by = by;
    if (record.kind == Kind::device && !is_deferred()) {
      const emm_status status = end_at_driver(record, by_reset);
      bury();
      return status;
    }
    enqueue(record, by_reset);
    return EMM_SUCCESS;
  }
  emm_status free_token(emm_token token, emm_stream stream) {
    if (in_child()) return fail_in_child();
    Record record;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end()) {
        if (W(ended_token_refused_in_deferral) && deferrals > 0)
          return fail(EMM_INVALID_VALUE, "no such token");
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      }
      record = at->second;
      records.erase(at);
      forget(record);
    }
    const Key by = key_of(stream == 1 ? 0 : stream, thread_number);
    return no(end(record, by, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (W(child_reset_in_deferral_waits) && is_deferred()) std::lock_guard lock(growing);
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      ++resets;
      if (W(reset_in_nested_spares_managed) && deferrals > 1 && !at_end) {
        for (auto at = records.begin(); at != records.end();) {
          if (at->second.kind == Kind::managed) {
            ++at;
            continue;
          }
          all.insert(*at);
          at = records.erase(at);
        }
      } else {
        all.swap(records);
      }
      last_reset = last_token;
      if (W(tokens_restart_at_second_reset) && resets == 2) last_token = 0;
      for (const auto& [token, record] : all) forget(record);
      if (W(reset_lowers_peak) && !at_end) peak = live;
    }
    for (const auto& [token, record] : all) tell(end(record, record.key, true));
    tell(make_frees(at_end && !(W(end_in_nested_loses_waiting) && level() > 1)));
    bury();
    if (!at_end) return;
    end_regions();
    {
      std::lock_guard lock(m);
      if (!(W(end_in_deferral_loses_kept) && deferrals > 0)) deferrals = 0;
    }
    release_kept();
    tell(release_arenas(0, true));
    bury();
    if (pool != 0) tell(d->mem_pool_destroy(d->user, pool));
  }
  void end_regions() {
    std::vector<Record> out;
    {
      std::lock_guard lock(m);
      out.swap(regions);
    }
    for (const Record& one : out) tell(end_at_driver(one));
  }
  void end_manager() {
    if (!in_child()) reset(true);
  }
  emm_status flush() {
    if (in_child()) return fail_in_child();
    if (W(flush_in_deferral_cleans_host)) {
      std::lock_guard lock(m);
      if (deferrals > 0) last_clean = last_free;
    }
    const emm_status status = make_frees();
    bury();
    return no(status, "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (W(child_trim_after_reset_waits) && resets > 0) std::lock_guard lock(growing);
    if (in_child()) return fail_in_child();
    was_trimmed = true;
    emm_status status = EMM_SUCCESS;
    if (W(trim_in_nested_makes_frees) && level() > 1) status = make_frees(true);
    const emm_status arena = release_arenas(keep);
    if (status == EMM_SUCCESS) status = arena;
    if (!is_deferred()) {
      const emm_status large_status =
          W(trim_skips_large_after_out) && was_out ? EMM_SUCCESS : trim_pool();
      if (status == EMM_SUCCESS) status = large_status;
      release_kept();
    }
    bury();
    return no(status, "the device refused a free");
  }
  u64 pool_bytes(u64 if_unknown) {
    emm_handle one;
    {
      std::lock_guard lock(m);
      one = pool;
    }
    u64 bytes = 0;
    constexpr u32 kReservedNow = 5;
    if (one == 0) return 0;
    if (d->mem_pool_get_attribute(d->user, one, kReservedNow, &bytes) != EMM_SUCCESS)
      return if_unknown;
    return bytes;
  }
  u64 idle_bytes() {  // Under the lock.
    u64 bytes = 0;
    for (const auto& [base, free] : arenas)
      for (const auto& [address, one] : free) bytes += kLeaf << one.order;
    for (const auto& [key, blocks] : magazines)
      for (const Block& one : blocks) bytes += kLeaf << one.order;
    return bytes;
  }
  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    u64 free = 0, total = 0;
    const emm_status status = d->mem_get_info(d->user, &free, &total);
    if (status != EMM_SUCCESS) return no(status, "the device says nothing");
    const bool limits = [&] {
      std::lock_guard lock(m);
      return !(W(info_beyond_limit_after_reset) && resets > 0);
    }();
    std::lock_guard lock(m);
    if (limits) total = std::min(total, kLimit);
    free = std::min({free + idle_bytes(), limits ? kLimit - live : total, total});
    if (W(info_free_drops_in_deferral) && deferrals > 0)
      for (const Record& one : waiting) free += one.room;
    info->free = free;
    info->total = total;
    return status;
  }
  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0;
    bool is_large = false;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records) {
        const u64 room = W(ipc_room_after_out) && was_out ? one.room : one.size;
        if (one.kind != Kind::device || pointer < one.address || pointer - one.address >= room ||
            size > room - (pointer - one.address))
          continue;
        is_large = one.is_large;
        base = is_large ? one.address : std::prev(arenas.upper_bound(pointer))->first;
      }
    }
    if (base == 0) return no(EMM_INVALID_VALUE, "no memory of this pool");
    if (is_large) return no(EMM_NOT_SUPPORTED, "memory of the driver's pool has no handle");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return no(status, "no handle");
    handle->offset = W(ipc_offset_lost_in_deferral) && is_deferred() ? 0 : pointer - base;
    if (!(W(ipc_device_lost_after_reset) && resets > 0)) identify(handle);
    return status;
  }

  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    ++deferrals;
    deferral_thread = thread_number;
  }
  void end_deferral() {
    if (W(child_end_of_deferral_waits)) std::lock_guard lock(growing);
    if (in_child()) return;
    {
      std::lock_guard lock(m);
      if (deferrals == 0 || --deferrals > 0) return;
    }
    end_regions();
  }
  void state(emm_state* answer) {
    if (in_child()) return;
    u64 known;
    {
      std::lock_guard lock(m);
      known = large;
    }
    const u64 from_pool = pool_bytes(known);
    std::lock_guard lock(m);
    u64 biggest = 0, bytes = 0, count = 0, live_bytes = live;
    for (const auto& [base, free] : arenas)
      for (const auto& [address, one] : free) biggest = std::max(biggest, kLeaf << one.order);
    for (const auto& [key, blocks] : magazines)
      if (key == key_of(key.stream, thread_number))
        for (const Block& one : blocks) biggest = std::max(biggest, kLeaf << one.order);
    biggest = std::min(biggest, kLargestSmall);
    if (!(W(largest_beyond_limit_in_deferral) && deferrals > 0))
      biggest = std::min(biggest, kLimit - live);
    for (const Record& one : waiting) {
      if (W(pending_forgets_large) && one.is_large) continue;
      ++count;
      bytes += W(pending_rounded_in_nested) && deferrals > 1 ? one.room : one.size;
    }
    if (W(live_counts_rooms_after_refusal) && was_refused) {
      live_bytes = 0;
      for (const auto& [token, one] : records) live_bytes += counts(one) ? one.room : 0;
    }
    set(answer, &emm_state::live_bytes, live_bytes);
    set(answer, &emm_state::reserved_bytes, reserved + from_pool);
    set(answer, &emm_state::largest_free_bytes, biggest);
    set(answer, &emm_state::pending_count, count, W(state_past_end_in_deferral) && deferrals > 0);
    set(answer, &emm_state::pending_bytes, bytes, W(state_past_end_in_deferral) && deferrals > 0);
  }
  std::size_t report(char* buffer, std::size_t size) {
    if (in_child()) return write("a forked child\n", buffer, size);
    std::lock_guard lock(m);
    return write("arenas: " + std::to_string(arenas.size()) + "\n", buffer, size);
  }
  std::size_t statistics(emm_statistic* statistics, std::size_t count) {
    if (W(child_statistics_in_deferral_waits) && is_deferred()) std::lock_guard lock(growing);
    if (in_child()) return 0;
    const u64 from_pool = [&] {
      u64 known;
      {
        std::lock_guard lock(m);
        known = large;
      }
      return pool_bytes(known);
    }();
    std::lock_guard lock(m);
    u64 blocks = 0;
    for (const auto& [token, one] : records)
      blocks += counts(one) && !(W(count_forgets_managed_after_reset) && resets > 0 &&
                                 one.kind == Kind::managed)
                    ? 1
                    : 0;
    const emm_statistic all[] = {{"allocated_bytes.all.current", live},
                                 {"allocated_bytes.all.peak", peak},
                                 {"reserved_bytes.all.current", reserved + from_pool},
                                 {"allocation.all.current", blocks}};
    for (std::size_t i = 0; i < 4 && i < count; ++i) statistics[i] = all[i];
    return 4;
  }
};

namespace {
const emm_plugin_table_v1 table = table_of<emm_manager>(
    "thirteenth", "Buddies, a magazine for each stream, and large memory of the driver's own pool");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
