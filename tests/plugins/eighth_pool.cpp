// A pool behind emm_plugin.h that is right, and, with the option wrong=NAME, wrong in one way:
// eighth_wrong.def has each way and the rule that it breaks. It limits the bytes that are alive,
// cuts small blocks out of slabs, keeps page-locked memory, and waits for all work before it hands
// out what somebody had before.
#define WRONG_TABLE "eighth_wrong.def"
#include "wrong_by_option.hpp"

namespace {
constexpr u64 kLimit = 96 * MiB, kUnit = 512, kSlab = 4 * MiB, kLargest = MiB;
constexpr u64 kCache = 8 * MiB;
constexpr std::size_t kMostWaiting = 16;

enum class State { live, dirty, clean };  // dirty: work may be pending on it.
struct Part {
  u64 size = 0;
  State state = State::clean;
};
struct Slab {
  std::map<u64, Part> parts;  // By address.
};
struct Dirty {
  u64 slab, address, number;  // The number of its free.
};
struct Record {
  Kind kind = Kind::device;
  u64 size = 0, room = 0, address = 0, slab = 0;
  void* host = nullptr;
  u32 flags = 0;
};
struct Cached {
  u64 room, address;
  void* host;
  u32 flags;
  bool is_dirty, by_deferral;
};
}  // namespace

struct emm_manager : Common {
  std::mutex mapping;  // Held while memory is pinned and mapped: no free needs it.
  std::mutex m;        // Guards what follows, and is held in no call.
  std::map<emm_token, Record> records;
  std::map<u64, Slab> slabs;
  std::set<std::tuple<u64, u64, u64>> clean_parts;  // By size, address and slab.
  std::deque<Dirty> dirty;
  std::deque<Record> queue;
  std::vector<Cached> cache;
  u64 cache_bytes = 0, queue_bytes = 0, live = 0, counted = 0, reserved = 0;
  emm_token last_token = 0, last_reset = 0;
  u32 deferrals = 0;
  u64 frees = 0;
  // Only wrong variants use these.
  u64 limit = kLimit, waiting_counted = 0;
  std::vector<Record> lost;
  std::map<emm_token, Record> ended;
  std::atomic<bool> was_out = false, was_initialized = false, was_reset = false;

  // What the limit counts.
  u64 weight(const Record& record) const {
    if (record.kind != Kind::device && record.kind != Kind::managed) return 0;
    if (W(limit_counts_rounded)) return up(record.size, kUnit);
    if (W(limit_counts_managed_pages) && record.kind == Kind::managed)
      return up(record.size, 64 * KiB);
    if (W(limit_counts_small_slots) && record.kind == Kind::device && record.size < 64) return 64;
    return record.size;
  }
  bool count(const Record& record) {
    std::lock_guard lock(m);
    const u64 more = weight(record);
    const u64 alive = counted + waiting_counted;
    if (more > limit || alive > limit - more) return false;
    counted += more;
    return true;
  }
  void uncount(const Record& record) {  // Under the lock.
    counted -= weight(record);
  }

  // Queue.
  emm_status end_at_driver(const Record& one) {
    switch (one.kind) {
      case Kind::host:
        return d->mem_free_host(d->user, one.host);
      case Kind::region:
        return d->mem_host_unregister(d->user, one.host);
      default:
        return d->mem_free(d->user, one.address);
    }
  }
  emm_status make_frees(bool even_deferred = false) {
    emm_status first = EMM_SUCCESS;
    u64 count = 0, bytes = 0;
    for (;;) {
      Record one;
      {
        std::lock_guard lock(m);
        if (queue.empty() || (deferrals > 0 && !even_deferred)) break;
        one = queue.front();
        queue.pop_front();
        queue_bytes -= one.size;
        if (W(limit_counts_waiting) || W(limit_counts_waiting_managed))
          waiting_counted -= std::min(waiting_counted, counts_waiting(one));
      }
      const emm_status status = end_at_driver(one);
      if (one.kind == Kind::device && status == EMM_SUCCESS) {
        std::lock_guard lock(m);
        reserved -= one.room;
      }
      if (first == EMM_SUCCESS) first = status;
      ++count;
      bytes += one.size;
    }
    tell_flushed(count, bytes);
    return first;
  }
  u64 counts_waiting(const Record& one) const {
    if (W(limit_counts_waiting_managed) && one.kind != Kind::managed) return 0;
    return one.kind == Kind::device || one.kind == Kind::managed ? one.size : 0;
  }
  void enqueue(const Record& one, bool by_reset) {
    bool full;
    {
      std::lock_guard lock(m);
      queue.push_back(one);
      queue_bytes += one.size;
      if ((W(limit_counts_waiting) || W(limit_counts_waiting_managed)) && deferrals > 0)
        waiting_counted += counts_waiting(one);
      full = queue.size() > kMostWaiting;
    }
    tell_added(one.kind, one.size);
    if (full && !by_reset) tell(make_frees());
  }

  // Page-locked memory.
  emm_status release_cache(bool even_deferred = false) {
    std::vector<Cached> out;
    {
      std::lock_guard lock(m);
      std::vector<Cached> stay;
      for (const Cached& one : cache)
        (one.by_deferral && deferrals > 0 && !even_deferred ? stay : out).push_back(one);
      cache.swap(stay);
      for (const Cached& one : out) cache_bytes -= one.room;
    }
    emm_status first = EMM_SUCCESS;
    for (const Cached& one : out) {
      const emm_status status = d->mem_free_host(d->user, one.host);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  // EMM_NOT_FOUND: nothing is kept that serves.
  emm_status from_cache(Record* record) {
    Cached one;
    {
      std::lock_guard lock(m);
      const auto found = std::find_if(cache.begin(), cache.end(), [&](const Cached& cached) {
        const bool any_flags = W(cache_any_flags_in_deferral) && deferrals > 0;
        const bool portable_will_do = W(cache_portable_after_out) && was_out;
        if (portable_will_do && cached.room == record->room)
          return (cached.flags | EMM_HOST_PORTABLE) == (record->flags | EMM_HOST_PORTABLE);
        return cached.room == record->room && (any_flags || cached.flags == record->flags);
      });
      if (found == cache.end()) return EMM_NOT_FOUND;
      one = *found;
      cache.erase(found);
      cache_bytes -= one.room;
    }
    if (one.is_dirty) {
      const emm_status status = d->ctx_synchronize(d->user);
      if (status != EMM_SUCCESS) {
        std::lock_guard lock(m);
        if (W(cache_refused_wait_is_done)) one.is_dirty = false;
        cache.push_back(one);
        cache_bytes += one.room;
        return status;
      }
    }
    record->host = one.host;
    record->address = one.address;
    return EMM_SUCCESS;
  }
  void give_host(const Record& record, bool by_reset) {
    bool fits;
    {
      std::lock_guard lock(m);
      fits = cache_bytes + record.room <= kCache;
      if (fits) {
        Cached one{record.room, record.address, record.host, record.flags, true, deferrals > 0};
        if (W(cache_by_deferral_is_clean) && deferrals > 0) one.is_dirty = false;
        if (W(cache_by_reset_is_clean) && by_reset && deferrals > 0) one.is_dirty = false;
        if (W(cache_by_nested_is_released) && deferrals > 1) one.by_deferral = false;
        if (W(cache_by_reset_is_released) && by_reset) one.by_deferral = false;
        cache.push_back(one);
        cache_bytes += record.room;
      }
    }
    if (fits) return;
    Record one = record;
    enqueue(one, by_reset);
  }

  // Device memory.
  // Under the lock.
  void add_clean(u64 base, Slab* slab, std::map<u64, Part>::iterator at) {
    at->second.state = State::clean;
    const auto above = std::next(at);
    if (above != slab->parts.end() && above->second.state == State::clean) {
      clean_parts.erase({above->second.size, above->first, base});
      at->second.size += above->second.size;
      slab->parts.erase(above);
    }
    if (at != slab->parts.begin() && std::prev(at)->second.state == State::clean) {
      const auto below = std::prev(at);
      clean_parts.erase({below->second.size, below->first, base});
      below->second.size += at->second.size;
      slab->parts.erase(at);
      at = below;
    }
    clean_parts.insert({at->second.size, at->first, base});
  }
  bool cut(u64 need, Record* record) {
    std::lock_guard lock(m);
    const auto found = clean_parts.lower_bound({need, 0, 0});
    if (found == clean_parts.end()) return false;
    const auto [size, address, base] = *found;
    clean_parts.erase(found);
    auto& parts = slabs[base].parts;
    if (size > need) {
      parts[address + need] = {size - need, State::clean};
      clean_parts.insert({size - need, address + need, base});
    }
    parts[address] = {need, State::live};
    record->address = address;
    record->slab = base;
    return true;
  }
  // Waits for all work, after which what was freed before is clean.
  emm_status clean() {
    u64 last;
    {
      std::lock_guard lock(m);
      if (dirty.empty()) return EMM_SUCCESS;
      last = frees;
    }
    const emm_status status = d->ctx_synchronize(d->user);
    std::lock_guard lock(m);
    const bool goes_on = W(refused_wait_in_deferral_cleans) && deferrals > 0;
    if (status != EMM_SUCCESS && !goes_on) return status;
    while (!dirty.empty() && dirty.front().number <= last) {
      const Dirty one = dirty.front();
      dirty.pop_front();
      Slab& slab = slabs[one.slab];
      add_clean(one.slab, &slab, slab.parts.find(one.address));
    }
    return EMM_SUCCESS;
  }
  emm_status release_idle(u64 keep) {
    std::vector<u64> out;
    {
      std::lock_guard lock(m);
      u64 idle = 0;
      const auto is_idle = [](const Slab& slab) {
        return slab.parts.size() == 1 && slab.parts.begin()->second.state == State::clean;
      };
      for (const auto& [base, slab] : slabs)
        if (is_idle(slab)) idle += kSlab;
      for (auto at = slabs.begin(); at != slabs.end() && idle > keep;) {
        if (!is_idle(at->second)) {
          ++at;
          continue;
        }
        out.push_back(at->first);
        clean_parts.erase({kSlab, at->first, at->first});
        idle -= kSlab;
        reserved -= kSlab;
        at = slabs.erase(at);
      }
    }
    emm_status first = EMM_SUCCESS;
    for (const u64 base : out) {
      const emm_status status = d->mem_free(d->user, base);
      if (first == EMM_SUCCESS) first = status;
    }
    return first;
  }
  // Gives back what is not used, as far as a deferral allows.
  void make_room() {
    tell(make_frees());
    tell(release_cache());
    if (clean() == EMM_SUCCESS) tell(release_idle(0));
  }

  emm_status take(u64 size, Record* record) {
    if (size <= kLargest) {
      const u64 need = up(size, kUnit);
      if (cut(need, record)) return EMM_SUCCESS;
      emm_status status = clean();
      if (status != EMM_SUCCESS) return status;
      if (cut(need, record)) return EMM_SUCCESS;
      u64 base = 0;
      status = d->mem_alloc(d->user, kSlab, &base);
      if (status != EMM_SUCCESS) return status;
      std::lock_guard lock(m);
      reserved += kSlab;
      Slab& slab = slabs[base];
      slab.parts[base] = {need, State::live};
      slab.parts[base + need] = {kSlab - need, State::clean};
      clean_parts.insert({kSlab - need, base + need, base});
      record->address = base;
      record->slab = base;
      return EMM_SUCCESS;
    }
    const emm_status status = d->mem_alloc(d->user, size, &record->address);
    if (status != EMM_SUCCESS) return status;
    std::lock_guard lock(m);
    record->room = size;
    reserved += size;
    return status;
  }

  void hand_out(const Record& record, emm_memory* memory) {
    std::lock_guard lock(m);
    const emm_token token = ++last_token;
    records[token] = record;
    if (record.kind == Kind::device || record.kind == Kind::managed) live += record.size;
    memory->token = token;
    memory->device_pointer = record.address;
    memory->host_pointer = record.host;
  }
  void refused(const Record& record) {
    std::lock_guard lock(m);
    if (W(limit_keeps_refused_in_deferral) && deferrals > 0) return;
    if (W(limit_keeps_refused_managed) && record.kind == Kind::managed) return;
    uncount(record);
    if (W(limit_falls_at_refusal)) limit -= std::min(limit, record.size / 2);
  }
  emm_status beyond_limit() {
    std::unique_lock lock(m);
    const bool deferred = deferrals > 0;
    lock.unlock();
    if (W(limit_makes_frees)) tell(make_frees(true));
    if (W(limit_releases_cache)) tell(release_cache(true));
    if (W(limit_ends_level) && deferred) {
      lock.lock();
      --deferrals;
    }
    if (W(limit_answers_not_ready) && deferred) return fail(EMM_NOT_READY, "the limit");
    return fail(EMM_OUT_OF_MEMORY, "beyond the limit");
  }

  emm_status memalloc(u64 size, emm_stream, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes");
    Record record{.kind = Kind::device, .size = size};
    if (!count(record)) return beyond_limit();
    emm_status status = take(size, &record);
    if (status == EMM_OUT_OF_MEMORY) {
      was_out = true;
      make_room();
      status = take(size, &record);
    }
    if (status != EMM_SUCCESS) {
      refused(record);
      return fail(status, "no device memory");
    }
    hand_out(record, memory);
    return status;
  }
  emm_status map(Record* record) {
    const emm_status status =
        d->mem_host_get_device_pointer(d->user, record->host, &record->address);
    return fail(status, "it cannot be mapped");
  }
  emm_status memhostalloc(u64 size, u32 flags, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of page-locked memory");
    if (size >> 50 != 0) return fail(EMM_OUT_OF_MEMORY, "more than any host has");
    Record record{.kind = Kind::host, .size = size, .room = up(size, 4 * KiB), .flags = flags};
    emm_status status = from_cache(&record);
    if (status == EMM_SUCCESS) {
      std::unique_lock lock(m);
      const bool deferred = deferrals > 0;
      lock.unlock();
      if (W(cached_has_address_in_deferral) && deferred && record.address == 0) {
        if (map(&record) != EMM_SUCCESS) record.address = 0;
      }
      if (W(cached_mapped_has_none_after_reset) && was_reset) record.address = 0;
      hand_out(record, memory);
      return status;
    }
    if (status != EMM_NOT_FOUND) return fail(status, "the work has no end");
    status = d->mem_host_alloc(d->user, record.room, flags, &record.host);
    if (status == EMM_OUT_OF_MEMORY) {
      was_out = true;
      if (W(host_out_empties_cache_anyway)) tell(release_cache(true));
      make_room();
      status = d->mem_host_alloc(d->user, record.room, flags, &record.host);
    }
    if (status != EMM_SUCCESS) return fail(status, "no page-locked memory");
    if ((flags & EMM_HOST_MAPPED) != 0) {
      std::lock_guard lock(mapping);
      status = map(&record);
    }
    if (status != EMM_SUCCESS) {
      if (W(unmapped_failure_is_cached)) {
        give_host(record, false);
        return status;
      }
      if (W(unmapped_failure_after_out_leaks) && was_out) return status;
      tell(d->mem_free_host(d->user, record.host));
      return status;
    }
    hand_out(record, memory);
    return status;
  }
  emm_status mempin(void* pointer, u64 size, u32 flags, emm_memory* memory) {
    if (in_child() && !W(child_mempin_waits)) return fail_in_child();
    Record record{.kind = Kind::region, .size = size, .host = pointer, .flags = flags};
    emm_status status;
    for (int turn = 0;; ++turn) {
      emm_status unpinned = EMM_SUCCESS;
      bool is_unmapped = false;
      {
        std::lock_guard lock(mapping);
        if (in_child()) return fail_in_child();
        status = d->mem_host_register(d->user, pointer, size, flags);
        if (status == EMM_SUCCESS && (flags & EMM_PIN_MAPPED) != 0) {
          status = map(&record);
          is_unmapped = status != EMM_SUCCESS;
          if (is_unmapped) unpinned = d->mem_host_unregister(d->user, pointer);
        }
      }
      tell(unpinned);
      if (is_unmapped) return status;
      if (status != EMM_OUT_OF_MEMORY || turn == 1) break;
      if (W(pin_out_empties_cache_anyway)) tell(release_cache(true));
      make_room();
    }
    if (status != EMM_SUCCESS) return fail(status, "the region cannot be pinned");
    hand_out(record, memory);
    return status;
  }
  emm_status memallocmanaged(u64 size, u32 attach, emm_memory* memory) {
    if (in_child()) return fail_in_child();
    if (size == 0) return fail(EMM_INVALID_VALUE, "0 bytes of managed memory");
    Record record{.kind = Kind::managed, .size = size, .flags = attach};
    if (!count(record)) return beyond_limit();
    emm_status status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    if (status == EMM_OUT_OF_MEMORY) {
      was_out = true;
      make_room();
      status = d->mem_alloc_managed(d->user, size, attach, &record.address);
    }
    if (status != EMM_SUCCESS) {
      refused(record);
      return fail(status, "no managed memory");
    }
    record.host = reinterpret_cast<void*>(record.address);
    hand_out(record, memory);
    return status;
  }

  emm_status end(const Record& record, bool by_reset) {
    switch (record.kind) {
      case Kind::host:
        give_host(record, by_reset);
        return EMM_SUCCESS;
      case Kind::region:
        return end_at_driver(record);
      case Kind::managed:
        enqueue(record, by_reset);
        return EMM_SUCCESS;
      case Kind::device:
        break;
    }
    if (record.slab == 0) {
      enqueue(record, by_reset);
      return EMM_SUCCESS;
    }
    std::lock_guard lock(m);
    Slab& slab = slabs[record.slab];
    const auto part = slab.parts.find(record.address);
    if (part == slab.parts.end()) return EMM_SUCCESS;  // Only late_free_frees_again loses one.
    const bool deferred = deferrals > 0;
    if ((W(part_in_deferral_is_clean) && deferred) || (W(part_after_out_is_clean) && was_out) ||
        (W(part_by_reset_in_deferral_is_clean) && deferred && by_reset)) {
      add_clean(record.slab, &slab, part);
      return EMM_SUCCESS;
    }
    part->second.state = State::dirty;
    dirty.push_back({record.slab, record.address, ++frees});
    return EMM_SUCCESS;
  }
  void free_again(const Record& record) {  // Under the lock.
    const auto slab = slabs.find(record.slab);
    if (slab == slabs.end()) return;
    const auto part = slab->second.parts.find(record.address);
    if (part != slab->second.parts.end() && part->second.state == State::live)
      add_clean(record.slab, &slab->second, part);
  }
  emm_status free_token(emm_token token, emm_stream) {
    if (in_child()) return fail_in_child();
    Record record;
    {
      std::lock_guard lock(m);
      const auto at = records.find(token);
      if (at == records.end()) {
        const auto late = ended.find(token);
        if (late != ended.end()) {
          if (W(late_free_lowers_limit_count)) counted -= std::min(counted, late->second.size);
          if (W(late_free_frees_again)) free_again(late->second);
          ended.erase(late);
        }
        return token <= last_reset ? EMM_SUCCESS : fail(EMM_INVALID_VALUE, "no such token");
      }
      record = at->second;
      records.erase(at);
      if (record.kind == Kind::device || record.kind == Kind::managed) live -= record.size;
      uncount(record);
    }
    return fail(end(record, false), "the device refused a free");
  }

  void reset(bool at_end) {
    if (in_child()) return;
    std::map<emm_token, Record> all;
    {
      std::lock_guard lock(m);
      last_reset = last_token;
      all.swap(records);
      for (const auto& [token, record] : all) {
        if (record.kind == Kind::device || record.kind == Kind::managed) live -= record.size;
        if (W(limit_survives_reset_in_deferral) && deferrals > 0) continue;
        uncount(record);
      }
      if (W(late_free_lowers_limit_count) || W(late_free_frees_again))
        for (const auto& [token, record] : all)
          if (record.kind == Kind::device) ended.insert({token, record});
    }
    if (!all.empty()) was_reset = true;
    for (const auto& [token, record] : all) {
      std::unique_lock lock(m);
      if (W(reset_in_deferral_spares_regions) && deferrals > 0 && !at_end &&
          record.kind == Kind::region) {
        lost.push_back(record);
        continue;
      }
      lock.unlock();
      tell(end(record, true));
    }
    bool deferred;
    {
      std::lock_guard lock(m);
      deferred = deferrals > 0 && !at_end;
    }
    if (deferred) {
      if (W(reset_in_deferral_releases_cache)) tell(release_cache(true));
      return;
    }
    std::vector<Record> regions;
    {
      std::lock_guard lock(m);
      regions.swap(lost);
    }
    for (const Record& one : regions) tell(end_at_driver(one));
    tell(make_frees(at_end));
    tell(release_cache(at_end));
    if (clean() == EMM_SUCCESS) tell(release_idle(0));
    if (!at_end) return;
    for (const auto& [base, slab] : slabs) tell(d->mem_free(d->user, base));
  }
  emm_status flush() {
    if (in_child()) return fail_in_child();
    std::vector<Record> regions;
    {
      std::lock_guard lock(m);
      if (deferrals == 0) regions.swap(lost);
    }
    for (const Record& one : regions) tell(end_at_driver(one));
    return fail(make_frees(), "the device refused a free");
  }
  emm_status trim(u64 keep) {
    if (in_child()) return fail_in_child();
    emm_status first = clean();
    if (first != EMM_SUCCESS) return fail(first, "the work has no end");
    first = release_idle(keep);
    if (keep > 0) return fail(first, "the device refused a free");
    const emm_status status = release_cache(W(trim_in_deferral_releases_cache));
    return fail(first != EMM_SUCCESS ? first : status, "the device refused a free");
  }

  emm_status get_memory_info(emm_memory_info* info) {
    if (in_child()) return fail_in_child();
    const emm_status status = d->mem_get_info(d->user, &info->free, &info->total);
    if (status != EMM_SUCCESS) return fail(status, "the device says nothing");
    std::lock_guard lock(m);
    const u64 left = limit - std::min(counted, limit);
    info->total = std::min(info->total, kLimit);
    info->free = std::min(std::min(info->free + idle_bytes(), left), info->total);
    if (W(info_beyond_total_at_limit) && left < KiB) info->free = info->total + KiB;
    return status;
  }
  u64 idle_bytes() const {
    u64 bytes = 0;
    for (const auto& [base, slab] : slabs)
      for (const auto& [address, part] : slab.parts)
        if (part.state != State::live) bytes += part.size;
    return bytes;
  }

  emm_status get_ipc_handle(u64 pointer, u64 size, emm_ipc_handle* handle) {
    if (in_child()) return fail_in_child();
    u64 base = 0;
    bool forgets = false;
    {
      std::lock_guard lock(m);
      for (const auto& [token, one] : records)
        if (one.kind == Kind::device && pointer >= one.address &&
            pointer - one.address < one.size && size <= one.size - (pointer - one.address))
          base = one.slab != 0 ? one.slab : one.address;
      forgets = W(ipc_offset_lost_in_deferral) && deferrals > 0;
    }
    if (base == 0) return fail(EMM_INVALID_VALUE, "no memory of this pool");
    const emm_status status = d->ipc_get_mem_handle(d->user, base, handle->bytes);
    if (status != EMM_SUCCESS) return fail(status, "no handle");
    handle->offset = forgets ? 0 : pointer - base;
    if (W(ipc_offset_lost_after_reset) && was_reset) handle->offset &= 0xffff;
    identify(handle);
    return status;
  }

  void initialize() {
    if (in_child()) return;
    const bool again = was_initialized.exchange(true);
    std::lock_guard lock(m);
    if (W(initialize_zeroes_limit_count) && again) counted = 0;
    if (W(initialize_empties_cache) && again) {
      cache.clear();
      cache_bytes = 0;
    }
  }
  void begin_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    ++deferrals;
  }
  void end_deferral() {
    if (in_child()) return;
    std::lock_guard lock(m);
    if (deferrals > 0) --deferrals;
    if (deferrals == 0)
      for (Cached& one : cache) one.by_deferral = false;
  }
  void state(emm_state* answer) {
    if (in_child() && !W(child_state_waits)) return;
    if (W(child_state_waits)) std::lock_guard lock(mapping);
    if (in_child()) return;
    std::lock_guard lock(m);
    u64 largest = 0;
    if (!clean_parts.empty()) largest = std::min(kLargest, std::get<0>(*clean_parts.rbegin()));
    largest = std::min(largest, limit - std::min(counted, limit));
    set(answer, &emm_state::live_bytes, live);
    set(answer, &emm_state::reserved_bytes, reserved);
    set(answer, &emm_state::largest_free_bytes, largest);
    set(answer, &emm_state::pending_count, queue.size());
    set(answer, &emm_state::pending_bytes, queue_bytes);
  }

  void end_manager() {
    if (in_child()) return;
    if (W(end_in_deferral_forgets_cache) && deferrals > 0) cache.clear();
    deferrals = 0;
    reset(true);
  }
};

namespace {
const emm_plugin_table_v1 table =
    table_of<emm_manager>("eighth", "96 MiB at most, and page-locked memory is kept");
}  // namespace
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1(void) { return &table; }
